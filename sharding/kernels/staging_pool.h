// StagingPool: reuses small tensors on an accelerator, so that a step allocates none.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <deque>
#include <mutex>

namespace tessera::detail {

// The pool of one place in the program that makes such tensors at each step. Never destroy a static one: its tensors
// would outlive their device.
class StagingPool {
 public:
  explicit StagingPool(size_t most = 8) : most_(most) {}

  // Returns a tensor with arbitrary values: a pooled one, if nothing else refers to it or a view of it and its last use
  // was queued on this thread's stream. Otherwise returns a new one, which is pooled if it is at most 1 MiB. Inside a
  // recording, returns a new one from the graph's memory. A CPU tensor is always new.
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
