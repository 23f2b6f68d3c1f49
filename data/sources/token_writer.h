// TokenWriter: documents of tokens as Megatron's pair of files, which TokenFiles and Megatron read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "sharding/files/file.h"

namespace tessera::data {

// Writes prefix.bin, the tokens as uint16 where the vocabulary has at most 65,536 ids, else as int32, and prefix.idx,
// which says where each document ends (data/sources/token_layout.h). They appear when finish() has written both to the
// disk, the .bin last; until then they are prefix.bin.partial and prefix.idx.partial, which a later writer overwrites.
// Keeps 20 bytes a document in memory until then. Errors (invalid_file): a file that cannot be written, by its path.
class TokenWriter {
 public:
  TokenWriter(const std::filesystem::path& prefix, int64_t vocab_size);

  // Error (invalid_argument): an id outside [0, vocab_size), 2^31 tokens and more.
  void add(std::span<const int32_t> document);
  void finish();

  int64_t document_count() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t token_count() const { return tokens_; }

 private:
  void write_buffer();
  void write_index();

  std::filesystem::path prefix_;
  int64_t vocab_size_;
  bool is_narrow_;
  File file_;
  std::vector<uint8_t> buffer_;
  int64_t written_ = 0, tokens_ = 0;
  std::vector<int32_t> sizes_;
};

}  // namespace tessera::data
