// Decompresses Zstandard files with libzstd, frame by frame.
#include <zstd.h>

#include <memory>
#include <string>

#include "data/sources/decompress.h"

namespace tessera::data::detail {

void decompress_zstd(std::span<const uint8_t> bytes, const std::string& path, const Emit& emit) {
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
  if (!stream) fail_compressed(path, "libzstd has no memory left");
  PieceWriter out(emit);
  ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
  size_t wanted = 1;  // 0: a frame is complete
  while (in.pos < in.size || wanted > 0) {
    const auto space = out.free_space();
    ZSTD_outBuffer to{space.data(), space.size(), 0};
    const size_t before = in.pos;
    wanted = ZSTD_decompressStream(stream.get(), &to, &in);
    if (ZSTD_isError(wanted))
      fail_compressed(path, "not a Zstandard file, or a damaged one ({})", ZSTD_getErrorName(wanted));
    if (wanted > 0 && to.pos == 0 && in.pos == before) fail_compressed(path, "the Zstandard file is truncated");
    out.wrote(to.pos);
  }
  out.finish();
}

}  // namespace tessera::data::detail
