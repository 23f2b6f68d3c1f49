// ConversionPolicy: what a tape decides when a weight is converted. sharding/autodiff/weights/ implements it.
#pragma once

#include <memory>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

struct Resharding;

// The memory of a gathered weight (Details::borrowed), which is freed after the operation that uses it.
class BorrowedGather {
 public:
  virtual ~BorrowedGather() = default;
  // Frees the memory after the operation on `gathered` that made `results`.
  virtual void settle(const Tensors& gathered, const Tensors& results) = 0;
};

// A conversion that a policy carries out, in place of the Resharding alone.
class PolicyConversion {
 public:
  virtual ~PolicyConversion() = default;
  // Returns the tensors of the result, from those of the array where the conversion starts.
  virtual Tensors forward(const Tensors& start) = 0;
  // Returns the gradients of `start`; undefined tensors if the tape gets them later, outside of the graph.
  virtual Tensors backward(Tensors gradients) = 0;
  // Returns whether the gradients reach the tape outside of the graph.
  virtual bool has_late_gradients() const = 0;
  // Returns the owner of the memory of `result`, if that is freed after its use; else null, and the result is kept for
  // other uses. Called when the conversion has been recorded, if `recorded`, or when a graph may keep the result.
  virtual std::shared_ptr<BorrowedGather> borrow(const Tensors& start, const Tensors& result, bool recorded) = 0;
};

class ConversionPolicy {
 public:
  virtual ~ConversionPolicy() = default;
  // Returns the conversion of `a` by `resharding`, which starts from `start`: `a` itself or a leaf of a parameter. Null
  // if the policy leaves it to the Resharding.
  virtual std::shared_ptr<PolicyConversion> take(const ArrayPtr& a, const ArrayPtr& start,
                                                 const std::shared_ptr<const Resharding>& resharding) = 0;
};

// The policy of this thread's innermost open tape; null outside, and in a nested tape. The tape sets it.
inline ConversionPolicy*& conversion_policy() {
  thread_local ConversionPolicy* policy = nullptr;
  return policy;
}

}  // namespace tessera::detail
