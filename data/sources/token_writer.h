// TokenWriter: writes documents of tokens as Megatron's pair of files, which TokenFiles and Megatron read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "sharding/files/file.h"

namespace tessera::data {

// Writes prefix.bin and prefix.idx. The .bin has the tokens as uint16 if the vocabulary has at most 65,536 ids,
// otherwise as int32. The .idx has the ends of documents (data/sources/token_layout.h). Both appear when finish() has
// written them to the disk, the .bin last. Until then they are prefix.bin.partial and prefix.idx.partial, and the
// writer keeps 20 bytes per document in memory. A writer overwrites the partial files of one that is gone. Errors
// (invalid_file): another writer of a process on this machine writes to `prefix`; a file cannot be written. The message
// has the path.
class TokenWriter {
 public:
  TokenWriter(const std::filesystem::path& prefix, int64_t vocab_size);

  // Appends a document. Error (invalid_argument): an id outside [0, vocab_size); 2^31 tokens or more; after finish().
  void add(std::span<const int32_t> document);
  void finish();

  int64_t document_count() const { return static_cast<int64_t>(sizes_.size()); }
  int64_t token_count() const { return tokens_; }

 private:
  void write_buffer();
  void write_index();
  void check_unfinished() const;

  std::filesystem::path prefix_;
  int64_t vocab_size_;
  bool is_narrow_, is_finished_ = false;
  File file_;
  std::vector<uint8_t> buffer_;
  int64_t written_ = 0, tokens_ = 0;
  std::vector<int32_t> sizes_;
};

}  // namespace tessera::data
