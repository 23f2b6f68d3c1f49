// Engines move bytes between the devices of a group; the mesh says which one.
#pragma once

#include "sharding/redistribute.h"

namespace tessera::detail {

// What an engine is asked to do: one move of one group.
struct Exchange {
  Move move;
  int devices;  // of the group
  int dim, to_dim;
  const std::vector<int>* senders = nullptr;  // permute: the device whose tensor each gets; -1 for zeros
};

// in: the group's tensors, one per device, or a single one where all hold the same (or, of an unreduced array, where
// one holds the sum already). out: as many as the group's devices store apart, one or all.
void exchange_locally(const Exchange& exchange, const Tensors& in, Tensors& out);
// The same without data, on the one device that stands for all of an abstract mesh.
void exchange_abstractly(const Exchange& exchange, const Tensors& in, Tensors& out);

}  // namespace tessera::detail
