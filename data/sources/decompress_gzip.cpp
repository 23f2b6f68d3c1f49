// Decompresses gzip files with zlib, member by member.
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <string>

#include "data/sources/decompress.h"

namespace tessera::data::detail {
namespace {

class Inflater {
 public:
  explicit Inflater(const std::string& path) : path_(path) {
    constexpr int gzip_only = 16, max_window_bits = 15;
    if (inflateInit2(&stream_, gzip_only + max_window_bits) != Z_OK) fail_compressed(path, "zlib has no memory left");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Decompresses the member at the beginning of `bytes` and returns the bytes that follow it.
  std::span<const uint8_t> member(std::span<const uint8_t> bytes, PieceWriter& out) {
    inflateReset(&stream_);
    for (int status = Z_OK; status != Z_STREAM_END;) {
      const auto space = out.free_space();
      const size_t given = std::min<size_t>(bytes.size(), std::numeric_limits<uInt>::max());
      stream_.next_in = const_cast<Bytef*>(bytes.data());
      stream_.avail_in = static_cast<uInt>(given);
      stream_.next_out = space.data();
      stream_.avail_out = static_cast<uInt>(space.size());
      status = inflate(&stream_, Z_NO_FLUSH);
      const size_t taken = given - stream_.avail_in, made = space.size() - stream_.avail_out;
      if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
        fail_compressed(path_, "not a gzip file, or a damaged one ({})", stream_.msg ? stream_.msg : "unknown to zlib");
      if (status != Z_STREAM_END && taken == 0 && made == 0) fail_compressed(path_, "the gzip file is truncated");
      bytes = bytes.subspan(taken);
      out.wrote(made);
    }
    return bytes;
  }

 private:
  const std::string& path_;
  z_stream stream_ = {};
};

}  // namespace

void decompress_gzip(std::span<const uint8_t> bytes, const std::string& path, const Emit& emit) {
  PieceWriter out(emit);
  Inflater inflater(path);
  // Zeros after a member are padding, as in gzip: tapes and files that are written in blocks have it.
  const auto is_padding = [](std::span<const uint8_t> rest) {
    return std::all_of(rest.begin(), rest.end(), [](uint8_t byte) { return byte == 0; });
  };
  do bytes = inflater.member(bytes, out);
  while (!is_padding(bytes));
  out.finish();
}

}  // namespace tessera::data::detail
