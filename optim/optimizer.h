// Optimizer: a transform with its state, which updates a model in place and in bulk.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "nn/tree.h"
#include "optim/fused.h"
#include "optim/global_norm.h"
#include "optim/state_placement.h"
#include "optim/transform.h"
#include "sharding/caller.h"

namespace tessera::optim {

namespace detail {

// Where the first T stands in the tuple type Parts; its size if there is none.
template <class T, class Parts, size_t I = 0>
constexpr size_t index_of() {
  if constexpr (I == std::tuple_size_v<Parts>)
    return I;
  else if constexpr (std::is_same_v<std::tuple_element_t<I, Parts>, T>)
    return I;
  else
    return index_of<T, Parts, I + 1>();
}

// Whether the tuple type Parts ends with exactly these.
template <class Parts, class... Tail>
constexpr bool ends_with() {
  constexpr size_t n = std::tuple_size_v<Parts>;
  if constexpr (n < sizeof...(Tail))
    return false;
  else
    return []<size_t... I>(std::index_sequence<I...>) {
      return (std::is_same_v<std::tuple_element_t<n - sizeof...(Tail) + I, Parts>, Tail> && ...);
    }
  (std::index_sequence_for<Tail...>());
}

// How many parts at the end of a chain one fused kernel can do: 3 (AdamW), 2 (Adam) or none.
template <class Parts>
constexpr size_t fused_parts() {
  if constexpr (ends_with<Parts, ScaleByAdam, AddDecayedWeights, ScaleByLearningRate>())
    return 3;
  else if constexpr (ends_with<Parts, ScaleByAdam, ScaleByLearningRate>())
    return 2;
  else
    return 0;
}

// The first `n` of a tuple.
template <size_t n, class Tuple>
auto first_of(const Tuple& tuple) {
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return std::tuple<std::tuple_element_t<I, Tuple>...>(std::get<I>(tuple)...);
  }
  (std::make_index_sequence<n>());
}

// The update of a chain with a fused tail, in place. False, with nothing done, where it has none that fits.
template <class Transform, class State, class Model>
bool update_in_bulk(const Transform&, State&, Model&, const Model&) {
  return false;
}
template <class... Parts, class... States, class Model>
bool update_in_bulk(const Chain<Parts...>& chain, std::tuple<States...>& states, Model& model, const Model& grads) {
  constexpr size_t fused = fused_parts<std::tuple<Parts...>>();
  if constexpr (fused == 0) {
    return false;
  } else {
    constexpr size_t head = sizeof...(Parts) - fused, last = sizeof...(Parts) - 1;
    const ScaleByAdam& adam = std::get<head>(chain.parts);
    AdamState<Model>& moments = std::get<head>(states);
    int64_t& count = std::get<last>(states).count;
    FusedAdam step{.adam = {adam.b1, adam.b2, adam.eps, adam.eps_root, moments.count + 1},
                   .learning_rate = std::get<last>(chain.parts).learning_rate(count)};
    if constexpr (fused == 3) {
      step.weight_decay = std::get<head + 1>(chain.parts).weight_decay;
      step.mask = &std::get<head + 1>(chain.parts).mask;
    }
    const nn::Leaves params = nn::leaves(model), mu = nn::leaves(moments.mu), nu = nn::leaves(moments.nu);
    if (!can_fuse(step, params, mu, nu)) return false;
    if constexpr (head == 0) {
      fused_adam(step, params, nn::leaves(grads), mu, nu);
    } else {
      auto [updates, next] =
          chain_of(first_of<head>(chain.parts)).update(grads, first_of<head>(states), std::as_const(model));
      fused_adam(step, params, nn::leaves(updates), mu, nu);
      [&]<size_t... I>(std::index_sequence<I...>) { ((std::get<I>(states) = std::move(std::get<I>(next))), ...); }
      (std::make_index_sequence<head>());
    }
    moments.count += 1;
    count += 1;
    return true;
  }
}

// The first Part of a chain together with its state: f(part, state), or nothing where there is none.
template <class Part, class Transform, class State, class F>
auto with_part(const Transform&, const State&, F) {
  return std::optional<double>();
}
template <class Part, class... Parts, class... States, class F>
std::optional<double> with_part(const Chain<Parts...>& chain, const std::tuple<States...>& states, F f) {
  constexpr size_t i = index_of<Part, std::tuple<Parts...>>();
  if constexpr (i == sizeof...(Parts))
    return std::nullopt;
  else
    return f(std::get<i>(chain.parts), std::get<i>(states));
}

// Every array of `grads` fits its parameter in `params`, before anything is changed.
void check_gradients(const nn::Leaves& params, const nn::Leaves& grads);

}  // namespace detail

// Training's last step in two lines:
//   auto optimizer = optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(1.0),
//                                                         optim::adamw({.learning_rate = 3e-4})));
//   optimizer.update(model, grads);
// Its state lies where the model's parameters lie. It is a tree, so that named("optimizer", optimizer) lists the arrays
// optimizer.state.1.mu.layers.0.kernel and so on.
template <class Model, class Transform>
class Optimizer {
 public:
  using State = decltype(std::declval<const Transform&>().init(std::declval<const Model&>()));
  static_assert(
      TransformOf<Transform, Model>,
      "tessera: an optimizer's transform has init(params) and update(grads, state, params) -> {updates, state}.");

  // Errors: an axis of the options that the mesh does not have (unknown_axis), or that is given twice (bad_argument).
  Optimizer(const Model& model, Transform transform, OptimizerOptions options = {})
      : transform_(std::move(transform)),
        options_(checked(std::move(options), model)),
        state_(transform_.init(with_state(model, model))) {
    nn::check_distinct(nn::leaves(model), "Optimizer");
  }

  // The same result as transform.update and apply_updates. A chain that ends with adam or adamw is computed by one
  // fused kernel over all blocks of all parameters, into the memory of the parameters and moments: an array that
  // someone else holds too (`auto best = model;`) is copied first, so that theirs stays what it was. `grads` is only
  // read; gradients that are pending sums are reduced first, once for all. Errors, before anything is changed:
  // gradients of another model, or of one that this optimizer was not made for (bad_argument, shape_mismatch,
  // dtype_mismatch, device_mismatch). NaN is not looked for.
  void update(Model& model, const Model& grads, std::source_location where = std::source_location::current()) {
    const CallerScope caller(where);
    detail::check_gradients(nn::leaves(model), nn::leaves(grads));
    if (!options_.shard_state.empty()) {
      detail::check_axes(nn::leaves(model), options_);
      const Model before = with_state(model, model);
      Model shards = before;
      step(shards, with_state(grads, model));
      detail::gather_updated(nn::leaves(shards), nn::leaves(before), nn::leaves(model));
    } else if (detail::has_pending(nn::leaves(grads))) {
      Model reduced = grads;
      detail::place_with_parameters(nn::leaves(reduced), nn::leaves(model));
      step(model, reduced);
    } else {
      step(model, grads);
    }
    ++count_;
  }

  const Transform& transform() const { return transform_; }
  const State& state() const { return state_; }
  State& state() { return state_; }

  // Updates done.
  int64_t count() const { return count_; }
  // The learning rate that the last update used; 0 before the first, and without a scale_by_learning_rate.
  double learning_rate() const { return learning_rate_; }
  // The norm of the gradients that clip_by_global_norm saw in the last update; nothing without one.
  std::optional<double> grad_norm() const {
    return detail::with_part<ClipByGlobalNorm>(transform_, state_,
                                               [](const auto&, const auto& state) { return state.norm; });
  }

  template <class Visit>
  void visit_fields(Visit&& visit) {
    visit(std::string_view("count"), count_);
    visit(std::string_view("state"), state_);
  }

 private:
  static OptimizerOptions checked(OptimizerOptions options, const Model& model) {
    detail::check_axes(nn::leaves(model), options);
    return options;
  }

  // A copy of `tree` that lies where the state of `model` lies.
  Model with_state(Model tree, const Model& model) const {
    if (!options_.shard_state.empty()) detail::place_with_state(nn::leaves(tree), nn::leaves(model), options_);
    return tree;
  }

  // The update where everything lies alike.
  void step(Model& model, const Model& grads) {
    const auto rate = detail::with_part<ScaleByLearningRate>(
        transform_, state_, [](const auto& part, const auto& state) { return part.learning_rate(state.count); });
    if (!detail::update_in_bulk(transform_, state_, model, grads)) {
      auto [updates, state] = transform_.update(grads, state_, std::as_const(model));
      model = apply_updates(model, updates);
      state_ = std::move(state);
    }
    learning_rate_ = rate.value_or(0);
  }

  Transform transform_;
  OptimizerOptions options_;
  State state_;
  int64_t count_ = 0;
  double learning_rate_ = 0;
};

}  // namespace tessera::optim
