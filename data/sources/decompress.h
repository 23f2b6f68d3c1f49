// decompress: what compressed files hold, piece by piece, by zlib and by libzstd.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera::data::detail {

// A run of decompressed bytes, in memory of its own.
struct DecompressedPiece {
  std::unique_ptr<uint8_t[]> bytes;
  int64_t size = 0;
};

// Whether the name ends in .gz or .zst.
bool is_compressed(const std::string& path);

// What a .gz or .zst file at `path` with these bytes holds, in order, in pieces of at most 4 MiB; of several members or
// frames one after the other, as gzip and zstd write them; zeros after a gzip member are ignored. Errors
// (invalid_file), which name the path: bytes of another kind, cut short or damaged, as their checksums say; a build
// without zlib or libzstd; more than `max_bytes` bytes, before these are in memory.
std::vector<DecompressedPiece> decompressed(std::span<const uint8_t> bytes, const std::string& path, int64_t max_bytes);

// `max_bytes` of the options (data/sources/source.h), or its default for files of this many compressed bytes, of
// which `of_any` are free. Error (invalid_argument): it is negative.
int64_t max_decompressed(int64_t max_bytes, int64_t compressed, int64_t of_any = 4 << 20);

// Of either library; `emit` takes each piece. In a build without it, an Error that says what to install.
using Emit = std::function<void(DecompressedPiece)>;
void decompress_gzip(std::span<const uint8_t> bytes, const std::string& path, const Emit& emit);
void decompress_zstd(std::span<const uint8_t> bytes, const std::string& path, const Emit& emit);

[[noreturn]] void fail_compressed(const std::string& path, const std::string& what);

// Bytes that are written into a piece, which is emitted when it is full and at the end.
class PieceWriter {
 public:
  explicit PieceWriter(const Emit& emit) : emit_(emit) {}
  std::span<uint8_t> free_space();  // at least one byte
  void wrote(size_t bytes);         // to free_space()
  void finish();

 private:
  const Emit& emit_;
  DecompressedPiece piece_;
};

}  // namespace tessera::data::detail
