// Fuzzes heartbeats: the text is rejected without an exception, or the heartbeat round-trips.
#include "sharding/runtime/heartbeat.h"
#include "tests/fuzz/scratch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera::detail;
  const auto heartbeat = parse_heartbeat(tessera::fuzz::text_of(data, size));
  if (!heartbeat) return 0;
  const std::string written = format_heartbeat(*heartbeat);
  const auto read = parse_heartbeat(written);
  if (!read || read->number != heartbeat->number || format_heartbeat(*read) != written) std::abort();
  return 0;
}
