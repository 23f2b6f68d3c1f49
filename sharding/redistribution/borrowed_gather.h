// BorrowedGather: a gathered weight whose memory is freed after its use, and filled again for its backward pass.
#pragma once

#include <functional>
#include <memory>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// The memory of one gathered weight, used by one operation. PyTorch's FSDP calls it reshard_after_forward; here the
// autograd graph itself says whether the backward pass reads the weight: if nothing holds it after the operation, it is
// not gathered a second time.
class BorrowedGather : public std::enable_shared_from_this<BorrowedGather> {
 public:
  // `again` gathers it for the backward pass.
  explicit BorrowedGather(std::function<Tensors()> again) : again_(std::move(again)) {}

  // `gathered` are the tensors on loan, held by nobody else yet. Whether the gather has a backward pass, which gives
  // them back: a frozen weight's has none, and once they are there again the graph alone holds their memory.
  void begin(const Tensors& gathered, bool comes_back);
  // Called after the operation on `gathered` that made `results`. A result that is a view of the weight ends the loan:
  // the memory stays with that result.
  void settle(const Tensors& gathered, const Tensors& results);
  // Frees the memory.
  void give_back();

 private:
  void take();

  std::function<Tensors()> again_;
  c10::SmallVector<c10::Storage, 1> memory_;  // empty: the loan has ended
  size_t holders_ = 0;
  bool there_ = true, comes_back_ = true;
};

}  // namespace tessera::detail
