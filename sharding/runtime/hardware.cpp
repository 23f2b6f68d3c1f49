// Parses names of devices, loads LibTorch's library for CUDA, and limits the number of CPU threads.
#include "sharding/runtime/hardware.h"

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "sharding/base/environment.h"
#include "sharding/base/fail.h"
#include "sharding/runtime/control_plane.h"

namespace tessera::detail {
namespace {

c10::Device parsed(const std::string& name) try { return c10::Device(name); } catch (const c10::Error&) {
  fail(ErrorKind::invalid_argument, "make_mesh",
       "device \"{}\" given, which is not a device of LibTorch. Give \"cpu\", \"cuda\" or \"cuda:0\".", name);
}

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  fail(ErrorKind::device_mismatch, "make_mesh", "device \"{}\": {}", name, why);
}

// Loads CUDA from the folder of libc10. It registers its devices and stays loaded. Returns the reason of a failure,
// else "". The default CPU allocator is a static object of libc10, also where the program uses another allocator or has
// a copy of the address of a function. A relative path could load a library from the working directory.
std::string load_cuda() {
  Dl_info c10{};
  if (!dladdr(c10::GetDefaultCPUAllocator(), &c10) || !std::filesystem::path(c10.dli_fname).is_absolute())
    return "LibTorch is linked statically or was loaded by a relative path";
  const auto path = std::filesystem::path(c10.dli_fname).parent_path() / "libtorch_cuda.so";
  return dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) ? "" : dlerror();
}

// Returns why there are no such devices. For GPUs, a missing driver is the most common reason.
std::string why_none(c10::Device device) {
  if (device.is_cuda() && !dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
    return "this machine has no driver for GPUs (libcuda.so.1).";
  return "this process sees no such device.";
}

// Returns the number of devices of this kind.
int count_of(c10::Device device, const std::string& name) {
  std::string why;
  if (device.is_cuda() && !c10::impl::hasDeviceGuardImpl(device.type())) why = load_cuda();
  if (!c10::impl::hasDeviceGuardImpl(device.type()))
    refuse(name, fmt::format("this LibTorch does not support such devices{}. Use one that was built for it.",
                             why.empty() ? "" : fmt::format(" ({})", why)));
  return c10::impl::getDeviceGuardImpl(device.type())->deviceCount();
}

}  // namespace

c10::Device accelerator(const std::string& given) {
  const char* said = std::getenv("TESSERA_DEVICE");
  const std::string name = !given.empty() ? given : said && *said ? said : "cpu";
  if (name == "cpu") return c10::kCPU;
  const c10::Device device = parsed(name);
  if (device.is_cpu()) return c10::kCPU;
  if (device.is_meta()) refuse(name, "holds no values. Make an abstract mesh: {.abstract = true}.");
  const int count = count_of(device, name);
  const int number = device.has_index() ? device.index() : world().on_machine;
  const int index = device.has_index() || count != 1 ? number : 0;  // the launcher may have assigned it one device
  if (index < count) return {device.type(), static_cast<c10::DeviceIndex>(index)};
  refuse(name, count == 0 ? why_none(device)
                          : fmt::format("number {} is requested, this process sees {}.{}", index, count,
                                        device.has_index() ? "" : " Start one process per device."));
}

// ---- threads

namespace {

// Returns the number of threads of this process. If LibTorch uses all cores by default, the processes of a machine
// share them. With more threads than cores, busy-waiting threads would delay each other.
int64_t threads_of_this_process() {
  const int64_t now = at::get_num_threads(), cores = sysconf(_SC_NPROCESSORS_ONLN);
  const std::vector<int>& machines = world().machines;
  const int64_t here = std::count(machines.begin(), machines.end(), machines[world().index]);
  return now == cores && !std::getenv("OMP_NUM_THREADS") ? std::max<int64_t>(1, cores / here) : now;
}

// Limits LibTorch's threads. The pool of parallel_for has as many threads as LibTorch.
void lower_threads(int64_t most) {
  if (most < at::get_num_threads()) at::set_num_threads(static_cast<int>(most));
}

const std::optional<int64_t>& threads_in_environment() {
  static const std::optional<int64_t> given = environment_number("TESSERA_CPU_THREADS", "threads");
  return given;
}

}  // namespace

CapabilityQuery& compute_capability_of(c10::DeviceType kind) {
  static std::array<CapabilityQuery, c10::COMPILE_TIME_MAX_DEVICE_TYPES> all{};
  return all[static_cast<size_t>(kind)];
}

int compute_capability(c10::Device device) {
  const CapabilityQuery query = compute_capability_of(device.type());
  return query ? query(device.index()) : 0;
}

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
