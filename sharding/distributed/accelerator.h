// Accelerators: whose memory the devices of a mesh lie in, and which one of a machine's is this process's.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace tessera::detail {

// The device of LibTorch that MeshOptions::device names; empty: that of TESSERA_DEVICE, else the CPU. Of CUDA,
// LibTorch's own library is loaded at the first call, from where the rest of LibTorch lies: no program has to be linked
// with it. Errors: no name of a device (bad_argument), one that LibTorch does not have here (device_mismatch), with the
// reason.
c10::Device accelerator(const std::string& name);

}  // namespace tessera::detail
