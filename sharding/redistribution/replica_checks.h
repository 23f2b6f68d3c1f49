// What TESSERA_CHECK=1 says of processes: they make the same moves, and hold the same replicas.
#pragma once

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Before processes move `x` together: all are about to make the same move over the same axes, of as many bytes, for the
// same operation and line. All processes of the mesh call it. Error (inconsistent), the same on all, with the lines of
// the first two that differ.
void check_same_collective(const char* kind, const MeshImpl* mesh, AxisSet axes, const at::Tensor& x,
                           const Cause& cause);

// Before an array moves between processes, and of every parameter at its gradient: processes that hold the same block
// hold the same bits. All processes of the mesh call it. Error (inconsistent), the same on all, which names the first
// two that differ.
void check_replicas_across_processes(const Type* type, const Tensors& local, const Cause& cause);

}  // namespace tessera::detail
