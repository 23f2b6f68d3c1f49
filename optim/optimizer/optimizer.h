// Optimizer: a transform with its state, which updates a model in place with fused kernels.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "nn/placement/memory_errors.h"
#include "nn/tree/tree.h"
#include "optim/formulas/global_norm.h"
#include "optim/optimizer/optimizers.h"
#include "optim/transform/state_placement.h"
#include "optim/transform/update_step.h"
#include "optim/wrappers/masking.h"
#include "optim/wrappers/wrappers.h"
#include "sharding/accounting/finite_check.h"
#include "sharding/base/caller.h"
#include "sharding/base/error.h"
#include "sharding/base/thread_state.h"
#include "sharding/events/observer.h"

namespace tessera::optim {

namespace detail {

// Checks that an optimizer gets the model it was made for: the paths and shapes of its arrays.
class MadeFor {
 public:
  template <class Model>
  explicit MadeFor(const Model& model) : MadeFor(nn::leaves(model), nn::bare_arrays(model)) {}
  MadeFor(const nn::Leaves& params, const nn::BareArrays& bare);
  // Returns true if the model is the same as at the last check and the gradients fit it. It takes a few nanoseconds per
  // array. If it returns false, the full checks below decide.
  bool plainly_fits(const nn::BareArrays& params, const nn::BareArrays& grads) const;
  // Returns true if the set of absent arrays of the model has changed since the last check.
  bool has_other_parts(const Arrays& params) const;
  // Checks the model. Errors (invalid_argument, shape_mismatch): the model now has different arrays, or arrays of
  // different shapes.
  void check(const nn::Leaves& params, const nn::BareArrays& bare);

 private:
  struct Entry {
    std::string path;
    std::optional<Shape> shape;  // nullopt if the array is not trained
  };
  std::shared_ptr<const std::vector<Entry>> entries_;
  std::vector<const void*> types_;  // at the last check
  size_t structure_ = 0;
};

void check_gradients(const nn::Leaves& params, const nn::Leaves& grads);
// Throw Error (not_finite) while checks_finite(): before an update if a gradient has NaN or inf, and after it if a
// parameter or an array of the state does.
void check_finite_gradients(const nn::Leaves& grads);
void check_finite_update(const nn::Leaves& params, const nn::Leaves& state);
// Rethrows the exception that is handled, a failed allocation, with the bytes of the model and the state.
[[noreturn]] void rethrow_explained(const char* verb, const nn::Leaves& params, const nn::Leaves& state,
                                    const OptimizerOptions& options);
// Returns whether a guard of this thread may reject a communication.
bool is_guarded();
// Returns whether every array of the state that is on a mesh is on the model's mesh.
bool on_mesh_of(const Arrays& params, const Arrays& state);
// Throws Error (device_mismatch) if an array of the state is not on the model's mesh.
void check_state_mesh(const nn::Leaves& params, const nn::Leaves& state);
// Returns whether any array is not absent.
bool any_given(const Arrays& updates);
// Returns whether a gradient is a partial sum, or is on a mesh although its parameter is on none.
bool needs_placement(const Arrays& grads, const Arrays& params);

template <class T>
inline constexpr bool accumulates = false;
template <class Inner>
inline constexpr bool accumulates<MultiSteps<Inner>> = true;

template <class Self>
void take_transform(const InPlaceTransform<Self>&);

struct NotGiven {};  // replaces a missing transform or model

// Returns true, or fails to compile with one message before anything else of an optimizer is compiled.
template <class Model, class Transform>
constexpr bool check_transform() {
  if constexpr (std::same_as<Transform, NotGiven>) {
    static_assert(tessera::detail::dependent_false<Model>,
                  "tessera: an optimizer needs a model and a transform: Optimizer(model, transform).");
  } else if constexpr (requires(const Model& model) { take_transform(model); }) {
    static_assert(tessera::detail::dependent_false<Model>,
                  "tessera: the model must be the first argument: Optimizer(model, transform).");
  } else if constexpr (nn::detail::check_tree<Model>()) {
    static_assert(TransformOf<Transform, Model>,
                  "tessera: an optimizer's transform needs init(params), and update(grads, state, params) that returns "
                  "{updates, state}.");
    return TransformOf<Transform, Model>;
  }
  return false;
}

// Returns the state. If a static_assert has failed, `init` is not compiled, so that the compiler reports one sentence.
template <bool fits>
auto initial_state(const auto& model, const auto& transform) {
  if constexpr (fits)
    return transform.init(model);
  else
    return EmptyState();
}
}  // namespace detail

// Updates a model with a transform, the last step of training:
//   auto optimizer = optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(1.0),
//                                                         optim::adamw({.learning_rate = 3e-4})));
//   optimizer.update(model, grads);
// The state has the sharding of the model's parameters. An optimizer is a tree: named("optimizer", optimizer) lists the
// arrays optimizer.state.1.mu.layers.0.kernel and so on. The masks of fused weight decays and the labels of partitions
// are called at the first update. They are called again when the set of absent parameters changes.
template <class Model, class Transform>
class Optimizer {
  static constexpr bool fits = detail::check_transform<Model, Transform>();

 public:
  using State = decltype(detail::initial_state<fits>(std::declval<const Model&>(), std::declval<const Transform&>()));

  // Makes the state of the transform for a model.
  // Errors
  //   unknown_axis: an axis of the options that the mesh does not have
  //   invalid_argument: an axis that is given twice
  //   invalid_argument: pinned_host for a transform that is not a formula for one array or a chain of such formulas
  Optimizer(const Model& model, Transform transform, OptimizerOptions options = {})
      : transform_(std::move(transform)),
        options_(checked(std::move(options), model)),
        state_(make_state(model)),
        made_for_(model) {
    nn::check_distinct(nn::leaves(model), "Optimizer");
  }
  // Diagnoses a common mistake: a transform or a model alone.
  explicit Optimizer(const Model&) requires std::same_as<Transform, detail::NotGiven>;

  // Updates the model and the state, with the same result as transform.update and apply_updates.
  //
  // A chain that ends with adam, adamw or sgd is computed by one fused kernel over all blocks of all parameters, in
  // place. This also holds for such a chain inside partition, named_chain, masked, inject_hyperparams, apply_if_finite
  // and accumulate. An array whose storage is shared with another copy (`auto best = model;`) is copied first, so that
  // the other copy does not change. Gradients are only read. update(model, std::move(grads)) scales them in place,
  // which takes no memory. Gradients that are partial sums are reduced first, all together (with accumulate, at every
  // k-th update).
  //
  // In a graphed step (nn/transformations/graphed_step.h), chains that end with such a kernel are replayed without the
  // host, except for the count and the learning rate. Transforms that count or decide on the host throw there
  // (invalid_argument), and so do schedules of the weight decay, and states in host memory.
  //
  // After an error, model and state are unchanged, with one exception: with shard_state_over, memory may run out while
  // the updated parameters are gathered. Then model, state and count() contain the update, and the parameters stay
  // sharded like their state. You can continue training; filter_shard restores the parameters' sharding. Only
  // DetectNonFinite checks for NaN (not_finite); see also apply_if_finite.
  // Errors
  //   invalid_argument, shape_mismatch, dtype_mismatch, device_mismatch: gradients that are all absent or belong to
  //     another model; a model for which this optimizer was not made
  //   device_mismatch: a state that is not on the model's mesh
  //   out_of_memory: the message has the largest arrays, and the bytes of the state with shard_state_over
  //   no_gradient: arrays that value_and_grad records
  //   those of the transform
  void update(Model& model, Model grads, const ExtraArgs& extra = {},
              std::source_location where = std::source_location::current()) {
    const CallerScope caller(where);
    const tessera::detail::ActivityScope updating(tessera::detail::Activity::update);
    detail::check_captured(&model, this);
    check(model, grads);
    if (options_.state_memory_kind == MemoryKind::pinned_host) detail::move_to_host(nn::bare_arrays(state_).arrays);
    const auto before = backup(model, grads);
    try {
      if (!detail::accumulates<Transform>) place(grads, model);
      if (options_.shard_state_over.empty() || is_accumulating())
        step(model, std::move(grads), extra);
      else
        step_in_shards(model, std::move(grads), extra);
      if (tessera::detail::checks_finite()) detail::check_finite_update(nn::leaves(model), nn::leaves(state_, "state"));
    } catch (...) {
      if (before) std::tie(model, state_, metrics_, count_) = *before;
      if (nn::detail::is_out_of_memory())
        detail::rethrow_explained("Optimizer.update", nn::leaves(model), nn::leaves(state_, "state"), options_);
      throw;
    }
    detail::at_each_update([this] { ++count_; });
  }

  const Transform& transform() const { return transform_; }
  // Returns the state. Counts that an accelerator keeps (apply_if_finite) are read first.
  const State& state() const { return const_cast<Optimizer&>(*this).state(); }
  State& state() {
    nn::detail::walk_all(state_, [](auto& part, const nn::detail::Place&) {
      if constexpr (requires { part.read_counts(); }) part.read_counts();
    });
    return state_;
  }

  // Returns the number of updates done.
  int64_t count() const { return count_; }
  // Returns the learning rate of the last update, from any part of the transform. It is 0 before the first update,
  // after a restore until the next update, and for transforms without a rate. If parts of a partition have different
  // rates, pass a label: learning_rate("matrices"). Labels of nested partitions are joined by dots. Error
  // (invalid_argument): a label without a rate; no label although the rates differ.
  double learning_rate(const std::string& label = "") const {
    return count_ == 0 ? 0 : detail::value_of_label("learning_rate", metrics_.learning_rates, label).value_or(0);
  }
  // Returns the norm of the gradients in clip_by_global_norm at the last update. It is std::nullopt before the first
  // update, and if the transform has no such part. Labels: as learning_rate. Error (invalid_argument): the model is on
  // a mesh without values in this process (abstract, or over devices of other processes).
  std::optional<double> grad_norm(const std::string& label = "") const {
    return detail::value_of_label("grad_norm", metrics_.norms, label);
  }

  // Identifies this optimizer and its copies. An optimizer with other options has another identity.
  const std::shared_ptr<const void>& identity() const { return identity_; }

  // Diagnoses a common mistake: an optimizer cannot be printed.
  friend std::ostream& operator<<(std::ostream& out, const Optimizer&) {
    static_assert(tessera::detail::dependent_false<Model>,
                  "tessera: to print an optimizer, use nn::tree_summary(optimizer).");
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
    // The arrays of a state that can be gated belong to formulas of single arrays.
    if constexpr (!detail::can_be_gated<Transform>) detail::check_on_device(options);
    return options;
  }

  State make_state(const Model& model) const try {
    const tessera::detail::ScopedValue memory(detail::new_state_memory_kind(), options_.state_memory_kind);
    return detail::initial_state<fits>(with_state(model, model), transform_);
  } catch (...) {
    if (nn::detail::is_out_of_memory()) detail::rethrow_explained("Optimizer", nn::leaves(model), {}, options_);
    throw;
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

  // Returns model, state, metrics and count before an update, if an error may follow the first write. This is the case
  // if values are checked, or if a guard may reject the gather of updated parameters.
  std::optional<std::tuple<Model, State, detail::Metrics, int64_t>> backup(const Model& model,
                                                                           const Model& grads) const {
    const bool checks = tessera::detail::checks_finite();
    if (checks) detail::check_finite_gradients(nn::leaves(grads));
    if (!checks && (options_.shard_state_over.empty() || !detail::is_guarded())) return std::nullopt;
    return std::tuple(model, state_, metrics_, count_);
  }

  // Returns true for an update of accumulate before the k-th, which does not change the model.
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

  // Updates a model whose gradients and state have the same sharding as its parameters.
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
  detail::Metrics metrics_;  // numbers that the last update reported
  detail::MadeFor made_for_;
  detail::MaskCache mask_cache_;
};
template <class Only>
Optimizer(const Only&) -> Optimizer<Only, detail::NotGiven>;

}  // namespace tessera::optim
