// Decompresses files in pieces, with zlib and libzstd.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sharding/base/fail.h"

namespace tessera::data::detail {

// A run of decompressed bytes that owns its memory.
struct DecompressedPiece {
  std::unique_ptr<uint8_t[]> bytes;
  int64_t size = 0;
};

// Returns whether the name ends in .gz or .zst.
bool is_compressed(const std::string& path);

// Returns the decompressed bytes of a .gz or .zst file at `path`, in order, in pieces of at most 4 MiB. The file may
// have several members or frames, as gzip and zstd write them; zeros after a gzip member are ignored.
// Errors (invalid_file), which name the path: bytes in a different format; truncated or damaged data (by checksum); a
// build without zlib or libzstd; more than `max_bytes` bytes, before these are in memory.
std::vector<DecompressedPiece> decompressed(std::span<const uint8_t> bytes, const std::string& path, int64_t max_bytes);

// Returns `max_bytes` of the options (data/sources/source.h). If it is 0, returns the default: 40 bytes for each of the
// `compressed` bytes, plus `of_any`. Error (invalid_argument): it is negative.
int64_t max_decompressed(int64_t max_bytes, int64_t compressed, int64_t of_any = 4 << 20);

// Decompress with one library, if the build has it, and call `emit` for each piece.
using Emit = std::function<void(DecompressedPiece)>;
void decompress_gzip(std::span<const uint8_t> bytes, const std::string& path, const Emit& emit);
void decompress_zstd(std::span<const uint8_t> bytes, const std::string& path, const Emit& emit);

// Throws Error (invalid_file) "[open] path: what.", where `what` is a format string of fmt.
template <class... Args>
[[noreturn]] void fail_compressed(const std::string& path, fmt::format_string<Args...> what, Args&&... args) {
  fail(ErrorKind::invalid_file, "open", "{}: {}.", path, fmt::format(what, std::forward<Args>(args)...));
}

// Collects bytes in a piece and emits it when it is full and at the end.
class PieceWriter {
 public:
  explicit PieceWriter(const Emit& emit) : emit_(emit) {}
  std::span<uint8_t> free_space();  // at least one byte
  void wrote(size_t bytes);         // call it after writing these bytes to free_space()
  void finish();

 private:
  const Emit& emit_;
  DecompressedPiece piece_;
};

}  // namespace tessera::data::detail
