// Makes shadows, and runs the backward pass over computations with them.
#include "sharding/autodiff/tape.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "sharding/accounting/communication_event.h"
#include "sharding/accounting/finite_check.h"
#include "sharding/array/abstract_tensor.h"
#include "sharding/array/array_impl.h"
#include "sharding/array/autograd.h"
#include "sharding/array/out_of_memory.h"
#include "sharding/array/tape_state.h"
#include "sharding/autodiff/backpropagation.h"
#include "sharding/autodiff/weights/weight_policy.h"
#include "sharding/base/fail.h"
#include "sharding/base/thread_state.h"
#include "sharding/events/observer.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/placement/type.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/stages.h"

namespace tessera {

using namespace detail;

namespace {

// The state of a Tape. `weights` is null until the parameters have shadows, and in a nested tape.
struct OpenTape : TapeState {
  std::unique_ptr<WeightPolicy> weights;
};
WeightPolicy* weights_of(const std::shared_ptr<TapeState>& tape) {
  return static_cast<const OpenTape&>(*tape).weights.get();
}

}  // namespace

struct Tape::Guard {
  Guard(const std::shared_ptr<TapeState>& tape, bool several_slots)
      : current(current_tape(), tape.get()), policy(conversion_policy(), weights_of(tape)), alone(several_slots) {}
  ScopedValue<TapeState*> current;
  ScopedValue<ConversionPolicy*> policy;
  ScopedIntraOpThreads alone;
  at::AutoGradMode recording{true};
};

namespace {

// Disables reshard_after_forward if the backward pass is recorded: its graph reads the weights again later.
std::shared_ptr<TapeState> opened(GradientOptions options) {
  auto state = std::make_shared<OpenTape>();
  state->nested = current_tape() && options.differentiable.value_or(at::GradMode::is_enabled());
  options.reshard_after_forward = options.reshard_after_forward && !state->nested;
  state->options = options;
  return state;
}

Tensors detached_tensors(const ArrayImpl& a) {
  Tensors local;
  for (const at::Tensor& t : a.local) local.push_back(t.detach());
  return local;
}

// Makes the shadow of a parameter. The shadow of a pending parameter waits for it at its first use.
Array shadow_of(const Array& x, const std::shared_ptr<TapeState>& state) {
  if (x.is_absent() || !is_floating(x.dtype())) return x;
  const Type* given = x.impl()->type;
  const Type* type = at_rest(given);  // a gradient is a value, not a partial sum
  const bool depends = state->nested && wants_gradient(*x.impl());
  const bool comes = state_of(x) == ArrayState::pending && type == given && !depends;
  if (!comes) materialized(x, "value_and_grad");
  at::AutoGradMode off(false);
  const ArrayPtr value =
      comes ? x.impl() : convert(*x.impl(), x.impl(), type, {.operation = "value_and_grad", .where = {}});
  const ArrayImpl& a = *value;
  ArrayPtr shadow = make_array(type, a.slots, comes ? Tensors() : detached_tensors(a));
  shadow->weight = true;
  shadow->mesh_rules = a.mesh_rules;
  Details& details = shadow->detail();
  details.tape = state;
  if (comes) set_pending(*shadow, [x] { return detached_tensors(materialized(x, "value_and_grad")); });
  if (depends) state->outside[shadow.get()] = x.impl();
  if (a.details) {
    details.path = a.details->path;
    if (a.details->placed && type == given) details.placed = std::make_unique<NamedSharding>(*a.details->placed);
  }
  return Array(std::move(shadow));
}

// Returns the mesh of the first placed parameter.
const MeshImpl* mesh_of(const std::vector<Array>& parameters) {
  for (const Array& x : parameters)
    if (!x.is_absent() && x.impl()->type->mesh) return x.impl()->type->mesh;
  return nullptr;
}

void communicate_in_groups(OpenTape& tape, const std::vector<Array>& shadows) {
  std::vector<ArrayPtr> traced;
  for (const Array& x : shadows)
    if (is_traced(x)) traced.push_back(x.impl());
  tape.weights = std::make_unique<WeightPolicy>(tape, std::move(traced));
  conversion_policy() = tape.weights.get();  // the Guard restores the previous policy
}

// Returns the array to differentiate: the loss without reduced axes, or the leaf if the loss is a parameter itself.
ArrayPtr root_of(const Array& loss) {
  if (loss.is_absent())
    fail(ErrorKind::missing_array, "value_and_grad",
         "the loss is an absent array, expected a floating scalar. Return one from the loss function.");
  if (loss.ndim() == 0 && !is_floating(loss.dtype()))
    fail(ErrorKind::dtype_mismatch, "value_and_grad",
         "the loss is {}, expected a floating scalar. Cast it with astype.", loss.type_string());
  if (loss.ndim() != 0)
    fail(ErrorKind::shape_mismatch, "value_and_grad",
         "the loss is {}, expected a floating scalar. Reduce it, for example with mean.", loss.type_string());
  materialized(loss, "value_and_grad");
  ArrayPtr root = loss.impl();
  if (root->type->reduced || is_tape_parameter(*root))
    root = convert(*root, root, with_reduced(root->type, 0),
                   {.operation = "loss", .where = {}, .reason = returned_value_reason()});
  if (!wants_gradient(*root)) fail_no_gradient();
  return root;
}

}  // namespace

Tape::Tape(const std::vector<Array>& parameters, const GradientOptions& options)
    : state_(opened(options)),
      guard_(std::make_unique<Guard>(state_, std::any_of(parameters.begin(), parameters.end(), lies_in_slots))) {
  if (options.reduce_dtype && !is_floating(*options.reduce_dtype))
    fail(ErrorKind::dtype_mismatch, "value_and_grad",
         "reduce_dtype: {} given, expected a floating type to sum gradients in.", name_of(*options.reduce_dtype));
  if (options.prefetch_groups < 0)
    fail(ErrorKind::invalid_argument, "value_and_grad",
         "prefetch_groups: {} given, expected the number of groups to prefetch, 0 for none.", options.prefetch_groups);
  check_axes("value_and_grad", "shard_gradients_over", options.shard_gradients_over, mesh_of(parameters));
  for (const Array& x : parameters) shadows_.push_back(shadow_of(x, state_));
  state_->first_stage = first_stage_of(shadows_);
  if (!state_->nested) communicate_in_groups(static_cast<OpenTape&>(*state_), shadows_);
  if (const auto& meter = current_meter()) meter->begin_forward();
}

void Tape::pause() { guard_.reset(); }
void Tape::resume() {
  guard_ = std::make_unique<Guard>(state_, std::any_of(shadows_.begin(), shadows_.end(), lies_in_slots));
}

Tape::~Tape() {
  state_->open = false;
  guard_.reset();  // before the policy is destroyed
  static_cast<OpenTape&>(*state_).weights.reset();
  for (const Array& x : shadows_) {
    if (!is_traced(x)) continue;
    Details& details = *x.impl()->details;
    details.tape = nullptr;
    details.leaves.clear();
    details.conversions.clear();
  }
}

namespace {

// Reduces sums over manual axes here: outside the shard_map they could not be reduced any more.
void sum_over_manual_axes(std::vector<Array>& gradients) {
  static const Text reason = lasting_text("a gradient varies in a shard_map only where its parameter does");
  const at::AutoGradMode off(false);
  for (Array& x : gradients) {
    const Type* type = x.is_absent() ? nullptr : x.impl()->type;
    if (!type || !(type->unreduced & manual_axes().axes)) continue;
    const ArrayPtr sum = convert(*x.impl(), x.impl(), with_unreduced(type, type->unreduced & ~manual_axes().axes),
                                 {.operation = gradients_operation, .where = {}, .reason = reason, .path = {}});
    copy_facts(*x.impl(), *sum);
    x = Array(sum);
  }
}

// Checks gradients whose terms were all finite.
void check_sums(const std::vector<Array>& gradients, const std::vector<Array>& shadows) {
  for (size_t i = 0; i < gradients.size(); ++i)
    check_value({.verb = gradients_operation,
                 .path = shadows[i].path(),
                 .what = "the sum of the gradients of all uses and devices,",
                 .advice = "Scale the loss down, or sum gradients in a wider element type."},
                gradients[i]);
}

}  // namespace

std::vector<Array> Tape::gradients(const Array& loss, std::source_location where) try {
  const CallerScope caller(where);
  const ActivityScope backward_pass(Activity::backward);
  if (const auto& meter = current_meter()) meter->end_forward();
  if (state_->spent)
    fail(ErrorKind::no_gradient, "value_and_grad",
         "the gradients of this tape were computed already: its graph is gone. Open another, or sum the losses.");
  const ArrayPtr root = root_of(loss);
  state_->spent = true;
  Backpropagation backward(shadows_, *state_, weights_of(state_));
  {
    const ScopedValue now(differentiated_tape(), state_.get());
    backward.run(*root);
  }
  if (WeightPolicy* const weights = weights_of(state_)) weights->gathers().end_step();
  at::AutoGradMode recorded(state_->nested);
  std::vector<Array> gradients = state_->nested ? backward.finish_recorded() : backward.finish();
  if (!state_->options.reduce) sum_over_manual_axes(gradients);
  if (checks_finite()) check_sums(gradients, shadows_);
  for (const Array& x : gradients)
    if (!x.is_absent()) x.impl()->gradient = true;
  return gradients;
} catch (const std::exception& error) {
  const MeshImpl* mesh = mesh_of(shadows_);
  check_allocation(error, gradients_operation, where, "to add and reduce them",
                   mesh ? mesh->device : c10::Device(c10::kCPU));
  throw;
}

Array detail::drop_graph(const Array& x) {
  if (x.is_absent()) return x;
  at::AutoGradMode off(false);
  const ArrayImpl& a = materialized(x, "value_and_grad");
  ArrayPtr plain = make_array(a.type, a.slots, detached_tensors(a));
  plain->mesh_rules = a.mesh_rules;
  return Array(std::move(plain));
}

Array detail::finalize_result(const Array& x, std::source_location where) {
  if (x.is_absent()) return x;
  at::AutoGradMode off(false);
  const ArrayPtr plain = drop_graph(x).impl();
  const ArrayImpl& a = *plain;
  const MeshImpl* whole = whole_of(a.type->mesh);
  if (!a.type->unreduced && !a.type->reduced && whole == a.type->mesh) return Array(plain);
  const Type* value = at_rest(a.type);
  return Array(convert(*plain, plain, whole == a.type->mesh ? value : type_on(value, whole),
                       {.operation = "loss", .where = where, .reason = returned_value_reason()}));
}

}  // namespace tessera
