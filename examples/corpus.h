// Corpus: the training text of a language model as batches of bytes or tokens, and the entropies of its symbols.
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
  int64_t seq = 128;   // bytes or tokens in a row
  int64_t batch = 32;  // rows in a global batch
  uint64_t seed = 0;   // seed of the order of the rows
};

struct Corpus {
  std::string symbol = "byte";  // or "token"
  int64_t files = 0;
  int64_t size = 0;                            // bytes of text, or documents of tokens
  bool is_packed = false;                      // whether a row may hold several documents
  std::optional<int64_t> dropped_turns;        // of the first conversations, turns that do not fit into a row
  double unigram_entropy = 0;                  // nats per symbol: the loss of a model that sees no context
  double bigram_entropy = 0;                   // the loss of a model that sees only the previous symbol
  data::Loader<data::PackedTokens> training;   // global batches; endless, each epoch in its own order
  std::vector<data::PackedTokens> validation;  // global batches that are never trained on, at most 16
};

// Returns the number of segments in a row of this length: documents of 16 tokens on average, and the padding.
int64_t max_segments_of(int64_t seq);

// Opens files as bytes, and .gz and .zst files decompressed, in rows of one document each. The last 1/100 of the rows
// are for validation. Errors: as ByteSource::open, windows, train_validation_split and shard_batches.
Corpus open_bytes(const std::vector<std::string>& paths, const CorpusOptions& options, const MeshRules& mesh_rules);

struct TokenCorpusOptions {
  CorpusOptions rows = {};
  std::optional<data::Tokenizer> tokenizer = {};  // for texts
  std::optional<data::ChatTemplate> chat = {};    // reads conversations, of which the assistant's turns are learned
  std::string end_of_text = {};                   // a token after each text; empty: none
  std::string text_field = "text";                // the field of JSON lines (data::json_texts)
  std::vector<std::string> eval = {};             // files for validation; empty: the last 1/100 of the documents
  int64_t vocab = 0;                              // number of ids of the model; a larger id is an error
};

// Opens texts or conversations, which are tokenized when they are read, or token files (.bin, .idx, .npy), and packs
// them into rows. If token files do not contain where documents end, each row is a document. Entropies are of the first
// two million tokens. Errors: as the sources, Tokenizer and shard_batches; invalid_argument: too few documents; a token
// beyond the vocabulary; a training or validation set whose documents all have fewer than two tokens.
Corpus open_tokens(const std::vector<std::string>& paths, const TokenCorpusOptions& options,
                   const MeshRules& mesh_rules);

}  // namespace tessera::examples
