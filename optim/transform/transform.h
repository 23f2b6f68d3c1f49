// Transforms: Optax's pure functions from gradients to updates, with a state, over any tree of arrays.
#pragma once

#include <concepts>
#include <optional>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/array/array.h"
#include "sharding/base/caller.h"

namespace tessera::optim {

// A Transform is a plain struct: its fields are its settings, and for every type Model of trees it has
//   auto init(const Model& params) const -> State;
//   auto update(const Model& grads, State state, const Model& params) const -> std::pair<Model, State>;
// Both are pure. apply_updates adds what `update` returns to the parameters: the sign and the learning rate are
// included in it. A State is a tree as well (counts are plain integers, arrays are placed as their parameter), so that
// placement_table, filter_shard and checkpoints see it. Arithmetic on arrays keeps placements by itself.
// Updates are constants: inside a function that value_and_grad records, its arrays are refused (no_gradient).
// Arrays that are absent from the gradients (integers, or filtered out) are not changed. To write a transform that
// treats every array by one formula, see optim/formulas/per_array.h.
template <class T, class Model>
concept TransformOf = requires(const T& transform, const Model& model) {
  requires std::same_as<decltype(transform.update(model, transform.init(model), model)),
                        std::pair<Model, decltype(transform.init(model))>>;
};

struct EmptyState {};  // of a transform that remembers nothing

// What an update may depend on beside the gradients: optimizer.update(model, grads, {.value = loss}). A transform that
// reads it takes a fourth argument, `const ExtraArgs& extra`; transforms that hold other transforms pass it on.
struct ExtraArgs {
  std::optional<double> value = std::nullopt;  // the loss
};

// Which parameters a setting applies to, by path ("layers.2.mlp.up.kernel") and value; an empty mask means all.
using Mask = nn::Filter;

// The usual mask of weight decay: all parameters with two dims or more, so neither biases nor the scales of norms.
inline bool matrices_only(const std::string&, const Array& parameter) { return parameter.ndim() > 1; }

// Zeros placed like `parameter`, for states: in float32 for bfloat16 and float16, so that small updates are not lost,
// or in the element type given. Absent for parameters that are not trained: integers and absent arrays.
Array zeros_for(const Array& parameter, std::optional<DType> dtype = std::nullopt);

namespace detail {
using Arrays = std::vector<Array*>;

// These replace the arrays of the first tree, which the caller has copied.
void make_zeros(const nn::Leaves& state);
void apply_updates(const nn::Leaves& params, const nn::Leaves& updates);
}  // namespace detail

// params + updates, in the parameters' own element types and placements; a parameter whose update is absent stays.
// Errors: updates of another tree (invalid_argument, shape_mismatch).
template <class Model>
Model apply_updates(Model params, const Model& updates, std::source_location where = std::source_location::current()) {
  const CallerScope caller(where);
  detail::apply_updates(nn::leaves(params), nn::leaves(updates));
  return params;
}

// A tree of zeros_for all parameters; those of Buffers are absent, since they are not trained.
template <class Model>
Model zeros_like(Model params) {
  detail::make_zeros(nn::leaves(params));
  return params;
}

}  // namespace tessera::optim
