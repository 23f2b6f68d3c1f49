// Optimizer: a transform with its state, which updates a model in place and in bulk.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include "nn/tree/tree.h"
#include "optim/formulas/global_norm.h"
#include "optim/optimizer/optimizers.h"
#include "optim/optimizer/update_checks.h"
#include "optim/transform/state_placement.h"
#include "optim/transform/update_step.h"
#include "optim/wrappers/masking.h"
#include "optim/wrappers/wrappers.h"
#include "sharding/accounting/finite_check.h"
#include "sharding/base/caller.h"
#include "sharding/base/dependent_false.h"
#include "sharding/events/observer.h"

namespace tessera::optim {

namespace detail {
struct ReadCounts {
  template <class T>
  void operator()(T& part, const nn::detail::Place&) const {
    if constexpr (requires { part.read_counts(); }) part.read_counts();
  }
};
template <class State>
void read_counts(State& state) {
  nn::detail::walk_all(state, ReadCounts());
}

template <class T>
inline constexpr bool accumulates = false;
template <class Inner>
inline constexpr bool accumulates<MultiSteps<Inner>> = true;

template <class Self>
void take_transform(const InPlaceTransform<Self>&);

struct NotGiven {};  // replaces a missing transform or model

// True, or a compile-time error before anything else of an optimizer is compiled.
template <class Model, class Transform>
constexpr bool check_transform() {
  if constexpr (std::same_as<Transform, NotGiven>) {
    static_assert(tessera::detail::dependent_false<Model>,
                  "tessera: an optimizer has a model and a transform: Optimizer(model, transform).");
  } else if constexpr (requires(const Model& model) { take_transform(model); }) {
    static_assert(tessera::detail::dependent_false<Model>,
                  "tessera: the model comes first: Optimizer(model, transform).");
  } else if constexpr (nn::detail::check_tree<Model>()) {
    static_assert(
        TransformOf<Transform, Model>,
        "tessera: an optimizer's transform has init(params) and update(grads, state, params) -> {updates, state}.");
    return TransformOf<Transform, Model>;
  }
  return false;
}

// Does not compile code that depends on a mistake, so that the compiler reports one sentence.
template <class Model, class Transform, bool fits>
struct InitialState {
  using Type = EmptyState;
  static Type of(const Model&, const Transform&) { return {}; }
};
template <class Model, class Transform>
struct InitialState<Model, Transform, true> {
  using Type = decltype(std::declval<const Transform&>().init(std::declval<const Model&>()));
  static Type of(const Model& model, const Transform& transform) { return transform.init(model); }
};
}  // namespace detail

// The last step of training:
//   auto optimizer = optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(1.0),
//                                                         optim::adamw({.learning_rate = 3e-4})));
//   optimizer.update(model, grads);
// The state has the sharding of the model's parameters. An optimizer is a tree: named("optimizer", optimizer) lists the
// arrays optimizer.state.1.mu.layers.0.kernel and so on. The masks of fused weight decays and the labels of partitions
// are called at the first update, and again when other parameters are absent than before.
template <class Model, class Transform>
class Optimizer {
  static constexpr bool fits = detail::check_transform<Model, Transform>();
  using Initial = detail::InitialState<Model, Transform, fits>;

 public:
  using State = typename Initial::Type;

  // Errors: an axis of the options that the mesh does not have (unknown_axis), or that is given twice
  // (invalid_argument).
  Optimizer(const Model& model, Transform transform, OptimizerOptions options = {})
      : transform_(std::move(transform)),
        options_(checked(std::move(options), model)),
        state_(Initial::of(with_state(model, model), transform_)),
        made_for_(model) {
    nn::check_distinct(nn::leaves(model), "Optimizer");
  }
  // A mistake: a transform or a model alone.
  explicit Optimizer(const Model&) requires std::same_as<Transform, detail::NotGiven>;

  // The same result as transform.update and apply_updates. A chain that ends with adam, adamw or sgd is computed by one
  // fused kernel over all blocks of all parameters, into the memory of the parameters and moments; so is such a chain
  // as a part of a partition, and within named_chain, masked, inject_hyperparams, apply_if_finite and accumulate. An
  // array whose storage another copy shares (`auto best = model;`) is copied first, so that the copy is not changed.
  // Gradients are only read; update(model, std::move(grads)) scales them in place, which
  // takes no memory. Gradients that are pending sums are reduced first, all together (by accumulate at every k-th
  // update). In a captured step (nn/transformations/graphed_step.h) chains that end with the kernels' are repeated
  // without the host, but for the count and the learning rate; parts that count or decide on the host are refused there
  // (invalid_argument), as are schedules of the weight decay.
  // After an error, model and state are unchanged, with one exception: with shard_state_over, memory may run out while
  // the updated parameters are gathered. Then model, state and count() contain the update, and the parameters stay
  // sharded like their state. You can continue training; filter_shard restores the parameters' sharding. Errors:
  // gradients that are all absent, of another model, or of one that this optimizer was not made for (invalid_argument,
  // shape_mismatch, dtype_mismatch, device_mismatch), a state on another mesh than the model (device_mismatch), arrays
  // that value_and_grad records (no_gradient), and the transform's own. NaN is checked for by DetectNonFinite only
  // (not_finite): see apply_if_finite.
  void update(Model& model, Model grads, const ExtraArgs& extra = {},
              std::source_location where = std::source_location::current()) {
    const CallerScope caller(where);
    const tessera::detail::ActivityScope updating(tessera::detail::Activity::update);
    detail::check_captured(&model, this);
    check(model, grads);
    const auto before = backup(model, grads);
    try {
      if (!detail::accumulates<Transform>) place(grads, model);
      if (options_.shard_state_over.empty() || is_accumulating())
        step(model, std::move(grads), extra);
      else
        step_in_shards(model, std::move(grads), extra);
      if (tessera::detail::checks_finite()) detail::check_finite_update(nn::leaves(model), nn::leaves(state_, "state"));
    } catch (...) {
      if (before) restore(model, *before);
      throw;
    }
    detail::at_each_update([this] { ++count_; });
  }

  const Transform& transform() const { return transform_; }
  // Reads from the accelerator the counts that it keeps (apply_if_finite).
  const State& state() const { return const_cast<Optimizer&>(*this).state(); }
  State& state() {
    detail::read_counts(state_);
    return state_;
  }

  // Returns the number of updates done.
  int64_t count() const { return count_; }
  // The learning rate that the last update used, wherever it is in the transform; 0 before the first update, behind a
  // restore too, and if there is none. If parts of a partition have different rates, give a label,
  // learning_rate("matrices"); the labels of nested partitions are joined by dots. Error (invalid_argument): a label
  // without a rate, or no label although the rates differ.
  double learning_rate(const std::string& label = "") const {
    return count_ == 0 ? 0 : detail::value_of_label("learning_rate", metrics_.learning_rates, label).value_or(0);
  }
  // The norm of the gradients that clip_by_global_norm saw in the last update; std::nullopt before the first, and if
  // the transform has none. By label as above. Error (invalid_argument): the model is on a mesh that has no values
  // here, an abstract one or one over the devices of other processes.
  std::optional<double> grad_norm(const std::string& label = "") const {
    return detail::value_of_label("grad_norm", metrics_.norms, label);
  }

  // Identifies this optimizer and its copies. An optimizer with other options has another identity.
  const std::shared_ptr<const void>& identity() const { return identity_; }

  // A mistake: an optimizer has no text.
  friend std::ostream& operator<<(std::ostream& out, const Optimizer&) {
    static_assert(tessera::detail::dependent_false<Model>,
                  "tessera: of an optimizer print nn::tree_summary(optimizer).");
    return out;
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
      if (made_for_.has_other_parts(params.arrays)) mask_cache_.all.clear();
      made_for_.check(nn::leaves(model), params);
      detail::check_gradients(nn::leaves(model), nn::leaves(grads));
    }
    if (!options_.shard_state_over.empty()) detail::check_axes(params.arrays, options_);
    if (!detail::on_mesh_of(params.arrays, nn::bare_arrays(state_).arrays))
      detail::check_state_mesh(nn::leaves(model), nn::leaves(state_, "state"));
  }

  // The values before an update, if an error may follow the first write: values are checked, or a guard may refuse to
  // gather updated parameters.
  struct Before {
    Model model;
    State state;
    detail::Metrics metrics;
    int64_t count;
  };
  std::optional<Before> backup(const Model& model, const Model& grads) const {
    const bool checks = tessera::detail::checks_finite();
    if (checks) detail::check_finite_gradients(nn::leaves(grads));
    if (!checks && (options_.shard_state_over.empty() || !detail::is_guarded())) return std::nullopt;
    return Before{model, state_, metrics_, count_};
  }
  void restore(Model& model, const Before& before) {
    model = before.model;
    state_ = before.state;
    metrics_ = before.metrics;
    count_ = before.count;
  }

  // Whether this is an update of accumulate before the k-th, which does not change the model.
  bool is_accumulating() const {
    if constexpr (detail::accumulates<Transform>)
      return !transform_.completes(state_);
    else
      return false;
  }

  // Returns a copy of `tree`, sharded like the state of `model`.
  Model with_state(Model tree, const Model& model) const {
    if (!options_.shard_state_over.empty())
      detail::place_with_state(nn::bare_arrays(tree).arrays, nn::bare_arrays(model).arrays, options_);
    return tree;
  }

  // Reshards gradients like the state of `model`.
  void place(Model& updates, const Model& model) const {
    const detail::Arrays arrays = nn::bare_arrays(updates).arrays, params = nn::bare_arrays(model).arrays;
    if (!options_.shard_state_over.empty())
      detail::place_with_state(arrays, params, options_);
    else if (detail::needs_placement(arrays, params))
      detail::place_with_parameters(arrays, params);
  }

  void step_in_shards(Model& model, Model updates, const ExtraArgs& extra) {
    Model shards = with_state(model, model);
    const Model before = shards;
    step(shards, std::move(updates), extra);
    try {
      detail::gather_updated(nn::bare_arrays(shards).arrays, nn::bare_arrays(before).arrays,
                             nn::bare_arrays(model).arrays);
    } catch (...) {
      ++count_;  // the state already contains this update
      throw;
    }
  }

  // Updates a model whose gradients and state have its sharding.
  void step(Model& model, Model updates, const ExtraArgs& extra) {
    detail::PendingUpdate pending(nn::bare_arrays(model).arrays, mask_cache_);
    if constexpr (fits) detail::UpdateStep{extra, &pending}(transform_, updates, state_, std::as_const(model));
    if (detail::any_given(nn::bare_arrays(updates).arrays)) pending.add(nn::leaves(model), nn::leaves(updates));
    pending.carry_out();
    detail::at_each_update([this, metrics = pending.metrics] { metrics_.take(*metrics); });
  }

  Transform transform_;
  OptimizerOptions options_;
  State state_;
  int64_t count_ = 0;
  std::shared_ptr<const void> identity_ = std::make_shared<char>();
  detail::Metrics metrics_;  // of the last update
  detail::MadeFor made_for_;
  detail::MaskCache mask_cache_;
};
template <class Only>
Optimizer(const Only&) -> Optimizer<Only, detail::NotGiven>;

}  // namespace tessera::optim
