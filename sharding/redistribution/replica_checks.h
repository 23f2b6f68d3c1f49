// What TESSERA_CHECK=1 checks between processes: they make the same moves, and hold the same replicas.
#pragma once

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Called before processes move `x` together. Checks that all are about to make the same move over the same mesh axes,
// of as many bytes, for the same operation and line. All processes of the mesh call it. Error (inconsistent), the same
// on all, which shows what two processes do that differ.
void check_same_collective(const char* kind, const MeshImpl* mesh, AxisSet axes, const at::Tensor& x,
                           const Cause& cause);

// Called before an array moves between processes, and for every parameter at its gradient. Checks that processes with
// the same block hold the same bits. All processes of the mesh call it. Error (inconsistent), the same on all, which
// names the first two processes that differ.
void check_replicas_across_processes(const Type* type, const Tensors& local, const Cause& cause);

}  // namespace tessera::detail
