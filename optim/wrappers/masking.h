// Transforms for some of the parameters: masked, freeze, partition, selective_transform.
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
// Copies the `kept` arrays of `from` to `into`.
void put_back(const Arrays& into, const Arrays& from, const std::vector<bool>& kept);

template <class Model>
Model only(Model tree, const std::vector<bool>& kept) {
  keep(nn::bare_arrays(tree).arrays, kept);
  return tree;
}

// Runs a transform on the parameters that are `kept`; it sees the others as absent.
void run_only(const std::vector<bool>& kept, const auto& transform, auto& updates, auto& state, const auto& params,
              const UpdateStep& step) {
  auto part = only(updates, kept);
  step(transform, part, state, only(params, kept));
  put_back(nn::bare_arrays(updates).arrays, nn::bare_arrays(part).arrays, kept);
}
}  // namespace detail

template <class State>
struct MaskedState {
  State inner_state;
};

// Applies the inner transform to the parameters that the mask selects; other updates are not changed. The inner
// transform sees the other arrays as absent, and has no state for them.
template <class Inner>
struct Masked : detail::InPlaceTransform<Masked<Inner>> {
  Inner inner;
  Mask mask;

  auto init(const auto& params) const {
    auto state = inner.init(detail::only(params, detail::mask_vector(mask, nn::leaves(params))));
    return MaskedState<decltype(state)>{std::move(state)};
  }
  void run(auto& updates, auto& state, const auto& params, const detail::UpdateStep& step) const {
    const auto kept =
        step.masks(&mask, [&] { return detail::MaskVectors{detail::mask_vector(mask, nn::leaves(params))}; });
    detail::run_only((*kept)[0], inner, updates, state.inner_state, params, step);
  }
};

// Wraps a transform, as optax.masked: masked(scale_by_trust_ratio(), matrices_only).
template <class Inner>
Masked<Inner> masked(Inner inner, Mask mask) {
  return {{}, std::move(inner), std::move(mask)};
}

// Freezes the parameters that the mask selects, as optax.freeze. Put it at the end of a chain.
inline auto freeze(Mask mask) { return masked(set_to_zero(), std::move(mask)); }

// The label of each parameter, which names the transform that updates it. Labels are a function of (path, array) or
// (path, leaf), or a list of (label, filter). In a list, the first filter that selects a parameter determines its
// label:
//   {{"matrix", matrices_only}, {"rest", {}}}
class Labels {
 public:
  using Function = std::function<std::string(const std::string& path, const nn::Leaf& parameter)>;
  template <class F>
  requires std::is_invocable_r_v<std::string, const F&, const std::string&, const nn::Leaf&> Labels(F f)
      : function_(std::move(f)) {}
  Labels(std::initializer_list<std::pair<std::string, Mask>> filters);

  // Returns a parameter's label. Error (invalid_argument): no filter selects the parameter.
  std::string operator()(const nn::Leaf& parameter) const { return function_(parameter.path, parameter); }

 private:
  Function function_;
};

namespace detail {
// Returns for each transform which parameters it updates. Error (invalid_argument): a label that no transform has.
MaskVectors parts_by_label(const Labels& labels, const std::string* names, size_t count, const nn::Leaves& params);
// Makes the updates that belong to no part absent.
void keep_labeled(const Arrays& updates, const MaskVectors& parts);
}  // namespace detail

template <class... Parts>
struct Partition : detail::InPlaceTransform<Partition<Parts...>> {
  Labels param_labels;
  std::array<std::string, sizeof...(Parts)> names;
  std::tuple<Parts...> parts;

  Partition(Labels labels, std::array<std::string, sizeof...(Parts)> labels_of_parts, std::tuple<Parts...> transforms)
      : param_labels(std::move(labels)), names(std::move(labels_of_parts)), parts(std::move(transforms)) {}

  auto init(const auto& params) const {
    const detail::MaskVectors kept = groups(params);
    return each([&]<size_t... I>(std::index_sequence<I...>) {
      return NamedStates(names, std::make_tuple(std::get<I>(parts).init(detail::only(params, kept[I]))...));
    });
  }
  void run(auto& updates, auto& state, const auto& params, const detail::UpdateStep& step) const {
    const auto kept = step.masks(&param_labels, [&] { return groups(params); });
    detail::keep_labeled(nn::bare_arrays(updates).arrays, *kept);
    each([&]<size_t... I>(std::index_sequence<I...>) {
      (detail::run_only((*kept)[I], std::get<I>(parts), updates, std::get<I>(state.states), params,
                        step.labeled(names[I])),
       ...);
    });
  }

 private:
  detail::MaskVectors groups(const auto& params) const {
    return detail::parts_by_label(param_labels, names.data(), sizeof...(Parts), nn::leaves(params));
  }
  template <class F>
  static auto each(F f) {
    return f(std::index_sequence_for<Parts...>());
  }
};

// Applies several transforms, each to the parameters with its label, as optax.partition.
//   partition([](const std::string&, const Array& p) { return p.ndim() == 2 ? "matrix" : "rest"; },
//             "matrix", muon({.learning_rate = 0.02}), "rest", adamw({.learning_rate = 3e-4}))
// The paths of the states begin with the labels. Buffers, integers and absent arrays have no label.
// Errors (invalid_argument): a label that no transform has (the message has the parameter and all labels); a label
// given twice.
template <class... Args>
auto partition(Labels param_labels, const Args&... transforms) {
  static_assert(sizeof...(Args) % 2 == 0, "tessera: partition takes a label before each transform.");
  auto [names, parts] = detail::named_parts("partition", transforms...);
  return Partition(std::move(param_labels), std::move(names), std::move(parts));
}

// Updates all parameters except those that the mask selects, as optax.selective_transform.
template <class Inner>
auto selective_transform(const Inner& optimizer, Mask freeze_mask) {
  return partition(Labels{{"freeze", std::move(freeze_mask)}, {"train", {}}}, "train", optimizer, "freeze",
                   set_to_zero());
}

}  // namespace tessera::optim
