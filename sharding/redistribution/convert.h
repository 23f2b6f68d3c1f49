// convert: an array in another sharding, cached from an earlier use where possible.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Returns `a` as `to` if that exists already: `a` itself (`self`), a leaf, or a cached conversion; else null.
const ArrayPtr* cached_conversion(const ArrayImpl& a, const ArrayPtr& self, const Type* to, bool recorded);

// Converts `a` to `to`, recorded for gradients if they are wanted. Shapes and element types must be equal. The tape
// decides whether a weight that is gathered for a gradient is freed after its use. `to` may be on another stage of the
// array's mesh (stages.h), or on the whole mesh.
ArrayPtr convert(ArrayImpl& a, const ArrayPtr& self, const Type* to, const Provenance& cause);

// Returns the arrays as an operation on all of them reads them: moved to one stage if they are on several.
std::vector<Array> on_one_stage(std::vector<Array> operands, const Provenance& cause);

// ---- conversions of weights, which sharding/autodiff/weights/ controls

struct Resharding;

// The memory of one gathered weight that one operation uses. The autograd graph shows whether the backward pass reads
// the weight: if nothing holds it after the operation, it is not gathered a second time.
class ReshardAfterForward : public std::enable_shared_from_this<ReshardAfterForward> {
 public:
  // Makes the owner of a gathered weight's memory.
  // - `gathered`: the tensors, which nothing else holds yet.
  // - `again`: gathers them for the backward pass.
  // - `recorded`: whether the gather has a backward pass, which calls release(). The gather of a frozen weight has
  //   none: after regather() only the graph holds its memory.
  ReshardAfterForward(const Tensors& gathered, bool recorded, std::function<Tensors()> again);
  // Frees the memory after the operation on `gathered` that made `results`, unless a result is a view of the weight.
  void free_after_use(const Tensors& gathered, const Tensors& results);
  // Frees the memory.
  void release();

 private:
  void regather();

  std::function<Tensors()> again_;
  c10::SmallVector<c10::Storage, 1> memory_;  // empty if the memory must no longer be freed
  const size_t holders_;                      // references to the tensors and their memory before the operation
  const bool recorded_;
  bool is_gathered_ = true;
};

// A conversion that a policy carries out instead of the Resharding.
class PolicyConversion {
 public:
  virtual ~PolicyConversion() = default;
  // Returns the result's tensors; `start` are the tensors of the array that is converted.
  virtual Tensors forward(const Tensors& start) = 0;
  // Returns the gradients of `start`; undefined tensors if the tape gets them later, outside of the graph.
  virtual Tensors backward(Tensors gradients) = 0;
  // Returns whether the gradients reach the tape outside of the graph.
  virtual bool has_late_gradients() const = 0;
  // Returns the owner of the memory of `result` if it is freed after its use; null if the result is cached for other
  // uses. Called after the conversion was recorded (`recorded`), or when a graph may keep the result.
  virtual std::shared_ptr<ReshardAfterForward> reshard_after_forward(const Tensors& start, const Tensors& result,
                                                                bool recorded) = 0;
};

class ConversionPolicy {
 public:
  virtual ~ConversionPolicy() = default;
  // Returns the conversion of `a` by `resharding`, starting at `start`: `a` itself or a leaf of a parameter. Null if
  // the policy leaves the conversion to the Resharding.
  virtual std::shared_ptr<PolicyConversion> take(const ArrayPtr& a, const ArrayPtr& start,
                                                 const std::shared_ptr<const Resharding>& resharding) = 0;
};

// The policy of this thread's innermost open tape; null without a tape and in a nested tape. The tape sets it.
inline ConversionPolicy*& conversion_policy() {
  thread_local ConversionPolicy* policy = nullptr;
  return policy;
}

}  // namespace tessera::detail
