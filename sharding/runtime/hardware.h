// The hardware of this process: the device of its arrays, and the number of its CPU threads.
#pragma once

#include <c10/core/Device.h>

#include <string>

namespace tessera::detail {

// Returns the LibTorch device with this name (MeshOptions::device). If `name` is empty, returns the device that
// TESSERA_DEVICE names, else the CPU. The first call for CUDA loads LibTorch's CUDA library from the folder of
// LibTorch's other libraries, so that programs need not link it.
// Errors
//   invalid_argument: a name that LibTorch does not recognize as a device
//   device_mismatch: a device that LibTorch does not have here; the message has the reason
c10::Device accelerator(const std::string& name);

// Returns 10 times the major plus the minor version of a GPU's compute capability (90: H100), and 0 for other devices.
int compute_capability(c10::Device device);
// The query for one kind of device; the engine for GPUs registers CUDA's. Null: the kind has no capability.
using CapabilityQuery = int (*)(c10::DeviceIndex device);
CapabilityQuery& compute_capability_of(c10::DeviceType kind);

// Limits LibTorch's threads for this thread, once, to TESSERA_CPU_THREADS if it is set. parallel_for uses as many.
// Throws invalid_argument if the variable is not an integer of at least 1.
void limit_threads();
// Limits LibTorch's threads like limit_threads. If the variable is not set, limits them to this process's share of the
// machine's cores, once per program.
void share_cores();

}  // namespace tessera::detail
