// The number of threads, from the environment and from who else computes on this machine.
#include "sharding/placement/thread_limit.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "sharding/base/environment.h"
#include "sharding/runtime/control_plane.h"

namespace tessera::detail {

namespace {

// Where nothing gave LibTorch another number than that of all cores, the processes of a machine share them: teams of
// more threads than cores spin in each other's way.
int64_t threads_of_this_process() {
  const int64_t now = at::get_num_threads(), cores = sysconf(_SC_NPROCESSORS_ONLN);
  const std::vector<int>& machines = world().machines;
  const int64_t here = std::count(machines.begin(), machines.end(), machines[world().index]);
  return now == cores && !std::getenv("OMP_NUM_THREADS") ? std::max<int64_t>(1, cores / here) : now;
}

// LibTorch's number is also that of the threads that compute slots side by side.
void lower_threads(int64_t most) {
  if (most < at::get_num_threads()) at::set_num_threads(static_cast<int>(most));
}

const std::optional<int64_t>& threads_in_environment() {
  static const std::optional<int64_t> given = environment_number("TESSERA_CPU_THREADS", "threads");
  return given;
}

}  // namespace

void limit_threads() {
  thread_local bool is_limited = false;
  if (threads_in_environment() && !std::exchange(is_limited, true)) lower_threads(*threads_in_environment());
}

void share_cores() {
  if (threads_in_environment()) return limit_threads();
  static const bool once = (lower_threads(threads_of_this_process()), true);
  static_cast<void>(once);
}

}  // namespace tessera::detail
