// ReshardAfterForward: frees the memory of a gathered weight after its use, and fills it again for its backward pass.
#pragma once

#include <functional>
#include <memory>

#include "sharding/redistribution/conversion_policy.h"

namespace tessera::detail {

// The memory of one gathered weight, used by one operation. The autograd graph itself shows whether the backward pass
// reads the weight: if nothing holds it after the operation, it is not gathered a second time.
class ReshardAfterForward : public BorrowedGather, public std::enable_shared_from_this<ReshardAfterForward> {
 public:
  // `again` gathers it for the backward pass.
  explicit ReshardAfterForward(std::function<Tensors()> again) : again_(std::move(again)) {}

  // `gathered` are the tensors, which nobody else holds yet. `comes_back`: whether the gather has a backward pass,
  // which calls release(). A frozen weight's gather has none: after regather() the graph alone holds its memory.
  void begin(const Tensors& gathered, bool comes_back);
  // A result that is a view of the weight keeps the memory.
  void settle(const Tensors& gathered, const Tensors& results) override;
  // Frees the memory.
  void release();

 private:
  void regather();

  std::function<Tensors()> again_;
  c10::SmallVector<c10::Storage, 1> memory_;  // empty: the loan has ended
  size_t holders_ = 0;
  bool there_ = true, comes_back_ = true;
};

}  // namespace tessera::detail
