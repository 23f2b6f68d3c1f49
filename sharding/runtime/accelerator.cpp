// Names of devices read, and LibTorch's library for CUDA loaded.
#include "sharding/runtime/accelerator.h"

#include <c10/core/Allocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "sharding/base/fail.h"
#include "sharding/runtime/control_plane.h"

namespace tessera::detail {
namespace {

c10::Device parsed(const std::string& name) try { return c10::Device(name); } catch (const c10::Error&) {
  fail(ErrorKind::invalid_argument, "make_mesh",
       "device \"{}\" given, which is no device of LibTorch's. Give \"cpu\", \"cuda\" or \"cuda:0\".", name);
}

[[noreturn]] void refuse(const std::string& name, const std::string& why) {
  fail(ErrorKind::device_mismatch, "make_mesh", "device \"{}\": {}", name, why);
}

// Beside the library whose class this object has. It registers what it has as it is loaded, and stays.
std::string load_cuda() {
  Dl_info c10{};
  const void* const* allocator = reinterpret_cast<const void* const*>(c10::GetAllocator(c10::kCPU));
  const bool is_known = dladdr(*allocator, &c10) && std::filesystem::path(c10.dli_fname).has_parent_path();
  if (!is_known) return "LibTorch is linked statically";
  const auto path = std::filesystem::path(c10.dli_fname).parent_path() / "libtorch_cuda.so";
  return dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) ? "" : dlerror();
}

// Why there are none: of GPUs most often because nothing drives them.
std::string why_none(c10::Device device) {
  if (device.is_cuda() && !dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
    return "this machine has no driver for GPUs (libcuda.so.1).";
  return "there is none that this process can see.";
}

// How many of them there are.
int count_of(c10::Device device, const std::string& name) {
  std::string why;
  if (device.is_cuda() && !c10::impl::hasDeviceGuardImpl(device.type())) why = load_cuda();
  if (!c10::impl::hasDeviceGuardImpl(device.type()))
    refuse(name, fmt::format("this LibTorch has none of that kind{}. Use one that was built for it.",
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
  const int index = device.has_index() || count != 1 ? number : 0;  // its launcher may have given it one
  if (index < count) return {device.type(), static_cast<c10::DeviceIndex>(index)};
  refuse(name, count == 0 ? why_none(device)
                          : fmt::format("number {} is wanted, this process sees {}.{}", index, count,
                                        device.has_index() ? "" : " Start one process per device."));
}

}  // namespace tessera::detail
