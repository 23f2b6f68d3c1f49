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
  Text module;                     // the path of the calling module; null outside modules
  Text parameter;                  // the path of the first operand with one
  Text reason;                     // why operands had to be resharded first
  std::vector<const Type*> given;  // the operands' types, before and after resharding
  std::vector<const Type*> read;
  std::vector<const Type*> results;
  bool recomputed = false;      // in the backward pass
  uint64_t first_function = 0;  // its number in the graph: see next_function
  Clock::time_point began, ended;
};

// Plans the same call for another sharding of one operand.
class OtherPlans {
 public:
  struct Plan {
    const Type *read, *result;  // the operand after resharding, and the first result
  };
  virtual ~OtherPlans() = default;
  virtual Plan with(size_t operand, const Type* type) const = 0;
};

// The arrays of a call, valid during the event.
struct OperationArrays {
  std::span<const ArrayImpl*const> given, read;  // read: after resharding
  std::span<const Array> results = {};
  const OtherPlans* plans = nullptr;
};

// The backward pass of a call: all of it, or one of its LibTorch functions.
struct BackwardCall {
  Tensors incoming, outgoing;  // gradients; undefined if there is none
  Clock::time_point began, ended;
};

// Returns whether operations of this thread are observed. If so, call begin_call before an operation, and notify when
// its results are complete.
bool begin_thread();  // called once per thread: starts the checks that the environment requests
inline bool are_operations_observed() {
  if (!is_observed(Events::operations | Events::new_thread)) [[likely]]
    return false;
  return !is_observed(Events::new_thread) || begin_thread();
}
std::shared_ptr<OperationCall> begin_call(const char* operation, const std::source_location& where, Text reason,
                                          const OperationArrays& arrays);
void notify(const std::shared_ptr<OperationCall>& call, const OperationArrays& arrays);

}  // namespace tessera::detail
