// tokenize_files: texts to shards of tokens, in order, by any number of threads, from wherever an earlier run stopped.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::examples {

struct TokenizeOptions {
  std::string tokenizer;                                  // tokenizer.json, or a folder that has one
  std::string out;                                        // the folder of the shards
  std::vector<std::string> files;                         // files and folders (tokenize_texts.h)
  std::optional<std::string> end_of_text = std::nullopt;  // a token that ends each document
  std::optional<std::string> separator = std::nullopt;    // a line that ends a document of a text file
  int64_t shard_documents = 10'000;                       // documents in a shard, all but the last
  int threads = 1;
  int64_t stop_after = 0;  // shards, after which to stop before the end; 0: never
};

// The same for tokenizers (a tokenizer.json, or the folder of one) of the same files.
uint64_t mark_of_tokenizer(const std::string& path);

// What has been written, by this run and those before it.
struct TokenizeProgress {
  int64_t shards = 0, documents = 0, tokens = 0;
  int64_t bytes = 0;       // of text
  int64_t new_tokens = 0;  // of them, by this run
  bool is_finished = false;
  std::string damaged = "";  // the first shard that earlier runs made and that is not what it was, if there was one
};

// Writes out/tokens-00000.bin and .idx and so on (data/sources/token_writer.h), each with the next shard_documents
// documents, without the special tokens of the tokenizer's template. Tokens are made by the threads and written in the
// order of the texts: the bytes depend on the texts, the tokenizer, end_of_text, separator and shard_documents alone.
//
// After each shard out/tokenize.json says how far it is, with checksums of the texts and of the shards. A run that was
// stopped, wherever that was, goes on after its last whole shard when it is started again, and writes what it would
// have written; one that has finished reads the texts and shards, to compare them, and writes nothing. From the first
// shard on that was damaged or removed since, all are made again. `report` is called before that and after each shard.
//
// Errors: those of Tokenizer and of the texts, by their file; invalid_argument: end_of_text is no token of the
// vocabulary, `out` is a file or lies in a folder of texts; invalid_file: `out` cannot be made, was made from other
// texts or with other options, has tokens and no tokenize.json, or is being written by another run.
TokenizeProgress tokenize_files(const TokenizeOptions& options,
                                const std::function<void(const TokenizeProgress&)>& report = {});

}  // namespace tessera::examples
