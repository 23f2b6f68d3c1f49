// Fuzzes Zstandard text: it is rejected with invalid_file, or its lines and its document agree.
#include "tests/fuzz/compressed_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tessera::fuzz::read_compressed("input.zst", tessera::fuzz::text_of(data, size));
  return 0;
}
