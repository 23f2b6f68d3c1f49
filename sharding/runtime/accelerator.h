// Accelerators: which device of LibTorch holds the memory of a mesh's devices in this process.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace tessera::detail {

// The device of LibTorch with this name (MeshOptions::device); if `name` is empty, the one that TESSERA_DEVICE names,
// else the CPU. The first call for CUDA loads LibTorch's CUDA library from the folder of LibTorch's other libraries, so
// that no program has to be linked with it. Errors: a name of no device (invalid_argument); a device that LibTorch does
// not have here (device_mismatch), with the reason.
c10::Device accelerator(const std::string& name);

}  // namespace tessera::detail
