// StagingPool: small tensors of an accelerator that stay from step to step, so that a step allocates none.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <deque>
#include <mutex>

namespace tessera::detail {

// Of one place in the program, which makes such tensors at each step. Never destroy one that is static: its tensors
// would outlive their device.
class StagingPool {
 public:
  explicit StagingPool(size_t most = 8) : most_(most) {}

  // A tensor whose values are anything: one of before that nobody else holds any more, nor any view of it, and whose
  // last use was queued on the stream of this thread; else a new one, which is kept if it is small. What is recorded as
  // a graph gets a new one, of the graph's memory, and so does who asks for one of the CPU.
  at::Tensor get(at::IntArrayRef shape, const at::TensorOptions& options);

 private:
  struct Kept {
    at::Tensor tensor;
    c10::Stream stream;
  };
  size_t most_;
  std::mutex mutex_;
  std::deque<Kept> kept_;
};

}  // namespace tessera::detail
