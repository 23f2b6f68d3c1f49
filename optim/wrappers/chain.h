// chain and named_chain: transforms one after the other.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "optim/wrappers/fused.h"

namespace tessera::optim {

// Transforms one after the other, each receiving the updates of the one before. The state is the tuple of their states.
template <class... Parts>
struct Chain : detail::InPlaceTransform<Chain<Parts...>> {
  static constexpr bool can_be_gated = (detail::can_be_gated<Parts> && ...);
  std::tuple<Parts...> parts;

  explicit Chain(std::tuple<Parts...> parts) : parts(std::move(parts)) {}

  template <class Model>
  auto init(const Model& params) const {
    return std::apply([&](const auto&... part) { return std::make_tuple(part.init(params)...); }, parts);
  }
  // In place, the parts at the end of the chain that one kernel computes are left to it.
  template <size_t first = 0, class Model, class State>
  void run(Model& updates, State& states, const Model& params, const detail::UpdateStep& step) const {
    if constexpr (first < sizeof...(Parts)) {
      const auto tail = detail::references_from<first>(parts);
      const auto tail_states = detail::references_from<first>(states);
      if constexpr (requires { detail::fuse(step, updates, params, tail, tail_states); })
        if (step.in_place() && detail::fuse(step, updates, params, tail, tail_states)) return;
      constexpr bool is_last = first + 1 == sizeof...(Parts);
      (is_last ? step : step.before())(std::get<first>(parts), updates, std::get<first>(states), params);
      run<first + 1>(updates, states, params, step);
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

// Whether a class has a member `update`: the name is then ambiguous in WithUpdate.
struct Update {
  int update;
};
template <class T>
struct WithUpdate : T, Update {};
template <class T>
concept has_update = std::is_class_v<T> && !std::is_final_v<T> && !requires {
  &WithUpdate<T>::update;
};

// The names and the transforms of f("a", x, "b", y).
template <size_t n, class... Args>
auto names_of(const std::tuple<Args...>& args) {
  return [&]<size_t... I>(std::index_sequence<I...>) {
    return std::array<std::string, n>{std::string(std::get<2 * I>(args))...};
  }
  (std::make_index_sequence<n>());
}
template <size_t n, class... Args>
auto transforms_of(const std::tuple<Args...>& args) {
  return [&]<size_t... I>(std::index_sequence<I...>) { return std::tuple(std::get<2 * I + 1>(args)...); }
  (std::make_index_sequence<n>());
}

// Error (invalid_argument): a name given twice, or an empty one.
void check_names(const char* verb, const std::string* names, size_t count);

}  // namespace detail

// optax.chain. A chain within a chain is flattened, chain(a, chain(b, c)) = chain(a, b, c), so that the first moments
// of chain(clip_by_global_norm(1.0), adamw(...)) have the path 1.mu.
template <class... Transforms>
auto chain(const Transforms&... transforms) {
  constexpr bool are_transforms = (detail::has_update<Transforms> && ...);
  static_assert(are_transforms,
                "tessera: chain takes transforms: chain(clip_by_global_norm(1.0), adamw({.learning_rate = 3e-4})).");
  if constexpr (are_transforms) return Chain(std::tuple_cat(detail::parts_of(transforms)...));
}

// The states of several transforms under their names.
template <class... States>
struct NamedStates {
  std::array<std::string, sizeof...(States)> names;
  std::tuple<States...> states;

  template <class Visit>
  void visit_fields(Visit&& visit) {
    size_t i = 0;
    std::apply([&](auto&... state) { (visit(std::string_view(names[i++]), state), ...); }, states);
  }
};

template <class... States>
NamedStates(std::array<std::string, sizeof...(States)>, std::tuple<States...>) -> NamedStates<States...>;

template <class... Parts>
struct NamedChain : detail::InPlaceTransform<NamedChain<Parts...>> {
  static constexpr bool can_be_gated = Chain<Parts...>::can_be_gated;
  std::array<std::string, sizeof...(Parts)> names;
  Chain<Parts...> chain;

  NamedChain(std::array<std::string, sizeof...(Parts)> names, std::tuple<Parts...> parts)
      : names(std::move(names)), chain(std::move(parts)) {}

  template <class Model>
  auto init(const Model& params) const {
    return NamedStates(names, chain.init(params));
  }
  template <class Model, class State>
  void run(Model& updates, State& state, const Model& params, const detail::UpdateStep& step) const {
    chain.run(updates, state.states, params, step);
  }
};

// optax.named_chain: named_chain("clip", clip_by_global_norm(1.0), "adam", adam(...)), whose states have paths that
// begin with these names. Error (invalid_argument): a name given twice.
template <class... Args>
auto named_chain(const Args&... args) {
  static_assert(sizeof...(Args) % 2 == 0, "tessera: named_chain takes a name before each transform.");
  constexpr size_t n = sizeof...(Args) / 2;
  const auto all = std::tie(args...);
  const auto names = detail::names_of<n>(all);
  detail::check_names("named_chain", names.data(), n);
  return NamedChain(names, detail::transforms_of<n>(all));
}

}  // namespace tessera::optim
