// TESSERA_CHECK=1: what the library relies on, looked at while it runs.
#pragma once

#include "sharding/array_impl.h"
#include "sharding/rule.h"

namespace tessera::detail {

// Whether to look: the environment variable TESSERA_CHECK is 1, or a CheckScope says so. Where not, this is all it
// costs.
inline bool checks = false;

// For tests: looks, or does not, until it is destroyed.
class CheckScope {
 public:
  explicit CheckScope(bool on = true) : before_(checks) { checks = on; }
  ~CheckScope() { checks = before_; }
  CheckScope(const CheckScope&) = delete;
  CheckScope& operator=(const CheckScope&) = delete;

 private:
  bool before_;
};

// Every time an array is an operand or is read. The devices hold as many tensors as the type says, of its block's shape
// and element type, and those that the type calls equal are equal bit by bit: replicas that are stored apart are read
// once more, others share their memory. Error (inconsistent), which begins with `verb`.
void check_array(const ArrayImpl& a, const char* verb);

// Before the work of an operation: no operand is a pending sum where the operation takes values, since its parts would
// be read as one. Error (inconsistent).
void check_operands(const Operation& operation, const std::vector<const Type*>& operands);

// Before processes move `x` together: all are about to make the same move over the same axes, of as many bytes, for the
// same operation and line. All processes of the mesh call it. Error (inconsistent), the same on all, with the lines of
// the first two that differ.
void check_same_move(const char* kind, const MeshImpl* mesh, Mask axes, const at::Tensor& x, const Cause& cause);

// Before an array moves between processes, and of every parameter at its gradient: processes that hold the same block
// hold the same bits. All processes of the mesh call it. Error (inconsistent), the same on all, which names the first
// two that differ.
void check_replicas_across_processes(const Type* type, const Tensors& local, const Cause& cause);

}  // namespace tessera::detail
