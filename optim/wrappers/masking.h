// Transforms for a part of the parameters: masked, freeze, and partition into parts with different optimizers.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "optim/formulas/scaling.h"
#include "optim/wrappers/chain.h"

namespace tessera::optim {

namespace detail {
// Makes the arrays that are not `kept` absent.
void keep(const Arrays& tree, const std::vector<bool>& kept);
// Sets the `kept` arrays of `into` to those of `from`.
void put_back(const Arrays& into, const Arrays& from, const std::vector<bool>& kept);

template <class Model>
Model only(Model tree, const std::vector<bool>& kept) {
  keep(nn::bare_arrays(tree).arrays, kept);
  return tree;
}

// Runs a transform on the parameters that are `kept`; the others are absent for it.
template <class T, class Model, class State>
void run_only(const std::vector<bool>& kept, const T& transform, Model& updates, State& state, const Model& params,
              const UpdateStep& step) {
  Model part = only(updates, kept);
  step(transform, part, state, only(params, kept));
  put_back(nn::bare_arrays(updates).arrays, nn::bare_arrays(part).arrays, kept);
}
}  // namespace detail

template <class State>
struct MaskedState {
  State inner_state;
};

// Applies the inner transform to the parameters that the mask takes; other updates are not changed. The inner transform
// sees a tree in which the other arrays are absent, and has no state for them.
template <class Inner>
struct Masked : detail::InPlaceTransform<Masked<Inner>> {
  Inner inner;
  Mask mask;

  template <class Model>
  auto init(const Model& params) const {
    auto state = inner.init(detail::only(params, detail::mask_vector(mask, nn::leaves(params))));
    return MaskedState<decltype(state)>{std::move(state)};
  }
  template <class Model, class State>
  void run(Model& updates, State& state, const Model& params, const detail::UpdateStep& step) const {
    const auto kept =
        step.masks(&mask, [&] { return detail::MaskVectors{detail::mask_vector(mask, nn::leaves(params))}; });
    detail::run_only((*kept)[0], inner, updates, state.inner_state, params, step);
  }
};

// optax.masked: masked(scale_by_trust_ratio(), matrices_only)
template <class Inner>
Masked<Inner> masked(Inner inner, Mask mask) {
  return {{}, std::move(inner), std::move(mask)};
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

  // Error (invalid_argument): no filter takes the parameter.
  std::string operator()(const nn::Leaf& parameter) const { return function_(parameter.path, parameter); }

 private:
  Function function_;
};

namespace detail {
// For each transform: which parameters it updates. Error (invalid_argument): a label that no transform has.
MaskVectors parts_by_label(const Labels& labels, const std::string* names, size_t count, const nn::Leaves& params);
// Makes the updates absent that belong to no part.
void keep_labeled(const Arrays& updates, const MaskVectors& parts);
}  // namespace detail

template <class... Parts>
struct Partition : detail::InPlaceTransform<Partition<Parts...>> {
  Labels param_labels;
  std::array<std::string, sizeof...(Parts)> names;
  std::tuple<Parts...> parts;

  Partition(Labels param_labels, std::array<std::string, sizeof...(Parts)> names, std::tuple<Parts...> parts)
      : param_labels(std::move(param_labels)), names(std::move(names)), parts(std::move(parts)) {}

  template <class Model>
  auto init(const Model& params) const {
    const detail::MaskVectors kept = groups(params);
    return each([&]<size_t... I>(std::index_sequence<I...>) {
      return NamedStates(names, std::make_tuple(std::get<I>(parts).init(detail::only(params, kept[I]))...));
    });
  }
  template <class Model, class State>
  void run(Model& updates, State& state, const Model& params, const detail::UpdateStep& step) const {
    const auto kept = step.masks(&param_labels, [&] { return groups(params); });
    detail::keep_labeled(nn::bare_arrays(updates).arrays, *kept);
    each([&]<size_t... I>(std::index_sequence<I...>) {
      (detail::run_only((*kept)[I], std::get<I>(parts), updates, std::get<I>(state.states), params,
                        step.labeled(names[I])),
       ...);
    });
  }

 private:
  template <class Model>
  detail::MaskVectors groups(const Model& params) const {
    return detail::parts_by_label(param_labels, names.data(), sizeof...(Parts), nn::leaves(params));
  }
  template <class F>
  static auto each(F f) {
    return f(std::index_sequence_for<Parts...>());
  }
};

// optax.partition: several transforms, each for the parameters of its label.
//   partition([](const std::string&, const Array& p) { return p.ndim() == 2 ? "matrix" : "rest"; },
//             "matrix", muon({.learning_rate = 0.02}), "rest", adamw({.learning_rate = 3e-4}))
// The paths of the states begin with the labels. Buffers, integers and absent arrays have no label. Errors
// (invalid_argument): a label that no transform has, naming the parameter and all labels; a label given twice.
template <class... Args>
auto partition(Labels param_labels, const Args&... transforms) {
  static_assert(sizeof...(Args) % 2 == 0, "tessera: partition takes a label before each transform.");
  constexpr size_t n = sizeof...(Args) / 2;
  const auto all = std::tie(transforms...);
  const auto names = detail::names_of<n>(all);
  detail::check_names("partition", names.data(), n);
  return Partition(std::move(param_labels), names, detail::transforms_of<n>(all));
}

// optax.selective_transform: the optimizer for all parameters but those that the mask takes, which are not updated.
template <class Inner>
auto selective_transform(const Inner& optimizer, Mask freeze_mask) {
  return partition(Labels{{"freeze", std::move(freeze_mask)}, {"train", {}}}, "train", optimizer, "freeze",
                   set_to_zero());
}

}  // namespace tessera::optim
