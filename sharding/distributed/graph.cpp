// Which devices have graphs, and what a recorded function may not do.
#include "sharding/distributed/graph.h"

#include <array>

#include "sharding/diagnostics/fail.h"

namespace tessera::detail {
namespace {

thread_local bool recording = false;

}  // namespace

MakeGraph& graphs_of(c10::DeviceType kind) {
  static std::array<MakeGraph, c10::COMPILE_TIME_MAX_DEVICE_TYPES> all{};
  return all[static_cast<size_t>(kind)];
}

Recording::Recording() : ScopedValue(recording, true) {}

bool is_recording() { return recording; }

void refuse_in_recording(const char* verb, const char* what) {
  if (recording)
    fail(ErrorKind::bad_argument, verb,
         "{} inside a captured step, whose later calls run without the host. Do it after the call.", what);
}

}  // namespace tessera::detail
