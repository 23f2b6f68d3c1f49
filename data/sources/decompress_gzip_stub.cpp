// In place of zlib's, in a build without it: a .gz file cannot be opened.
#include "data/sources/decompress.h"

namespace tessera::data::detail {

void decompress_gzip(std::span<const uint8_t>, const std::string& path, const Emit&) {
  fail_compressed(path,
                  "this library was built without zlib, which reads .gz. Install it (zlib1g-dev) and rebuild, or "
                  "decompress the file");
}

}  // namespace tessera::data::detail
