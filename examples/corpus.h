// Corpus: the text of a byte-level language model as batches, and the entropies of its bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/text.h"
#include "sharding/placement.h"

namespace tessera::examples {

struct CorpusOptions {
  int64_t seq = 128;   // bytes in a window
  int64_t batch = 32;  // windows in a global batch
  uint64_t seed = 0;   // of the order of the windows
};

struct Corpus {
  int64_t files = 0, bytes = 0;
  double unigram_entropy = 0;                // nats per byte: the loss of a model that sees no context,
  double bigram_entropy = 0;                 // and of one that sees the byte before
  data::Loader<data::TokenBatch> training;   // global batches; endless, each epoch in its own order
  std::vector<data::TokenBatch> validation;  // at most 16 global batches from the last hundredth of the bytes, which is
                                             // never trained on

  // Errors: as ByteSource::open, windows, train_validation_split and on_mesh.
  static Corpus open(const std::vector<std::string>& paths, const CorpusOptions& options, const Layout& layout);
};

}  // namespace tessera::examples
