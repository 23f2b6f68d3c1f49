// LibTorch's hooks for CUDA, implemented for the pretended GPU.
#include <ATen/detail/CUDAHooksInterface.h>

#include "tests/device/pretended_memory.h"

namespace at {

// LibTorch's registry creates the hooks by this name.
struct CUDAHooks : CUDAHooksInterface {
  explicit CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasCUDA() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(tessera::testing::device_count()); }
  DeviceIndex current_device() const override { return getCurrentDevice(); }
  DeviceIndex getCurrentDevice() const override { return tessera::testing::current_device().index(); }
};

REGISTER_CUDA_HOOKS(CUDAHooks)

}  // namespace at
