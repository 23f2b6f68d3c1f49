// tokenize_files: tokenizes texts into shards in order, with several threads, and resumes stopped runs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::examples {

struct TokenizeOptions {
  std::string tokenizer;                                  // tokenizer.json, or a folder that contains one
  std::string out;                                        // folder of the shards
  std::vector<std::string> files;                         // files and folders (tokenize_texts.h)
  std::optional<std::string> end_of_text = std::nullopt;  // a token that ends each document
  std::optional<std::string> separator = std::nullopt;    // a line that ends a document of a text file
  std::string text_field = "text";                        // the field of JSON lines (data::json_texts)
  int64_t shard_documents = 10'000;                       // documents in each shard but the last
  int threads = 1;
  int64_t stop_after = 0;  // number of shards after which to stop early; 0: never
};

// Returns a hash of a tokenizer's files (a tokenizer.json, or its folder): equal files give equal hashes.
uint64_t mark_of_tokenizer(const std::string& path);

// The shards written by this run and earlier ones.
struct TokenizeProgress {
  int64_t shards = 0, documents = 0, tokens = 0;
  int64_t bytes = 0;       // bytes of text
  int64_t new_tokens = 0;  // tokens of this run
  bool is_finished = false;
  std::string damaged = "";  // the first shard of an earlier run that has changed since, if any
};

// Writes out/tokens-00000.bin and .idx and so on (data/sources/token_writer.h), each with the next shard_documents
// documents, without the special tokens of the tokenizer's template. Threads make the tokens, which are written in the
// order of the texts. The bytes depend only on the texts, the tokenizer, end_of_text, separator, text_field and
// shard_documents.
//
// After each shard, out/tokenize.json records the progress, with checksums of the texts and the shards. A stopped run
// continues after its last complete shard when it is started again, with the same result. A finished run reads texts
// and shards, compares them, and writes nothing. If a shard was damaged or removed, it and all later ones are made
// again. `report` is called before that and after each shard.
//
// Errors: those of Tokenizer and of the texts, with their file; invalid_argument: end_of_text is not in the vocabulary,
// `out` is a file or is inside a folder of texts; invalid_file: `out` cannot be made, was made from other texts or with
// other options, has tokens but no tokenize.json, or is being written by another run.
TokenizeProgress tokenize_files(const TokenizeOptions& options,
                                const std::function<void(const TokenizeProgress&)>& report = {});

}  // namespace tessera::examples
