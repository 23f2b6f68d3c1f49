// Records a pullback on arrays as one function of their local tensors.
#include "sharding/operations/custom_gradient.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <string>

#include "sharding/array/autograd.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/fail.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/placement/type.h"
#include "sharding/propagation/plan.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/varying.h"

namespace tessera::detail {
namespace {

constexpr char verb[] = "custom_gradient";

Provenance cause_at(CallerLine where) { return {.operation = verb, .where = where, .reason = {}, .path = {}}; }

std::vector<Array> as_values(std::vector<Array> arrays, const Provenance& cause) {
  arrays = on_one_stage(std::move(arrays), cause);
  std::vector<const Type*> types;
  AxisSet varying = 0;
  for (const Array& x : arrays) types.push_back(materialized(x, verb).type);
  const MeshImpl* const mesh = common_mesh(verb, types);
  for (Array& x : arrays) {
    const ArrayPtr a = manual_axes().mesh ? inside(x, verb) : x.impl();
    x = Array(convert(*a, a, at_rest(on_mesh(a->type, mesh)), cause));
    varying |= a->type->varying;
  }
  for (Array& x : arrays) x = Array(varied(x.impl(), varying & ~x.impl()->type->varying, cause));
  return arrays;
}

// An array without its tensors.
struct Description {
  explicit Description(const ArrayImpl& a)
      : type(a.type), slots(a.slots), rules(a.mesh_rules), tensors(a.local.size()) {}
  const Type* type;
  AxisSet slots;
  const MeshRulesImpl* rules;
  size_t tensors;
  bool is_wanted = false;  // an argument with a gradient

  ArrayPtr with(Tensors local) const {
    ArrayPtr made = make_array(type, slots, std::move(local));
    made->mesh_rules = rules;
    return made;
  }
};

// The backward pass of one call.
struct PullbackCall {
  Pullback pullback;
  std::vector<Description> arguments;
  Description result;
  Provenance cause;
  ManualAxes manual = manual_axes();
  std::shared_ptr<const std::string> module = current_module_path();

  Tensors operator()(const Tensors& gradients) const {
    const ScopedValue same_manual(manual_axes(), manual);
    const ScopedValue same_module(current_module_path(), module);
    const std::vector<Array> made = pullback(Array(result.with(gradients)));
    if (made.size() != arguments.size())
      fail(ErrorKind::invalid_argument, verb, "`backward` returned {} arrays, expected {}: one per argument.",
           made.size(), arguments.size());
    Tensors tensors;
    // Without any gradient, the loss would seem not to depend on the arguments.
    const bool has_none = std::all_of(made.begin(), made.end(), [](const Array& g) { return g.is_absent(); });
    for (size_t i = 0; i < made.size(); ++i)
      if (const Description& a = arguments[i]; a.is_wanted)
        append(i, has_none ? zeros(a.type->shape, a.type->dtype) : made[i], a, tensors);
    return tensors;
  }

  void append(size_t i, const Array& gradient, const Description& argument, Tensors& tensors) const {
    if (gradient.is_absent()) return tensors.resize(tensors.size() + argument.tensors);
    const ArrayPtr given = as_values({gradient}, cause)[0].impl();
    const Type& from = *given->type;
    const Type& to = *argument.type;
    if (from.shape != to.shape || from.dtype != to.dtype)
      fail(from.shape != to.shape ? ErrorKind::shape_mismatch : ErrorKind::dtype_mismatch, verb,
           "`backward` returned {} for argument {}, expected {}.", from.to_string(), i, to.to_string());
    ArrayPtr placed = to.mesh ? convert(*given, given, on_mesh(&from, to.mesh), cause) : given;
    if (placed->type->mesh != to.mesh || (placed->type->varying & ~to.varying))
      fail(ErrorKind::device_mismatch, verb,
           "`backward` returned {} for argument {}, which is {}. Arrays that it captures may not add mesh axes.",
           from.to_string(), i, to.to_string());
    placed = varied(placed, to.varying & ~placed->type->varying, cause);
    placed = convert(*placed, placed, &to, cause);
    for (int slot = 0; slot < static_cast<int>(argument.tensors); ++slot)
      tensors.push_back(placed->local[project(to.mesh, argument.slots, slot, placed->slots)]);
  }
};

}  // namespace

bool records_any(const std::vector<Array>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const Array& x) { return wants_gradient(materialized(x, verb)); });
}

std::vector<Array> as_values(std::vector<Array> arrays, std::source_location where) {
  return as_values(std::move(arrays), cause_at(where));
}

Array with_pullback(const std::vector<Array>& arguments, const ForwardWithPullback& forward,
                    std::source_location where) {
  const Provenance cause = cause_at(where);
  std::vector<Description> described;
  Tensors inputs;
  for (const Array& x : arguments) {
    const ArrayImpl& a = *x.impl();
    described.emplace_back(a).is_wanted = wants_gradient(a);
    if (described.back().is_wanted) inputs.append(a.local.begin(), a.local.end());
  }
  auto [made, pullback] = [&] {
    const at::AutoGradMode mode(is_nested());  // a second derivative needs the graph of the residuals
    auto [result, pullback] = forward(arguments);
    return std::pair(as_values({result}, cause)[0].impl(), std::move(pullback));
  }();
  const Description result(*made);
  Tensors local = made->local;
  if (is_floating(result.type->dtype))
    record_custom(
        verb, inputs, {}, local,
        [call = PullbackCall{std::move(pullback), std::move(described), result, cause}](
            const Tensors& gradients, const Tensors&) { return call(gradients); },
        /*differentiable=*/true);
  return Array(result.with(std::move(local)));
}

}  // namespace tessera::detail
