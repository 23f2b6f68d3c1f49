// Operations as they are announced to who watches them, forward and backward, for traces, profiles and checks.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "sharding/accounting/finite_check.h"
#include "sharding/array/array_impl.h"

namespace tessera::detail {

using Clock = std::chrono::steady_clock;

// One call of an operation. It outlives the arrays: the backward pass of the call names it again.
struct OperationCall {
  const char* operation = "";
  CallerLine where;
  Text module;                     // the path of the module that computes; null outside of any
  Text parameter;                  // the path of the first operand that has one
  Text reason;                     // why operands had to be moved first
  std::vector<const Type*> given;  // the operands' types, and those to which they were moved
  std::vector<const Type*> read;
  std::vector<const Type*> results;
  bool recomputed = false;      // in the backward pass
  uint64_t first_function = 0;  // of LibTorch's graph: see next_function
  Clock::time_point began, ended;
};

// How a call would be planned if an operand lay otherwise.
class OtherPlans {
 public:
  struct Plan {
    const Type *read, *result;  // the operand after its move, and the first result
  };
  virtual ~OtherPlans() = default;
  virtual Plan with(size_t operand, const Type* type) const = 0;
};

// The arrays of a call, for the time of the announcement.
struct OperationArrays {
  std::span<const ArrayImpl*const> given, read;  // read: after their moves
  std::span<const Array> results = {};
  const OtherPlans* plans = nullptr;
};

// A part of the backward pass of a call: all of it, or one of LibTorch's functions that make it up.
struct BackwardCall {
  Tensors incoming, outgoing;  // gradients; undefined where there is none
  Clock::time_point began, ended;
};

// Called for the operations of its thread from its construction to its destruction, once each is computed (an operation
// that throws is not announced), and for the parts of their backward passes. What a program computes inside an
// operation (shard_map, a custom gradient) is announced before the operation itself. Creations are not announced, nor
// moves of operands, which are communications; moves that the program itself asks for (a placement, a constraint) are.
class OperationWatcher {
 public:
  OperationWatcher();
  virtual ~OperationWatcher();
  OperationWatcher(const OperationWatcher&) = delete;
  OperationWatcher& operator=(const OperationWatcher&) = delete;
  virtual void computed(const OperationCall&, const OperationArrays&) {}
  virtual void differentiated(const OperationCall&, const BackwardCall&) {}
  virtual void moved(const ArrayImpl&, const Array&) {}  // from, to; the same array if it lay there already
};

// Those of this thread. Inline, as checks_finite() is: every call of an operation asks.
inline std::vector<OperationWatcher*>& operation_watchers() {
  thread_local std::vector<OperationWatcher*> watchers;
  return watchers;
}
// Whether this thread has such a watcher, or checks that values are finite. Then who computes an operation begins a
// call and announces it once its results are there.
inline bool are_operations_watched() { return checks_finite() || !operation_watchers().empty(); }
std::shared_ptr<OperationCall> begin_call(const char* operation, const std::source_location& where, Text reason,
                                          const OperationArrays& arrays);
void announce(const std::shared_ptr<OperationCall>& call, const OperationArrays& arrays);
void announce_move(const ArrayImpl& from, const Array& to);

}  // namespace tessera::detail
