// From this process's rows to one global array over the mesh.
#pragma once

#include "nn/tree.h"
#include "sharding/device_put.h"
#include "sharding/layout.h"

namespace tessera::data {

// The same batch with global arrays: each array of this process's rows becomes one array over the layout's mesh,
// placed by the names of its dims and the layout's rules for activations; an array without names is replicated. With
// one process the rows are all rows.
// Errors, with the field's path: as Layout::resolve.
template <class Batch>
Batch from_process_local(const Batch& local, const Layout& layout) {
  Batch global = local;
  for (const nn::Leaf& leaf : nn::leaves(global)) {
    if (leaf.value->is_absent()) continue;
    const PartitionSpec spec =
        leaf.axes ? layout.activations().resolve(*leaf.axes, leaf.value->shape(), "from_process_local", leaf.path).spec
                  : PartitionSpec();
    *leaf.value = place_batch(*leaf.value, layout, spec);
  }
  return global;
}

}  // namespace tessera::data
