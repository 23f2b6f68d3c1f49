// In place of libzstd's, in a build without it: a .zst file cannot be opened.
#include "data/sources/decompress.h"

namespace tessera::data::detail {

void decompress_zstd(std::span<const uint8_t>, const std::string& path, const Emit&) {
  fail_compressed(path,
                  "this library was built without libzstd, which reads .zst. Install it (libzstd-dev) and rebuild, or "
                  "decompress the file");
}

}  // namespace tessera::data::detail
