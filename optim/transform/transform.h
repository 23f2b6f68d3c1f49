// Transforms: Optax's pure functions from gradients to updates, with a state, for any tree of arrays.
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

// A transform is a plain struct. Its fields are its settings. It has two pure functions for every tree type Model:
//   auto init(const Model& params) const -> State;
//   auto update(const Model& grads, State state, const Model& params) const -> std::pair<Model, State>;
// Most of the library's transforms derive `update` from their `run` (optim/transform/update_step.h).
//
// apply_updates adds the result of `update` to the parameters: it includes the sign and the learning rate. A State is
// also a tree, so that placement_table, filter_shard and checkpoints work on it. Its counts are plain integers; its
// arrays are sharded as their parameters. Arithmetic on arrays keeps shardings.
//
// Updates are constants: arrays that value_and_grad records are rejected (no_gradient). Arrays that are absent from the
// gradients (integers, or filtered out) are not changed. To write a transform that applies one formula to every array,
// see optim/formulas/per_array.h.
template <class T, class Model>
concept TransformOf = requires(const T& transform, const Model& model) {
  requires std::same_as<decltype(transform.update(model, transform.init(model), model)),
                        std::pair<Model, decltype(transform.init(model))>>;
};

struct EmptyState {};  // the state of a transform without one

// Optional arguments of an update, in addition to the gradients: optimizer.update(model, grads, {.value = loss}). An
// `update` that reads them takes a fourth argument, `const ExtraArgs& extra`; transforms that contain other transforms
// pass them on.
struct ExtraArgs {
  std::optional<double> value = std::nullopt;  // the loss
};

// Selects the parameters that a setting applies to, by path ("layers.2.mlp.up.kernel") and value. An empty mask selects
// all.
using Mask = nn::Filter;

// Selects the parameters with two dimensions or more, so neither biases nor the scales of norms: the usual mask of
// weight decay.
inline bool matrices_only(const std::string&, const Array& parameter) { return parameter.ndim() > 1; }

// Returns zeros sharded like `parameter`, for states. Their element type is `dtype` if given. Otherwise it is the
// parameter's, or float32 for bfloat16 and float16, so that small updates are not lost. Absent for parameters that are
// not trained: integers and absent arrays.
Array zeros_for(const Array& parameter, std::optional<DType> dtype = std::nullopt);

namespace detail {
using Arrays = std::vector<Array*>;

// Replace the arrays of the first tree, which the caller has copied.
void make_zeros(const nn::Leaves& state);
void apply_updates(const nn::Leaves& params, const nn::Leaves& updates);
}  // namespace detail

// Returns params + updates, in the parameters' own element types and shardings. A parameter whose update is absent is
// unchanged. Errors (invalid_argument, shape_mismatch): updates of another tree.
template <class Model>
Model apply_updates(Model params, const Model& updates, std::source_location where = std::source_location::current()) {
  const CallerScope caller(where);
  detail::apply_updates(nn::leaves(params), nn::leaves(updates));
  return params;
}

// Returns zeros_for every parameter of a tree. Arrays in Buffers are absent, because they are not trained.
template <class Model>
Model zeros_like(Model params) {
  detail::make_zeros(nn::leaves(params));
  return params;
}

}  // namespace tessera::optim
