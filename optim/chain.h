// chain and named_chain: transforms one after the other; Optional: a transform that may be left out.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <tuple>

#include "optim/transform.h"

namespace tessera::optim {

// Transforms one after the other, each receiving the updates of the one before. The state is the tuple of their states.
template <class... Parts>
struct Chain {
  std::tuple<Parts...> parts;

  template <class Model>
  auto init(const Model& params) const {
    return std::apply([&](const auto&... part) { return std::make_tuple(part.init(params)...); }, parts);
  }

  template <class Model, class State>
  std::pair<Model, State> update(const Model& grads, State state, const Model& params, const ExtraArgs& extra = {},
                                 std::source_location where = std::source_location::current()) const {
    const CallerScope caller(where);
    std::pair<Model, State> result(grads, std::move(state));
    update_in_place(result.first, result.second, params, extra);
    return result;
  }
  template <class Model, class State>
  void update_in_place(Model& updates, State& states, const Model& params, const ExtraArgs& extra) const {
    [&]<size_t... I>(std::index_sequence<I...>) {
      (detail::update_in_place(std::get<I>(parts), updates, std::get<I>(states), params, extra), ...);
    }
    (std::index_sequence_for<Parts...>());
  }

  template <class State, class Visit>
  void visit_parts(const State& states, Visit&& visit) const {
    [&]<size_t... I>(std::index_sequence<I...>) { (visit("", std::get<I>(parts), std::get<I>(states)), ...); }
    (std::index_sequence_for<Parts...>());
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

// Error (bad_argument): a name given twice, or an empty one.
void check_names(const char* verb, const std::string* names, size_t count);

}  // namespace detail

// optax.chain. A chain within a chain is flattened, chain(a, chain(b, c)) = chain(a, b, c), so that the first moments
// of chain(clip_by_global_norm(1.0), adamw(...)) have the path 1.mu.
template <class... Transforms>
auto chain(const Transforms&... transforms) {
  return detail::chain_of(std::tuple_cat(detail::parts_of(transforms)...));
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

namespace detail {
template <size_t n, class... States>
NamedStates<States...> named_states(const std::array<std::string, n>& names, std::tuple<States...> states) {
  return {names, std::move(states)};
}
}  // namespace detail

template <class... Parts>
struct NamedChain {
  std::array<std::string, sizeof...(Parts)> names;
  Chain<Parts...> chain;

  template <class Model>
  auto init(const Model& params) const {
    return detail::named_states(names, chain.init(params));
  }
  template <class Model, class State>
  std::pair<Model, State> update(const Model& grads, State state, const Model& params, const ExtraArgs& extra = {},
                                 std::source_location where = std::source_location::current()) const {
    const CallerScope caller(where);
    Model updates = grads;
    chain.update_in_place(updates, state.states, params, extra);
    return {std::move(updates), std::move(state)};
  }
  template <class State, class Visit>
  void visit_parts(const State& state, Visit&& visit) const {
    visit("", chain, state.states);
  }
};

// optax.named_chain: named_chain("clip", clip_by_global_norm(1.0), "adam", adam(...)), whose states have paths that
// begin with these names. Error (bad_argument): a name given twice.
template <class... Args>
auto named_chain(const Args&... args) {
  static_assert(sizeof...(Args) % 2 == 0, "tessera: named_chain takes a name before each transform.");
  constexpr size_t n = sizeof...(Args) / 2;
  const auto all = std::tie(args...);
  const auto names = detail::names_of<n>(all);
  detail::check_names("named_chain", names.data(), n);
  return [&]<class... Parts>(std::tuple<Parts...> parts) {
    return NamedChain<Parts...>{names, {std::move(parts)}};
  }(detail::transforms_of<n>(all));
}

namespace detail {
// Error (bad_argument): the state was made without the transform.
[[noreturn]] void no_state_of_optional();
}  // namespace detail

// A transform that an option may leave out, as sgd's momentum. Its state is then left out, too.
template <class Inner>
struct Optional {
  std::optional<Inner> inner;

  template <class Model>
  auto init(const Model& params) const {
    using State = decltype(inner->init(params));
    return inner ? std::optional<State>(inner->init(params)) : std::optional<State>();
  }
  template <class Model, class State>
  std::pair<Model, State> update(Model grads, State state, const Model& params, const ExtraArgs& extra = {}) const {
    update_in_place(grads, state, params, extra);
    return {std::move(grads), std::move(state)};
  }
  template <class Model, class State>
  void update_in_place(Model& updates, State& state, const Model& params, const ExtraArgs& extra) const {
    if (!inner) return;
    if (!state) detail::no_state_of_optional();
    detail::update_in_place(*inner, updates, *state, params, extra);
  }
  template <class State, class Visit>
  void visit_parts(const State& state, Visit&& visit) const {
    if (inner && state) visit("", *inner, *state);
  }
};

namespace detail {
template <class Inner>
Optional<Inner> when(bool used, const Inner& inner) {
  return {used ? std::optional<Inner>(inner) : std::nullopt};
}
}  // namespace detail

}  // namespace tessera::optim
