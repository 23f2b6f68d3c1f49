// The one door to LibTorch's autograd: functions of many tensors at once, and gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <utility>
#include <vector>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// From the gradients of all outputs (none undefined) to those of all inputs (an undefined one is zero).
using Backward = std::function<Tensors(Tensors gradients)>;

// Makes `outputs` one function of `inputs` in the graph. The outputs are replaced by fresh variables over the same
// storage. Nothing happens unless gradients are recorded and an input wants one. Where the gradients are differentiated
// once more, `forward` is what `backward`, a linear function of them, does to theirs: from those of the inputs'
// gradients to those of the outputs'. Without it that is an Error (no_gradient).
void record_function(const char* name, const Tensors& inputs, Tensors& outputs, Backward backward,
                     Backward forward = nullptr);

// `hook` runs in the backward pass before each function that made some of these outputs, when its gradients are there
// and before it uses what it saved. Nothing happens where no function is recorded.
void before_backward(const Tensors& outputs, const std::function<void()>& hook);

// The gradients that come to these tensors, from however many uses, are added up in this element type and go on in it,
// if it is wider than the tensors' own.
void add_gradients_in(const Tensors& tensors, DType dtype);

// Whether an operation on this tensor is recorded now.
bool is_recorded(const at::Tensor& tensor);

// `hook` gets the gradient of a leaf in the backward pass, as soon as it is whole. It does as long as the object lives.
class GradientHooks {
 public:
  GradientHooks() = default;
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  void add(const at::Tensor& leaf, std::function<void(const at::Tensor& gradient)> hook);

 private:
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;
};

// d(sum of roots * seeds) / d leaves; undefined where there is no path. Frees the graph, unless the gradients are
// recorded themselves.
Tensors gradients(const Tensors& roots, const Tensors& seeds, const Tensors& leaves, bool recorded = false);

// A fresh variable over the same storage, outside every graph, that wants a gradient.
at::Tensor make_leaf(const at::Tensor& tensor);

}  // namespace tessera::detail
