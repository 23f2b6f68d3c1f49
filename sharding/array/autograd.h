// Wraps LibTorch's autograd: functions of many tensors, hooks and gradients. No other file uses its engine or nodes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// A backward function: takes the outputs' gradients (all defined), and returns the inputs' gradients (undefined means
// zero).
using Backward = std::function<Tensors(Tensors gradients)>;

// Records `outputs` in the autograd graph as one function of `inputs`, and replaces them by new variables over the same
// storage. Does nothing unless gradients are recorded and an input requires one.
// For second derivatives, `backward` must be linear, and `forward` is the backward pass of `backward`: it maps the
// gradients of the inputs' gradients to those of the outputs' gradients. Without `forward`, a second derivative throws
// no_gradient.
void record_function(const char* name, const Tensors& inputs, Tensors& outputs, Backward backward,
                     Backward forward = nullptr);

// A backward function that also reads the inputs as they were.
using InputsBackward = std::function<Tensors(const Tensors& gradients, const Tensors& inputs)>;
// As record_function, for a backward function from outside the library. It receives the `saved` tensors, which LibTorch
// keeps and checks for changes in place. For second derivatives, LibTorch records the backward function itself. A
// second derivative throws no_gradient if it did not record the work, or if `differentiable` is false.
void record_custom(const char* name, const Tensors& inputs, const Tensors& saved, Tensors& outputs,
                   InputsBackward backward, bool differentiable);

// Runs `hook` in the backward pass just before each function that made some of these outputs: after the function's
// incoming gradients are complete, and before it reads its saved tensors. Does nothing for outputs without a recorded
// function.
void before_backward(const Tensors& outputs, const std::function<void()>& hook);

// Returns the number of the next function that this thread records. Numbers increase, and the backward pass runs the
// ready function with the highest number first.
uint64_t next_function();

struct BackwardObserver {
  std::function<void()> before;
  std::function<void(const Tensors& incoming, const Tensors& outgoing)> after;  // gradients; undefined if there is none
};
// Calls `observer` in the backward pass around each function with number `first` or higher from which these outputs are
// computed.
void observe_backward(const Tensors& outputs, uint64_t first, const BackwardObserver& observer);

// Sums the gradients of these tensors from all their uses in this element type, and passes them on in it. Does nothing
// for tensors whose own type is at least as wide.
void add_gradients_in(const Tensors& tensors, DType dtype);

// Returns whether an operation on this tensor is recorded now.
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

// Returns d(sum of roots * seeds) / d leaves; undefined for a leaf without a path. Frees the graph, unless `recorded`
// is set: then the gradients have their own graph.
Tensors gradients(const Tensors& roots, const Tensors& seeds, const Tensors& leaves, bool recorded = false);

// Returns a new variable over the same storage, outside every graph, that requires a gradient.
at::Tensor make_leaf(const at::Tensor& tensor);
// Returns such variables for the tensors of one array. They share one node in the backward pass, because separate
// leaves would cost as much as one function each.
Tensors make_leaves(const Tensors& tensors);
bool is_leaf(const at::Tensor& tensor);

// Returns proxies of `tensors` over the same storage and version. Operations on the proxies record a separate graph,
// which holds no storage except what its operations save.
Tensors make_proxies(const Tensors& tensors);

// Returns the backward pass of `outputs`, which must be computed from these proxies alone. It maps gradients of the
// outputs (undefined means zero) to gradients of the proxies, on the calling thread.
Backward backward_of(const Tensors& proxies, const Tensors& outputs);

}  // namespace tessera::detail
