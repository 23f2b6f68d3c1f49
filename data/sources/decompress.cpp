// Detects compressed files by name, and manages memory for decompressed pieces.
#include "data/sources/decompress.h"

#include <algorithm>
#include <utility>

namespace tessera::data::detail {
namespace {

constexpr int64_t max_piece_bytes = 4 << 20;

// Whether the build has the libraries. The source file of a missing library is not compiled.
constexpr bool has_zlib = TESSERA_HAS_ZLIB, has_zstd = TESSERA_HAS_ZSTD;

[[noreturn, maybe_unused]] void fail_without(const std::string& path, const char* library, const char* end,
                                             const char* package) {
  fail_compressed(path,
                  "this library was built without {}, which reads {}. Install it ({}) and rebuild, or decompress the "
                  "file",
                  library, end, package);
}

}  // namespace

bool is_compressed(const std::string& path) { return path.ends_with(".gz") || path.ends_with(".zst"); }

std::vector<DecompressedPiece> decompressed(std::span<const uint8_t> bytes, const std::string& path,
                                            int64_t max_bytes) {
  std::vector<DecompressedPiece> pieces;
  int64_t rest = max_bytes;
  const auto keep = [&](DecompressedPiece piece) {
    rest -= piece.size;
    if (rest < 0)
      fail_compressed(path,
                      "its {} compressed bytes hold more than {}, which is what the limit of all files leaves for it; "
                      "if you trust the file, raise max_decompressed_bytes in the options, or decompress it",
                      bytes.size(), max_bytes);
    pieces.push_back(std::move(piece));
  };
  if (path.ends_with(".zst")) {
    if constexpr (has_zstd)
      decompress_zstd(bytes, path, keep);
    else
      fail_without(path, "libzstd", ".zst", "libzstd-dev");
  } else {
    if constexpr (has_zlib)
      decompress_gzip(bytes, path, keep);
    else
      fail_without(path, "zlib", ".gz", "zlib1g-dev");
  }
  return pieces;
}

int64_t max_decompressed(int64_t max_bytes, int64_t compressed, int64_t of_any) {
  // Logs and tables are compressed to 1/10 or 1/30, zeros by zlib to 1/1000. A few bytes of zstd can encode any number
  // of zeros, so a limit is needed.
  constexpr int64_t usual_ratio = 40;
  if (max_bytes < 0)
    fail(ErrorKind::invalid_argument, "open", "max_decompressed_bytes {}, expected 0 or more", max_bytes);
  return max_bytes ? max_bytes : usual_ratio * compressed + of_any;
}

std::span<uint8_t> PieceWriter::free_space() {
  if (piece_.size == max_piece_bytes) emit_(std::exchange(piece_, {}));
  if (!piece_.bytes) piece_.bytes = std::make_unique_for_overwrite<uint8_t[]>(max_piece_bytes);
  return {piece_.bytes.get() + piece_.size, static_cast<size_t>(max_piece_bytes - piece_.size)};
}

void PieceWriter::wrote(size_t bytes) { piece_.size += static_cast<int64_t>(bytes); }

void PieceWriter::finish() {
  if (piece_.size == 0) return;
  DecompressedPiece last{std::make_unique_for_overwrite<uint8_t[]>(static_cast<size_t>(piece_.size)), piece_.size};
  std::copy_n(piece_.bytes.get(), piece_.size, last.bytes.get());
  piece_ = {};
  emit_(std::move(last));
}

}  // namespace tessera::data::detail
