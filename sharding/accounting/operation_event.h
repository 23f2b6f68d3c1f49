// Events of operations, forward and backward, for traces, profiles and checks.
#pragma once

#include <span>
#include <vector>

#include "sharding/array/array_impl.h"
#include "sharding/events/observer.h"

namespace tessera::detail {

// One call of an operation. It outlives the arrays: events of its backward pass refer to it.
struct OperationCall {
  const char* operation = "";
  CallerLine where;
  Text module;                     // the path of the module that computes; null outside of modules
  Text parameter;                  // the path of the first operand that has one
  Text reason;                     // why operands had to be moved first
  std::vector<const Type*> given;  // the operands' types, and those to which they were moved
  std::vector<const Type*> read;
  std::vector<const Type*> results;
  bool recomputed = false;      // in the backward pass
  uint64_t first_function = 0;  // in LibTorch's graph: see next_function
  Clock::time_point began, ended;
};

// Plans of the same call for other placements of one operand.
class OtherPlans {
 public:
  struct Plan {
    const Type *read, *result;  // the operand after its move, and the first result
  };
  virtual ~OtherPlans() = default;
  virtual Plan with(size_t operand, const Type* type) const = 0;
};

// The arrays of a call, valid during the event.
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

// Returns whether operations of this thread are observed. Then the code that computes an operation calls begin_call,
// and notify when the results are there.
bool begin_thread();  // called once per thread: starts what the environment requests
inline bool are_operations_observed() {
  if (!is_observed(Events::operations | Events::new_thread)) [[likely]]
    return false;
  return !is_observed(Events::new_thread) || begin_thread();
}
std::shared_ptr<OperationCall> begin_call(const char* operation, const std::source_location& where, Text reason,
                                          const OperationArrays& arrays);
void notify(const std::shared_ptr<OperationCall>& call, const OperationArrays& arrays);

}  // namespace tessera::detail
