// Transforms: Optax's pure algebra. What turns gradients into updates, with its state, over any tree of arrays.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <source_location>
#include <string>
#include <tuple>
#include <utility>

#include "nn/tree.h"
#include "optim/schedule.h"
#include "sharding/array.h"
#include "sharding/caller.h"

namespace tessera::optim {

// A Transform is a plain struct: its fields are its settings, and for every type Model of trees it has
//   auto init(const Model& params) const -> State;
//   auto update(const Model& grads, State state, const Model& params) const -> std::pair<Model, State>;
// Both are pure. `update` gives what apply_updates adds to the parameters: signs and learning rate are inside. State is
// a tree as well (counts are plain integers, arrays lie where their parameter lies), so that placement_table,
// filter_shard and checkpoints see it. Arithmetic with the operators of arrays keeps placements by itself.
// Arrays that are absent from the gradients (integers, or filtered out) are left alone.
template <class T, class Model>
concept TransformOf = requires(const T& transform, const Model& model) {
  requires std::same_as<decltype(transform.update(model, transform.init(model), model)),
                        std::pair<Model, decltype(transform.init(model))>>;
};

struct EmptyState {};

// Which parameters something applies to, by path ("layers.2.mlp.up.kernel") and value; an empty one means all.
using Mask = nn::Filter;

// The usual mask of weight decay: all parameters with two dims or more, so neither biases nor the scales of norms.
inline bool matrices_only(const std::string&, const Array& parameter) { return parameter.ndim() > 1; }

namespace detail {
// Adam's settings, and the number of the update, from 1.
struct AdamStep {
  double b1, b2, eps, eps_root;
  int64_t count;
};

// These replace the arrays of `updates`, or of a state, in trees that the caller has copied.
void make_zeros(const nn::Leaves& state);
void scale(const nn::Leaves& updates, double factor);
void add_decayed_weights(const nn::Leaves& updates, const nn::Leaves& params, double weight_decay, const Mask& mask);
double clip_by_global_norm(const nn::Leaves& updates, double max_norm);
void scale_by_adam(const AdamStep& step, const nn::Leaves& updates, const nn::Leaves& mu, const nn::Leaves& nu);
void apply_updates(const nn::Leaves& params, const nn::Leaves& updates);
}  // namespace detail

// params + updates, in the parameters' own element types and placements; a parameter whose update is absent stays.
// Errors: updates of another tree (bad_argument, shape_mismatch).
template <class Model>
Model apply_updates(Model params, const Model& updates, std::source_location where = std::source_location::current()) {
  const CallerScope caller(where);
  detail::apply_updates(nn::leaves(params), nn::leaves(updates));
  return params;
}

// A tree of zeros of the same shapes and placements: for states. Those of bfloat16 and float16 parameters are float32,
// so that small updates are not lost; those of parameters that are not floating are absent.
template <class Model>
Model zeros_like(Model params) {
  detail::make_zeros(nn::leaves(params));
  return params;
}

// ---- chain ----------------------------------------------------------------------------------------------------------

// One after the other, each receiving the updates of the one before. Its state is the tuple of their states.
template <class... Parts>
struct Chain {
  std::tuple<Parts...> parts;

  template <class Model>
  auto init(const Model& params) const {
    return std::apply([&](const auto&... part) { return std::tuple(part.init(params)...); }, parts);
  }

  template <class Model, class State>
  std::pair<Model, State> update(const Model& grads, State state, const Model& params,
                                 std::source_location where = std::source_location::current()) const {
    const CallerScope caller(where);
    std::pair<Model, State> result(grads, std::move(state));
    run<0>(result.first, result.second, params);
    return result;
  }

 private:
  template <size_t I, class Model, class State>
  void run(Model& updates, State& states, const Model& params) const {
    if constexpr (I < sizeof...(Parts)) {
      auto [next, state] = std::get<I>(parts).update(updates, std::move(std::get<I>(states)), params);
      updates = std::move(next);
      std::get<I>(states) = std::move(state);
      run<I + 1>(updates, states, params);
    }
  }
};

namespace detail {
template <class T>
std::tuple<T> parts_of(const T& transform) {
  return {transform};
}
template <class... Parts>
std::tuple<Parts...> parts_of(const Chain<Parts...>& chain) {
  return chain.parts;
}
template <class... Parts>
Chain<Parts...> chain_of(std::tuple<Parts...> parts) {
  return {std::move(parts)};
}
}  // namespace detail

// optax.chain. A chain within a chain is laid flat, chain(a, chain(b, c)) = chain(a, b, c), so that the moments of
// chain(clip_by_global_norm(1.0), adamw(...)) have the path 1.mu.
template <class... Transforms>
auto chain(const Transforms&... transforms) {
  return detail::chain_of(std::tuple_cat(detail::parts_of(transforms)...));
}

// ---- transforms -----------------------------------------------------------------------------------------------------

// Updates as they are.
struct Identity {
  template <class Model>
  EmptyState init(const Model&) const {
    return {};
  }
  template <class Model>
  std::pair<Model, EmptyState> update(const Model& grads, EmptyState, const Model&) const {
    return {grads, {}};
  }
};
inline Identity identity() { return {}; }

// step_size * g
struct Scale {
  double step_size;

  template <class Model>
  EmptyState init(const Model&) const {
    return {};
  }
  template <class Model>
  std::pair<Model, EmptyState> update(Model grads, EmptyState, const Model&) const {
    detail::scale(nn::leaves(grads), step_size);
    return {std::move(grads), {}};
  }
};
inline Scale scale(double step_size) { return {step_size}; }

struct ScaleByScheduleState {
  int64_t count = 0;
};

// step_size_fn(count) * g
struct ScaleBySchedule {
  Schedule step_size_fn;

  template <class Model>
  ScaleByScheduleState init(const Model&) const {
    return {};
  }
  template <class Model>
  std::pair<Model, ScaleByScheduleState> update(Model grads, ScaleByScheduleState state, const Model&) const {
    detail::scale(nn::leaves(grads), step_size_fn(state.count));
    return {std::move(grads), {state.count + 1}};
  }
};
inline ScaleBySchedule scale_by_schedule(Schedule step_size_fn) { return {std::move(step_size_fn)}; }

// -learning_rate(count) * g
struct ScaleByLearningRate {
  Schedule learning_rate;

  template <class Model>
  ScaleByScheduleState init(const Model&) const {
    return {};
  }
  template <class Model>
  std::pair<Model, ScaleByScheduleState> update(Model grads, ScaleByScheduleState state, const Model&) const {
    detail::scale(nn::leaves(grads), -learning_rate(state.count));
    return {std::move(grads), {state.count + 1}};
  }
};
inline ScaleByLearningRate scale_by_learning_rate(Schedule rate) { return {std::move(rate)}; }

// g + weight_decay * p, where the mask says so
struct AddDecayedWeights {
  double weight_decay = 0;
  Mask mask = {};

  template <class Model>
  EmptyState init(const Model&) const {
    return {};
  }
  template <class Model>
  std::pair<Model, EmptyState> update(Model grads, EmptyState, const Model& params) const {
    detail::add_decayed_weights(nn::leaves(grads), nn::leaves(params), weight_decay, mask);
    return {std::move(grads), {}};
  }
};
inline AddDecayedWeights add_decayed_weights(double weight_decay, Mask mask = {}) {
  return {weight_decay, std::move(mask)};
}

struct ClipByGlobalNormState {
  double norm = 0;  // of the last gradients, before they were clipped
};

// n = global_norm(all g): g if n < max_norm, else g / n * max_norm (without PyTorch's n + 1e-6).
// Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks" (2012).
struct ClipByGlobalNorm {
  double max_norm;

  template <class Model>
  ClipByGlobalNormState init(const Model&) const {
    return {};
  }
  template <class Model>
  std::pair<Model, ClipByGlobalNormState> update(Model grads, ClipByGlobalNormState, const Model&,
                                                 std::source_location where = std::source_location::current()) const {
    const CallerScope caller(where);
    const double norm = detail::clip_by_global_norm(nn::leaves(grads), max_norm);
    return {std::move(grads), {norm}};
  }
};
// Error (bad_argument) unless max_norm > 0.
ClipByGlobalNorm clip_by_global_norm(double max_norm);

template <class Model>
struct AdamState {
  int64_t count = 0;
  Model mu, nu;
};

// m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2;  t from 1
// (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t) + eps_root) + eps)
// Kingma and Ba, "Adam: a method for stochastic optimization" (2014).
struct ScaleByAdam {
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-8;
  double eps_root = 0;

  template <class Model>
  AdamState<Model> init(const Model& params) const {
    return {0, zeros_like(params), zeros_like(params)};
  }
  template <class Model>
  std::pair<Model, AdamState<Model>> update(Model grads, AdamState<Model> state, const Model&) const {
    state.count += 1;
    detail::scale_by_adam({b1, b2, eps, eps_root, state.count}, nn::leaves(grads), nn::leaves(state.mu),
                          nn::leaves(state.nu));
    return {std::move(grads), std::move(state)};
  }
};
inline ScaleByAdam scale_by_adam(ScaleByAdam options = {}) { return options; }

// ---- optimizers -----------------------------------------------------------------------------------------------------

struct SgdOptions {
  Schedule learning_rate;
};
// -lr g
inline auto sgd(SgdOptions o) { return chain(scale_by_learning_rate(std::move(o.learning_rate))); }

struct AdamOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0;
};
// -lr adam(g)
inline auto adam(AdamOptions o) {
  return chain(ScaleByAdam{o.b1, o.b2, o.eps, o.eps_root}, scale_by_learning_rate(std::move(o.learning_rate)));
}

struct AdamwOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0;
  double weight_decay = 1e-4;  // Optax's default; PyTorch's is 1e-2
  Mask mask = {};              // which parameters decay: all
};
// -lr (adam(g) + weight_decay p). Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).
//   adamw({.learning_rate = 3e-4, .weight_decay = 0.1, .mask = optim::matrices_only})
inline auto adamw(AdamwOptions o) {
  return chain(ScaleByAdam{o.b1, o.b2, o.eps, o.eps_root}, add_decayed_weights(o.weight_decay, std::move(o.mask)),
               scale_by_learning_rate(std::move(o.learning_rate)));
}

}  // namespace tessera::optim
