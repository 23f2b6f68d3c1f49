// The only use of LibTorch's autograd: functions of many tensors at once, hooks and gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Takes the gradients of all outputs (none undefined), returns those of all inputs (undefined: zero).
using Backward = std::function<Tensors(Tensors gradients)>;

// Records `outputs` in the autograd graph as one function of `inputs`. The outputs are replaced by fresh variables over
// the same storage. Does nothing unless gradients are recorded and an input requires one. For second derivatives
// `backward` must be linear, and `forward` is its own backward pass: from the gradients of the inputs' gradients to
// those of the outputs' gradients. Without `forward` a second derivative is an Error (no_gradient).
void record_function(const char* name, const Tensors& inputs, Tensors& outputs, Backward backward,
                     Backward forward = nullptr);

// `hook` runs in the backward pass just before each function that made some of these outputs: when the function's
// incoming gradients are there, and before it reads its saved tensors. Does nothing where no function is recorded.
void before_backward(const Tensors& outputs, const std::function<void()>& hook);

// The number of the next function that this thread records. Later ones have higher numbers, and of those whose
// gradients are there, the backward pass runs the one with the highest.
uint64_t next_function();

struct BackwardObserver {
  std::function<void()> before;
  std::function<void(const Tensors& incoming, const Tensors& outgoing)> after;  // gradients, undefined where none is
};
// Calls `observer` around each function recorded since number `first` that these outputs come from, when it runs in the
// backward pass.
void observe_backward(const Tensors& outputs, uint64_t first, const BackwardObserver& observer);

// The gradients of these tensors, from all their uses, are added up in this element type and passed on in it, if it is
// wider than the tensors' own.
void add_gradients_in(const Tensors& tensors, DType dtype);

// Whether an operation on this tensor is recorded now.
bool is_recorded(const at::Tensor& tensor);

// Calls `hook` in the backward pass with the gradient of a leaf, as soon as it is complete, until this is destroyed.
class GradientHooks {
 public:
  GradientHooks() = default;
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  void add(const at::Tensor& leaf, std::function<void(const at::Tensor& gradient)> hook);

 private:
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
};

// d(sum of roots * seeds) / d leaves; undefined where there is no path. Frees the graph, unless `recorded`, which gives
// the gradients a graph of their own.
Tensors gradients(const Tensors& roots, const Tensors& seeds, const Tensors& leaves, bool recorded = false);

// A fresh variable over the same storage, outside every graph, that requires a gradient.
at::Tensor make_leaf(const at::Tensor& tensor);
// The same for tensors of one array. The backward pass goes to all of them at once, where each by itself would cost it
// as much as a function does.
Tensors make_leaves(const Tensors& tensors);
bool is_leaf(const at::Tensor& tensor);

// Stand-ins for `tensors`, over the same storage and version: what is computed from them is a graph of its own, which
// no other thread need know of. It holds no storage but what its operations save.
Tensors stand_ins(const Tensors& tensors);

// The backward pass of `outputs`, which were computed from these stand-ins alone: from the outputs' gradients
// (undefined: zero) to those of the stand-ins. It runs on the thread that calls it, without LibTorch's engine, and is
// meant for a few operations: it looks through all of them for each.
Backward backward_of(const Tensors& stand_ins, const Tensors& outputs);

}  // namespace tessera::detail
