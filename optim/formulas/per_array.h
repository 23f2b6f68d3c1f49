// Formulas: transforms that process one array at a time. Most of Optax's transforms are formulas.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>

#include "optim/transform/transform.h"
#include "optim/transform/update_step.h"

namespace tessera::optim {

// The arguments of a formula for one array. Gradients have the state's element type: float32 for a bfloat16 parameter.
struct ArrayStep {
  const Array& gradient;      // or the update of the previous transform in a chain
  const nn::Leaf& parameter;  // converts to the Array
  std::span<Array> state;     // one array of each tree of the state, in the order of its fields; the formula sets them
  int64_t count;              // number of this update, from 1; always 1 if the state has no count
  const Array& p() const { return *parameter.value; }
};

// Makes a transform of a Formula: a struct with settings and
//   static constexpr const char* name = "scale_by_lion";    // for messages
//   Array operator()(const ArrayStep& step) const;           // the update of one array; sets step.state
// and, if it has a state,
//   template <class Model> struct State { int64_t count = 0; Model mu; };   // trees, and at most a count
// The trees begin with zeros, or with
//   Array initial(size_t tree, const Array& parameter) const;
// An optional field of the formula changes this: `mu_dtype` sets the element type of the first tree,
// `accumulator_dtype` of all trees. `initial_accumulator_value` fills all trees, `initial_scale` the last tree. Arrays
// of the state keep the sharding of their parameter and their own element type.
template <class Formula>
struct PerArray;

namespace detail {

template <class Formula, class Model>
struct StateOf {
  using Type = EmptyState;
};
template <class Formula, class Model>
requires requires { typename Formula::template State<Model>; }
struct StateOf<Formula, Model> {
  using Type = typename Formula::template State<Model>;
};

// Returns a state whose fields of type Model are copies of `params`, for their structure and the names of dimensions.
template <class Model, class State>
State with_trees(const Model& params) {
  State state;
  if constexpr (!std::is_empty_v<State>)
    boost::pfr::for_each_field(state, [&](auto& field) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(field)>, Model>) field = params;
    });
  return state;
}

// Returns how many fields of a state are trees like the model.
template <class Model, class State>
constexpr size_t trees_in() {
  if constexpr (std::is_empty_v<State>)
    return 0;
  else
    return []<size_t... I>(std::index_sequence<I...>) {
      return (size_t{0} + ... + size_t{std::is_same_v<boost::pfr::tuple_element_t<I, State>, Model>});
    }
  (std::make_index_sequence<boost::pfr::tuple_size_v<State>>());
}

using Initial = std::function<Array(size_t tree, const Array& parameter)>;
using ArrayFormula = std::function<Array(const ArrayStep&)>;

// Replaces the arrays of a state, in which every tree is a copy of the parameters, by their initial values.
void make_initial(const nn::Leaves& state, size_t arrays, const Initial& initial);
// Replaces the arrays of `updates` and of the `trees` trees of `state`, which the caller has copied.
void per_array(const char* verb, const nn::Leaves& updates, const nn::Leaves& state, size_t trees,
               const nn::Leaves& params, int64_t count, const ArrayFormula& formula);

// Returns zeros_for(parameter), filled with a number.
Array full_for(const Array& parameter, double value);

template <size_t trees, class Formula>
Initial initial_of(const Formula& formula) {
  if constexpr (requires(const Array& x) { formula.initial(size_t(), x); })
    return [&formula](size_t tree, const Array& parameter) { return formula.initial(tree, parameter); };
  else if constexpr (requires { formula.mu_dtype; })
    return
        [&formula](size_t tree, const Array& p) { return tree == 0 ? zeros_for(p, formula.mu_dtype) : zeros_for(p); };
  else if constexpr (requires { formula.accumulator_dtype; })
    return [&formula](size_t, const Array& p) { return zeros_for(p, formula.accumulator_dtype); };
  else if constexpr (requires { formula.initial_accumulator_value; })
    return [&formula](size_t, const Array& p) { return full_for(p, formula.initial_accumulator_value); };
  else if constexpr (requires { formula.initial_scale; })
    return
        [&formula](size_t tree, const Array& p) { return full_for(p, tree + 1 == trees ? formula.initial_scale : 0); };
  else
    return [](size_t, const Array& p) { return zeros_for(p); };
}

}  // namespace detail

template <class Formula>
struct PerArray : Formula, detail::CopyingTransform<PerArray<Formula>> {
  static constexpr bool can_be_gated = true;

  template <class Model>
  using State = typename detail::StateOf<Formula, Model>::Type;

  template <class Model>
  State<Model> init(const Model& params) const {
    State<Model> state = detail::with_trees<Model, State<Model>>(params);
    detail::make_initial(nn::leaves(state), nn::bare_arrays(params).arrays.size(),
                         detail::initial_of<detail::trees_in<Model, State<Model>>(), Formula>(*this));
    return state;
  }

  template <class Model>
  void run(Model& updates, State<Model>& state, const Model& params, const detail::UpdateStep&) const {
    int64_t count = 1;
    if constexpr (requires { state.count; }) count = ++state.count;
    detail::per_array(Formula::name, nn::leaves(updates), nn::leaves(state), detail::trees_in<Model, State<Model>>(),
                      nn::leaves(params), count, [this](const ArrayStep& step) { return Formula::operator()(step); });
  }
};

// States that several formulas share.
template <class Model>
struct AdamState {
  int64_t count = 0;
  Model mu, nu;
};
template <class Model>
struct MomentumState {
  int64_t count = 0;
  Model mu;
};

namespace detail {
// Return b m + (1 - b) x, and m / (1 - b^t).
Array moment(const Array& m, const Array& x, double b);
Array unbiased(const Array& m, double b, int64_t t);
// Returns the first moment as Adam uses it; with nesterov, b1 m / (1 - b1^(t+1)) + (1 - b1) g / (1 - b1^t).
Array first_moment(const Array& m, const Array& g, double b1, int64_t t, bool nesterov);
}  // namespace detail

}  // namespace tessera::optim
