// What is checked between processes: they have the same meshes; by TESSERA_CHECK=1 the same moves and replicas, too.
#pragma once

#include <string>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// The mesh (data=4) over the devices 0, 1, 2, 3
std::string words_of(const MeshImpl* mesh);

// Called before processes move `x` together. All processes of the mesh call it. The first time for a mesh they compare
// that: its axes and devices. By TESSERA_CHECK=1 they always check that all are about to make the same move over the
// same mesh axes, of as many bytes, for the same operation and line. Error (inconsistent), the same on all, which shows
// what two processes have or do that differs.
void check_same_collective(const char* kind, const MeshImpl* mesh, AxisSet axes, const at::Tensor& x,
                           const Provenance& cause);

// Called before an array moves between processes, and for every parameter at its gradient. Checks that processes with
// the same block hold the same bits. All processes of the mesh call it. Error (inconsistent), the same on all, which
// names the first two processes that differ.
void check_replicas_across_processes(const Type* type, const Tensors& local, const Provenance& cause);

}  // namespace tessera::detail
