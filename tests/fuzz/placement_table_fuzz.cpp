// Fuzzes placement tables: the text is rejected with invalid_file, or the table round-trips.
#include "nn/placement/table.h"
#include "sharding/base/error.h"
#include "tests/fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;
  try {
    const std::string written = nn::parse_placement_table(fuzz::text_of(data, size)).to_json();
    if (nn::parse_placement_table(written).to_json() != written) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid_file) std::abort();
  }
  return 0;
}
