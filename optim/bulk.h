// Which chains end in what one kernel computes, and their update in place.
#pragma once

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "optim/fused.h"
#include "optim/optimizers.h"

namespace tessera::optim::detail {

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

// Whether the tuple type Parts ends with the parts of this chain.
template <class Parts, class... Tail>
constexpr bool ends_with(const Chain<Tail...>*) {
  constexpr size_t n = std::tuple_size_v<Parts>;
  if constexpr (n < sizeof...(Tail))
    return false;
  else
    return []<size_t... I>(std::index_sequence<I...>) {
      return (std::is_same_v<std::tuple_element_t<n - sizeof...(Tail) + I, Parts>, Tail> && ...);
    }
  (std::index_sequence_for<Tail...>());
}

// How many parts at the end of a chain one kernel can do: 3 (AdamW), 2 (Adam, SGD) or none.
template <class Parts>
constexpr size_t fused_parts() {
  if constexpr (ends_with<Parts>(static_cast<Adamw*>(nullptr)))
    return 3;
  else if constexpr (ends_with<Parts>(static_cast<Adam*>(nullptr)) || ends_with<Parts>(static_cast<Sgd*>(nullptr)))
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

// The kernel's step of the tail from part `head` on: its numbers, read from the parts and their states, and moments.
inline bool can_fuse(const ScaleByAdam& adam) { return adam.eps_root == 0 && !adam.nesterov && !adam.mu_dtype; }

template <size_t head, class... Parts, class... States, class Model>
bool run_tail(const std::tuple<Parts...>& parts, std::tuple<States...>& states, const Arrays& params,
              const Arrays& grads, const std::vector<char>& decays, Model*) {
  constexpr size_t last = sizeof...(Parts) - 1;
  const ScaleByLearningRate& rate = std::get<last>(parts);
  const double learning_rate = rate.value(std::get<last>(states).count) * (rate.flip_sign ? 1 : -1);
  if constexpr (ends_with<std::tuple<Parts...>>(static_cast<Sgd*>(nullptr))) {
    const auto& momentum = std::get<head>(parts).inner;
    Arrays traces;
    if (momentum) traces = nn::bare_arrays(std::get<head>(states)->trace).arrays;
    if (momentum && (momentum->accumulator_dtype || !moments_lie_with(traces, params))) return false;
    fused_sgd({learning_rate, momentum ? momentum->decay : 0, momentum && momentum->nesterov}, params, grads, traces);
  } else {
    const ScaleByAdam& adam = std::get<head>(parts);
    AdamState<Model>& moments = std::get<head>(states);
    const Arrays mu = nn::bare_arrays(moments.mu).arrays, nu = nn::bare_arrays(moments.nu).arrays;
    if (!can_fuse(adam) || !moments_lie_with(mu, params) || !moments_lie_with(nu, params)) return false;
    FusedAdam step{adam.b1, adam.b2, adam.eps, moments.count + 1, learning_rate, 0, &decays};
    if constexpr (last == head + 2)
      step.weight_decay = std::get<head + 1>(parts).value(std::get<head + 1>(states).count);
    fused_adam(step, params, grads, mu, nu);
    moments.count += 1;
    if constexpr (last == head + 2) std::get<head + 1>(states).count += 1;
  }
  std::get<last>(states).count += 1;
  return true;
}

// The update of a chain with a fused tail, in place. False, with nothing done, where it has none that fits.
template <class Transform, class State, class Model>
bool update_in_bulk(const Transform&, State&, Model&, const Model&, const ExtraArgs&, const std::vector<char>&) {
  return false;
}
template <class... Parts, class... States, class Model>
bool update_in_bulk(const Chain<Parts...>& chain, std::tuple<States...>& states, Model& model, const Model& grads,
                    const ExtraArgs& extra, const std::vector<char>& decays) {
  constexpr size_t fused = fused_parts<std::tuple<Parts...>>();
  if constexpr (fused == 0) {
    return false;
  } else {
    constexpr size_t head = sizeof...(Parts) - fused;
    const Arrays params = nn::bare_arrays(model).arrays;
    if constexpr (head == 0) {
      return run_tail<0>(chain.parts, states, params, nn::bare_arrays(grads).arrays, decays, &model);
    } else {
      auto [updates, next] =
          chain_of(first_of<head>(chain.parts)).update(grads, first_of<head>(states), std::as_const(model), extra);
      if (!run_tail<head>(chain.parts, states, params, nn::bare_arrays(updates).arrays, decays, &model)) return false;
      [&]<size_t... I>(std::index_sequence<I...>) { ((std::get<I>(states) = std::move(std::get<I>(next))), ...); }
      (std::make_index_sequence<head>());
      return true;
    }
  }
}

// The mask of the weight decay in a fused tail, asked for every parameter.
template <class Transform>
const Mask* mask_of_tail(const Transform&) {
  return nullptr;
}
template <class... Parts>
const Mask* mask_of_tail(const Chain<Parts...>& chain) {
  if constexpr (fused_parts<std::tuple<Parts...>>() == 3)
    return &std::get<sizeof...(Parts) - 2>(chain.parts).mask;
  else
    return nullptr;
}
std::vector<char> decays_of(const Mask& mask, const nn::Leaves& params);

// The first Part of a chain together with its state: f(part, state), or nothing where there is none.
template <class Part, class Transform, class State, class F>
std::optional<double> with_part(const Transform&, const State&, F) {
  return std::nullopt;
}
template <class Part, class... Parts, class... States, class F>
std::optional<double> with_part(const Chain<Parts...>& chain, const std::tuple<States...>& states, F f) {
  constexpr size_t i = index_of<Part, std::tuple<Parts...>>();
  if constexpr (i == sizeof...(Parts))
    return std::nullopt;
  else
    return f(std::get<i>(chain.parts), std::get<i>(states));
}

// Whether gradients and state fit the model, as far as can be seen in a few nanoseconds an array. If not, the checks
// below say what does not, or find that all is well.
bool plainly_fits(const nn::BareArrays& params, const nn::BareArrays& grads, const nn::BareArrays& state);
void check_gradients(const nn::Leaves& params, const nn::Leaves& grads);
// Error (device_mismatch): an array of the state lies on another mesh than the model.
void check_state_mesh(const nn::Leaves& params, const nn::Leaves& state);
bool has_pending(const Arrays& arrays);

}  // namespace tessera::optim::detail
