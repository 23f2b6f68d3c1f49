// Corpus: the text of a language model as batches, of bytes or of tokens, and the entropies of its symbols.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <tessera/data/batches.h>
#include <tessera/data/loader.h>
#include <tessera/data/text.h>
#include <tessera/sharding/placement.h>

namespace tessera::examples {

struct CorpusOptions {
  int64_t seq = 128;   // symbols in a row
  int64_t batch = 32;  // rows in a global batch
  uint64_t seed = 0;   // of the order of the rows
};

struct Corpus {
  std::string symbol = "byte";  // or token
  int64_t files = 0;
  int64_t size = 0;               // bytes of text, or documents of tokens
  double unigram_entropy = 0;     // nats per symbol: the loss of a model that sees no context,
  double bigram_entropy = 0;      // and of one that sees the symbol before
  data::Loader<data::PackedTokens> training;   // global batches; endless, each epoch in its own order
  std::vector<data::PackedTokens> validation;  // global batches of what is never trained on, at most 16
};

// Opens files as bytes, in rows of one document each. The last hundredth of them is the validation. Errors: as
// ByteSource::open, windows, train_validation_split and shard_batches.
Corpus open_bytes(const std::vector<std::string>& paths, const CorpusOptions& options, const MeshRules& mesh_rules);

struct TokenCorpusOptions {
  CorpusOptions rows = {};
  std::optional<data::Tokenizer> tokenizer = {};  // for texts
  std::string end_of_text = {};        // a token behind each text; empty: none
  std::vector<std::string> eval = {};  // of the validation; empty: the last hundredth of the documents
  int64_t vocab = 0;                   // ids of the model; a larger one is an error
};

// The documents of texts, tokenized as they are read, or of token files (.bin, .idx, .npy), packed into rows. Of token
// files that do not know their documents each row is one. Entropies are those of the first two million tokens. Errors:
// as those of the sources, of Tokenizer and shard_batches; invalid_argument: too few documents, a token beyond the
// vocabulary, a training or validation set whose documents all have fewer than two tokens.
Corpus open_tokens(const std::vector<std::string>& paths, const TokenCorpusOptions& options,
                   const MeshRules& mesh_rules);

}  // namespace tessera::examples
