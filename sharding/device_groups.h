// What processes do together with tensors that lie in the memory of accelerators.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "sharding/process_group.h"

namespace tessera::detail {

// The group of these processes for tensors on this device, with the verbs and the bits of process_group, which it is
// where the device is the CPU. Else it is the one of the engine that said it is for this kind of device; without such
// an engine the tensors go through the memory of the host.
ProcessGroup& process_group(const std::vector<int>& processes, c10::Device device);

// An engine for a kind of device, which all programs have that are linked with it. `make` is called at the same place
// by all processes of the program, each with the list that it is in and the device that it uses. False where there is
// one already.
using MakeGroup = ProcessGroup& (*)(const std::vector<int>& processes, c10::Device device);
bool use_engine(c10::DeviceType kind, MakeGroup make);

// Makes the groups of this mesh, whose processes all call it at the same place.
void make_groups(const MeshImpl* mesh);

}  // namespace tessera::detail
