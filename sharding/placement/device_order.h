// device_order: which device stands at each place of a grid, by the machines that the processes are on.
#pragma once

#include <cstdint>
#include <vector>

#include "sharding/placement/mesh.h"

namespace tessera::detail {

// The ids of a grid's devices, row-major. `machines` has the machine of each process, numbered from 0; process p has
// the ids from p * each on, of which the grid takes the first ones, as many of every process. Places are filled process
// by process, machine by machine, so that the axes named last lie within a machine; on one machine that is 0, 1, 2, ...
// of each process. An axis marked `across` goes round the machines: with m of them along it, coordinate i lies on the
// (i % m)th; several such axes share the machines, each with a part of its own above one.
//
// Errors (device_mismatch) of make_mesh: the processes do not divide the grid; the machines have unequally many
// processes, or do not divide the axes that are across them.
std::vector<int> device_order(const std::vector<MeshAxis>& axes, const std::vector<int>& machines, int64_t each);

}  // namespace tessera::detail
