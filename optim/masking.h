// Transforms for a part of the parameters: masked, freeze, and partition into parts with different optimizers.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "optim/chain.h"
#include "optim/scaling.h"

namespace tessera::optim {

namespace detail {
// Whether the mask takes each parameter.
std::vector<bool> taken(const Mask& mask, const nn::Leaves& params);
// Makes the arrays that are not `kept` absent.
void keep(const nn::Leaves& tree, const std::vector<bool>& kept);
// Sets the `kept` arrays of `into` to those of `from`.
void put_back(const nn::Leaves& into, const nn::Leaves& from, const std::vector<bool>& kept);

template <class Model>
Model only(Model tree, const std::vector<bool>& kept) {
  keep(nn::leaves(tree), kept);
  return tree;
}
}  // namespace detail

template <class State>
struct MaskedState {
  State inner_state;
};

// Applies the inner transform to the parameters that the mask takes; other updates are not changed. The inner transform
// sees a tree in which the other arrays are absent, and has no state for them.
template <class Inner>
struct Masked {
  Inner inner;
  Mask mask;

  template <class Model>
  auto init(const Model& params) const {
    return MaskedState<decltype(inner.init(params))>{
        inner.init(detail::only(params, detail::taken(mask, nn::leaves(params))))};
  }
  template <class Model, class State>
  std::pair<Model, State> update(Model grads, State state, const Model& params, const ExtraArgs& extra = {},
                                 std::source_location where = std::source_location::current()) const {
    const CallerScope caller(where);
    const std::vector<bool> kept = detail::taken(mask, nn::leaves(params));
    Model updates = detail::only(grads, kept);
    detail::update_in_place(inner, updates, state.inner_state, detail::only(params, kept), extra);
    detail::put_back(nn::leaves(grads), nn::leaves(updates), kept);
    return {std::move(grads), std::move(state)};
  }
  template <class State, class Visit>
  void visit_parts(const State& state, Visit&& visit) const {
    visit("", inner, state.inner_state);
  }
};

// optax.masked: masked(scale_by_trust_ratio(), matrices_only)
template <class Inner>
Masked<Inner> masked(Inner inner, Mask mask) {
  return {std::move(inner), std::move(mask)};
}

// optax.freeze: the parameters that the mask takes are not updated. Put it at the end of a chain.
inline auto freeze(Mask mask) { return masked(set_to_zero(), std::move(mask)); }

// The label of each parameter, which names the transform that updates it: a function of (path, array) or (path, leaf),
// or a list of labels with filters, of which the first that takes a parameter counts:
//   {{"matrix", matrices_only}, {"rest", {}}}
class Labels {
 public:
  using Function = std::function<std::string(const std::string& path, const nn::Leaf& parameter)>;
  template <class F>
  requires std::is_invocable_r_v<std::string, const F&, const std::string&, const nn::Leaf&> Labels(F f)
      : function_(std::move(f)) {}
  Labels(std::initializer_list<std::pair<std::string, Mask>> filters);

  // Error (bad_argument): no filter takes the parameter.
  std::string operator()(const nn::Leaf& parameter) const { return function_(parameter.path, parameter); }

 private:
  Function function_;
};

namespace detail {
// For each transform: which parameters it updates. Error (bad_argument): a label that no transform has.
std::vector<std::vector<bool>> parts_by_label(const Labels& labels, const std::string* names, size_t count,
                                              const nn::Leaves& params);
}  // namespace detail

template <class... Parts>
struct Partition {
  Labels param_labels;
  std::array<std::string, sizeof...(Parts)> names;
  std::tuple<Parts...> parts;

  template <class Model>
  auto init(const Model& params) const {
    const auto kept = groups(params);
    return [&]<size_t... I>(std::index_sequence<I...>) {
      return detail::named_states(names, std::make_tuple(std::get<I>(parts).init(detail::only(params, kept[I]))...));
    }
    (std::index_sequence_for<Parts...>());
  }

  template <class Model, class State>
  std::pair<Model, State> update(Model grads, State state, const Model& params, const ExtraArgs& extra = {},
                                 std::source_location where = std::source_location::current()) const {
    const CallerScope caller(where);
    const auto kept = groups(params);
    Model result = grads;
    [&]<size_t... I>(std::index_sequence<I...>) {
      (update_part<I>(grads, params, kept[I], extra, std::get<I>(state.states), result), ...);
    }
    (std::index_sequence_for<Parts...>());
    return {std::move(result), std::move(state)};
  }

  template <class State, class Visit>
  void visit_parts(const State& state, Visit&& visit) const {
    [&]<size_t... I>(std::index_sequence<I...>) {
      (visit(names[I], std::get<I>(parts), std::get<I>(state.states)), ...);
    }
    (std::index_sequence_for<Parts...>());
  }

 private:
  template <class Model>
  std::vector<std::vector<bool>> groups(const Model& params) const {
    return detail::parts_by_label(param_labels, names.data(), sizeof...(Parts), nn::leaves(params));
  }
  template <size_t I, class Model, class State>
  void update_part(const Model& grads, const Model& params, const std::vector<bool>& kept, const ExtraArgs& extra,
                   State& state, Model& result) const {
    Model updates = detail::only(grads, kept);
    detail::update_in_place(std::get<I>(parts), updates, state, detail::only(params, kept), extra);
    detail::put_back(nn::leaves(result), nn::leaves(updates), kept);
  }
};

// optax.partition: several transforms, each for the parameters of its label.
//   partition([](const std::string&, const Array& p) { return p.ndim() == 2 ? "matrix" : "rest"; },
//             "matrix", muon({.learning_rate = 0.02}), "rest", adamw({.learning_rate = 3e-4}))
// The paths of the states begin with the labels. Buffers, integers and absent arrays have no label. Errors
// (bad_argument): a label that no transform has, naming the parameter and all labels; a label given twice.
template <class... Args>
auto partition(Labels param_labels, const Args&... transforms) {
  static_assert(sizeof...(Args) % 2 == 0, "tessera: partition takes a label before each transform.");
  constexpr size_t n = sizeof...(Args) / 2;
  const auto all = std::tie(transforms...);
  const auto names = detail::names_of<n>(all);
  detail::check_names("partition", names.data(), n);
  return [&]<class... Parts>(std::tuple<Parts...> parts) {
    return Partition<Parts...>{std::move(param_labels), names, std::move(parts)};
  }(detail::transforms_of<n>(all));
}

// optax.selective_transform: the optimizer for all parameters but those that the mask takes, which are not updated.
template <class Inner>
auto selective_transform(const Inner& optimizer, Mask freeze_mask) {
  return partition(Labels{{"freeze", std::move(freeze_mask)}, {"train", {}}}, "train", optimizer, "freeze",
                   set_to_zero());
}

}  // namespace tessera::optim
