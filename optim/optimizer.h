// Optimizer: a transform with its state, which updates a model in place and in bulk.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "nn/tree/tree.h"
#include "optim/bulk.h"
#include "optim/clipping.h"
#include "optim/global_norm.h"
#include "optim/optimizers.h"
#include "optim/parts.h"
#include "optim/state_placement.h"
#include "optim/wrappers.h"
#include "sharding/diagnostics/caller.h"

namespace tessera::optim {

namespace detail {
template <class T>
inline constexpr bool accumulates = false;
template <class Inner>
inline constexpr bool accumulates<MultiSteps<Inner>> = true;
}  // namespace detail

// The last step of training:
//   auto optimizer = optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(1.0),
//                                                         optim::adamw({.learning_rate = 3e-4})));
//   optimizer.update(model, grads);
// The state lies where the model's parameters lie. An optimizer is a tree: named("optimizer", optimizer) lists the
// arrays optimizer.state.1.mu.layers.0.kernel and so on. The masks of fused weight decays and the labels of partitions
// are called at the first update, and again when other parameters are absent than before.
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
        state_(transform_.init(with_state(model, model))),
        made_for_(model) {
    nn::check_distinct(nn::leaves(model), "Optimizer");
  }

  // The same result as transform.update and apply_updates. A chain that ends with adam, adamw or sgd is computed by one
  // fused kernel over all blocks of all parameters, into the memory of the parameters and moments; so is such a chain
  // as a part of a partition, and within named_chain, inject_hyperparams, apply_if_finite and accumulate. An array
  // whose storage another copy shares (`auto best = model;`) is copied first, so that the copy is not changed. `grads`
  // is only read; gradients that are pending sums are reduced first, all together (by accumulate at every k-th update).
  // After an error, model and state are unchanged. Errors: gradients that are all absent, of another model, or of one
  // that this optimizer was not made for (bad_argument, shape_mismatch, dtype_mismatch, device_mismatch), a state on
  // another mesh than the model (device_mismatch), arrays that value_and_grad records (no_gradient), and the
  // transform's own. NaN is not checked for: see apply_if_finite.
  void update(Model& model, const Model& grads, const ExtraArgs& extra = {},
              std::source_location where = std::source_location::current()) {
    const CallerScope caller(where);
    check(model, grads);
    if constexpr (detail::accumulates<Transform>)
      accumulate_and_step(model, grads, extra);
    else
      place_and_step(transform_, state_, model, grads, extra);
    ++count_;
  }

  const Transform& transform() const { return transform_; }
  const State& state() const { return state_; }
  State& state() { return state_; }

  // Updates done.
  int64_t count() const { return count_; }
  // The learning rate that the last update used, wherever it is in the transform; 0 before the first update, and if
  // there is none. If parts of a partition have different rates, give a label, learning_rate("matrices"); the labels of
  // nested partitions are joined by dots. Error (bad_argument): a label without a rate, or no label although the rates
  // differ.
  double learning_rate(const std::string& label = "") const {
    return count_ == 0 ? 0 : detail::number_of("learning_rate", learning_rates_, label).value_or(0);
  }
  // The norm of the gradients that clip_by_global_norm saw in the last update; std::nullopt if the transform has none.
  // By label as above.
  std::optional<double> grad_norm(const std::string& label = "") const {
    return detail::number_of("grad_norm",
                             detail::numbers_of<ClipByGlobalNorm>(
                                 transform_, state_, [](const auto&, const auto& state) { return state.norm; }),
                             label);
  }

  template <class Visit>
  void visit_fields(Visit&& visit) {
    visit(std::string_view("count"), count_);
    visit(std::string_view("state"), state_);
  }

 private:
  static OptimizerOptions checked(OptimizerOptions options, const Model& model) {
    detail::check_axes(nn::bare_arrays(model).arrays, options);
    return options;
  }

  void check(Model& model, const Model& grads) {
    const nn::BareArrays params = nn::bare_arrays(model);
    if (!made_for_.plainly_fits(params, nn::bare_arrays(grads))) {
      if (made_for_.has_other_parts(params.arrays)) answers_.forget();
      made_for_.check(nn::leaves(model), params);
      detail::check_gradients(nn::leaves(model), nn::leaves(grads));
    }
    if (!options_.shard_state.empty()) detail::check_axes(params.arrays, options_);
    if constexpr (detail::accumulates<Transform>) check_state(model);
  }
  void check_state(const Model& model) {
    if (!detail::on_mesh_of(nn::bare_arrays(model).arrays, nn::bare_arrays(state_).arrays))
      detail::check_state_mesh(nn::leaves(model), nn::leaves(state_, "state"));
  }

  // A copy of `tree` that lies where the state of `model` lies.
  Model with_state(Model tree, const Model& model) const {
    if (!options_.shard_state.empty())
      detail::place_with_state(nn::bare_arrays(tree).arrays, nn::bare_arrays(model).arrays, options_);
    return tree;
  }

  // Adds the gradients up in their own placements; at every k-th update their mean is passed to the inner transform.
  void accumulate_and_step(Model& model, const Model& grads, const ExtraArgs& extra) {
    Model acc = transform_.added(grads, state_);
    if (!transform_.completes(state_)) {
      state_.mini_step += 1;
      state_.acc_grads = std::move(acc);
      return;
    }
    // No copy of the model may live during the step, or its arrays would not be written to but replaced.
    acc = transform_.finished(with_state(std::move(acc), model), with_state(model, model));
    place_and_step(transform_.opt, state_.inner_opt_state, model, acc, extra);
    transform_.begin_anew(state_, with_state(model, model));
  }

  template <class T, class S>
  void place_and_step(const T& transform, S& state, Model& model, const Model& grads, const ExtraArgs& extra) {
    if (!options_.shard_state.empty()) return step_in_shards(transform, state, model, grads, extra);
    const nn::BareArrays params = nn::bare_arrays(model);
    if (!detail::lies_elsewhere(nn::bare_arrays(grads).arrays, params.arrays))
      return step(transform, state, model, grads, extra);
    Model placed = grads;
    detail::place_with_parameters(nn::bare_arrays(placed).arrays, params.arrays);
    step(transform, state, model, placed, extra);
  }

  template <class T, class S>
  void step_in_shards(const T& transform, S& state, Model& model, const Model& grads, const ExtraArgs& extra) {
    const Model placed = with_state(grads, model);
    Model shards = with_state(model, model);
    const Model before = shards;
    step(transform, state, shards, placed, extra);
    detail::gather_updated(nn::bare_arrays(shards).arrays, nn::bare_arrays(before).arrays,
                           nn::bare_arrays(model).arrays);
  }

  // The update where everything lies alike.
  template <class T, class S>
  void step(const T& transform, S& state, Model& model, const Model& grads, const ExtraArgs& extra) {
    auto rates = detail::numbers_of<ScaleByLearningRate>(
        transform, state, [](const auto& part, const auto& part_state) { return part.value(part_state.count); });
    const std::function<void()> check_state = [&] { this->check_state(model); };
    const detail::InPlace<Model> in_place{model,    grads,      nn::bare_arrays(model).arrays, nullptr, extra,
                                          answers_, check_state};
    detail::Plan plan;
    detail::make_plan(transform, state, in_place, plan);
    plan.carry_out();
    learning_rates_ = std::move(rates);
  }

  Transform transform_;
  OptimizerOptions options_;
  State state_;
  int64_t count_ = 0;
  detail::LabelledNumbers learning_rates_;  // of the last update
  detail::MadeFor made_for_;
  detail::Answers answers_;
};

}  // namespace tessera::optim
