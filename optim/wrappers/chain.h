// chain and named_chain: apply transforms in order. One fused kernel computes the end of adam, adamw and sgd.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "optim/formulas/adaptive.h"
#include "optim/formulas/scaling.h"
#include "optim/transform/update_step.h"

namespace tessera::optim {

namespace detail {
// Throws Error (invalid_argument): the state was made without the transform.
[[noreturn]] void no_state_of_optional();
}  // namespace detail

// A transform that an option may omit, such as sgd's momentum. Its state is then omitted, too.
template <class Inner>
struct Optional : detail::InPlaceTransform<Optional<Inner>> {
  static constexpr bool can_be_gated = detail::can_be_gated<Inner>;
  std::optional<Inner> inner;

  Optional() = default;
  Optional(std::optional<Inner> transform) : inner(std::move(transform)) {}

  auto init(const auto& params) const {
    using State = decltype(inner->init(params));
    return inner ? std::optional<State>(inner->init(params)) : std::optional<State>();
  }
  void run(auto& updates, auto& state, const auto& params, const detail::UpdateStep& step) const {
    if (!inner) return;
    if (!state) detail::no_state_of_optional();
    step(*inner, updates, *state, params);
  }
};

namespace detail {

template <class Inner>
Optional<Inner> when(bool used, Inner inner) {
  return used ? Optional<Inner>(std::move(inner)) : Optional<Inner>();
}
// Returns make(*setting) if the setting is given, otherwise an empty Optional.
template <class Setting, class Make>
auto where_given(const std::optional<Setting>& setting, Make make) {
  return setting ? Optional(std::optional(make(*setting))) : Optional<decltype(make(*setting))>();
}

// Returns references to a tuple's elements from `first` on.
template <size_t first, class Tuple>
auto references_from(Tuple& tuple) {
  return [&]<size_t... I>(std::index_sequence<I...>) { return std::tie(std::get<first + I>(tuple)...); }
  (std::make_index_sequence<std::tuple_size_v<std::remove_const_t<Tuple>> - first>());
}

// The last parts of a chain, with their states.
struct FusedRate {
  const ScaleByLearningRate& part;
  ScaleByScheduleState& state;
};
struct FusedDecay {
  const AddDecayedWeights& part;
  ScaleByScheduleState& state;
  std::shared_ptr<const MaskVectors> masks;  // one: the parameters that decay
};
struct Moments {
  int64_t& count;
  Arrays mu, nu;
};
template <class Model>
Moments moments_of(AdamState<Model>& state) {
  return {state.count, nn::bare_arrays(state.mu).arrays, nn::bare_arrays(state.nu).arrays};
}

// Add a call of the kernel to step.in_place(), and make the updates absent. They return false and add nothing if the
// kernel cannot compute this update, because it lacks a setting or moments are not sharded like their parameters.
bool fuse_adam(const UpdateStep& step, const Arrays& updates, const ScaleByAdam& adam, Moments moments,
               const std::optional<FusedDecay>& decay, const FusedRate& rate);
bool fuse_sgd(const UpdateStep& step, const Arrays& updates, const std::optional<PerArray<Trace>>& momentum,
              bool has_trace, Arrays trace, const FusedRate& rate);

// Calls the fused kernel for the parts at the end of a chain and their states, if there is one.
template <class Model>
bool fuse(const UpdateStep& step, Model& updates, const Model& params,
          const std::tuple<const PerArray<ScaleByAdam>&, const AddDecayedWeights&, const ScaleByLearningRate&>& parts,
          const std::tuple<AdamState<Model>&, ScaleByScheduleState&, ScaleByScheduleState&>& states) {
  const auto& [adam, decay, rate] = parts;
  const auto& [moments, decay_state, rate_state] = states;
  const auto masks =
      step.masks(&decay.mask, [&, &mask = decay.mask] { return MaskVectors{mask_vector(mask, nn::leaves(params))}; });
  return fuse_adam(step, nn::bare_arrays(updates).arrays, adam, moments_of(moments),
                   FusedDecay{decay, decay_state, masks}, {rate, rate_state});
}
template <class Model>
bool fuse(const UpdateStep& step, Model& updates, const Model&,
          const std::tuple<const PerArray<ScaleByAdam>&, const ScaleByLearningRate&>& parts,
          const std::tuple<AdamState<Model>&, ScaleByScheduleState&>& states) {
  return fuse_adam(step, nn::bare_arrays(updates).arrays, std::get<0>(parts), moments_of(std::get<0>(states)), {},
                   {std::get<1>(parts), std::get<1>(states)});
}
template <class Model>
bool fuse(const UpdateStep& step, Model& updates, const Model&,
          const std::tuple<const Optional<PerArray<Trace>>&, const ScaleByLearningRate&>& parts,
          const std::tuple<std::optional<Trace::State<Model>>&, ScaleByScheduleState&>& states) {
  auto& trace = std::get<0>(states);
  return fuse_sgd(step, nn::bare_arrays(updates).arrays, std::get<0>(parts).inner, trace.has_value(),
                  trace ? nn::bare_arrays(trace->trace).arrays : Arrays(), {std::get<1>(parts), std::get<1>(states)});
}

}  // namespace detail

// Applies transforms in order: each receives the updates of the previous one. The state is the tuple of their states.
template <class... Parts>
struct Chain : detail::InPlaceTransform<Chain<Parts...>> {
  static constexpr bool can_be_gated = (detail::can_be_gated<Parts> && ...);
  std::tuple<Parts...> parts;

  explicit Chain(std::tuple<Parts...> transforms) : parts(std::move(transforms)) {}

  auto init(const auto& params) const {
    return std::apply([&](const auto&... part) { return std::make_tuple(part.init(params)...); }, parts);
  }
  // Runs the parts from `first` on. In an in-place update, a fused kernel computes the parts at the end of the chain if
  // there is one.
  template <size_t first = 0>
  void run(auto& updates, auto& states, const auto& params, const detail::UpdateStep& step) const {
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

// Detects whether a class has a member `update`: if it has, the name is ambiguous in WithUpdate.
struct Update {
  int update;
};
template <class T>
struct WithUpdate : T, Update {};
template <class T>
concept has_update = std::is_class_v<T> && !std::is_final_v<T> && !requires {
  &WithUpdate<T>::update;
};

// Throws Error (invalid_argument): a name given twice, or an empty one.
void check_names(const char* verb, const std::string* names, size_t count);

// Returns the checked names and the transforms of f("a", x, "b", y).
template <class... Args>
auto named_parts(const char* verb, const Args&... args) {
  constexpr size_t n = sizeof...(Args) / 2;
  const auto all = std::tie(args...);
  return [&]<size_t... I>(std::index_sequence<I...>) {
    std::array<std::string, n> names{std::string(std::get<2 * I>(all))...};
    check_names(verb, names.data(), n);
    return std::pair(std::move(names), std::tuple(std::get<2 * I + 1>(all)...));
  }
  (std::make_index_sequence<n>());
}

}  // namespace detail

// Chains transforms, as optax.chain. A chain within a chain is flattened: chain(a, chain(b, c)) = chain(a, b, c). So
// the first moments of chain(clip_by_global_norm(1.0), adamw(...)) have the path 1.mu.
template <class... Transforms>
auto chain(const Transforms&... transforms) {
  constexpr bool are_transforms = (detail::has_update<Transforms> && ...);
  static_assert(are_transforms,
                "tessera: chain takes transforms: chain(clip_by_global_norm(1.0), adamw({.learning_rate = 3e-4})).");
  if constexpr (are_transforms) return Chain(std::tuple_cat(detail::parts_of(transforms)...));
}

// The states of several transforms, by name.
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

  NamedChain(std::array<std::string, sizeof...(Parts)> names_of_parts, std::tuple<Parts...> transforms)
      : names(std::move(names_of_parts)), chain(std::move(transforms)) {}

  auto init(const auto& params) const { return NamedStates(names, chain.init(params)); }
  void run(auto& updates, auto& state, const auto& params, const detail::UpdateStep& step) const {
    chain.run(updates, state.states, params, step);
  }
};

// Chains named transforms, as optax.named_chain. The states of named_chain("clip", clip_by_global_norm(1.0), "adam",
// adam(...)) have paths that begin with these names. Error (invalid_argument): a name given twice.
template <class... Args>
auto named_chain(const Args&... args) {
  static_assert(sizeof...(Args) % 2 == 0, "tessera: named_chain takes a name before each transform.");
  auto [names, parts] = detail::named_parts("named_chain", args...);
  return NamedChain(std::move(names), std::move(parts));
}

}  // namespace tessera::optim
