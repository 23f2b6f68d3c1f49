// Reads any bytes as gzip text: lines and document agree, or there is one Error.
#include "tests/fuzz/compressed_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::read_compressed("input.gz", tessera::fuzz::text_of(data, size));
  return 0;
}
