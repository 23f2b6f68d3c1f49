// Checks that a model, its gradients and its optimizer state fit together.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "nn/placement/memory_errors.h"
#include "nn/placement/table.h"
#include "nn/tree/filter.h"
#include "optim/optimizer/optimizer.h"
#include "optim/transform/internal.h"
#include "sharding/accounting/communication_event.h"
#include "sharding/accounting/finite_check.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/error.h"
#include "sharding/base/fail.h"
#include "sharding/base/table.h"
#include "sharding/placement/type.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

namespace {

const MeshImpl* mesh_of(const Array& x) { return x.is_absent() ? nullptr : x.impl()->type->mesh; }
const Type* type_of(const Array& x) { return x.is_absent() ? nullptr : x.impl()->type; }

bool plainly_fits(const Type* gradient, const Type* parameter) {
  if (gradient == parameter || !gradient) return !gradient || is_floating(gradient->dtype);
  return parameter && gradient->dtype == parameter->dtype && is_floating(gradient->dtype) &&
         gradient->mesh == parameter->mesh && gradient->shape == parameter->shape;
}

// Returns whether no array occurs twice.
bool are_distinct(const Arrays& arrays) {
  std::unordered_set<const ArrayImpl*> seen;
  for (const Array* x : arrays)
    if (!x->is_absent() && !seen.insert(x->impl().get()).second) return false;
  return true;
}

}  // namespace

MadeFor::MadeFor(const nn::Leaves& params, const nn::BareArrays& bare) : structure_(bare.structure) {
  std::vector<Entry> entries;
  for (const nn::Leaf& p : params) {
    entries.push_back({p.path, nn::is_trainable(p) ? std::optional(p.value->shape()) : std::nullopt});
    types_.push_back(type_of(*p.value));
  }
  entries_ = std::make_shared<const std::vector<Entry>>(std::move(entries));
}

bool MadeFor::plainly_fits(const nn::BareArrays& params, const nn::BareArrays& grads) const {
  if (current_tape() || params.structure != structure_ || grads.structure != structure_ ||
      params.arrays.size() != types_.size() || grads.arrays.size() != types_.size())
    return false;
  size_t shared = 0, given = 0;
  for (size_t i = 0; i < types_.size(); ++i) {
    prefetch_next(params.arrays, i), prefetch_next(grads.arrays, i);
    const Type* type = type_of(*params.arrays[i]);
    given += !grads.arrays[i]->is_absent();
    shared += type && params.arrays[i]->impl().use_count() > 1;
    if (type != types_[i] || !detail::plainly_fits(type_of(*grads.arrays[i]), type)) return false;
    if (type && params.arrays[i]->impl()->gradient) return false;
  }
  return given > 0 && (shared < 2 || are_distinct(params.arrays));
}

bool MadeFor::has_other_parts(const Arrays& params) const {
  const auto alike = [](const Array* p, const void* type) { return !type_of(*p) == !type; };
  return !std::equal(params.begin(), params.end(), types_.begin(), types_.end(), alike);
}

void MadeFor::check(const nn::Leaves& params, const nn::BareArrays& bare) {
  constexpr const char* verb = "Optimizer.update";
  if (!entries_) tessera::detail::fail_moved(verb, "optimizer");
  for (size_t i = 0; i < std::min(params.size(), entries_->size()); ++i) {
    const nn::Leaf& p = params[i];
    const Entry& entry = (*entries_)[i];
    if (p.path != entry.path)
      fail(ErrorKind::invalid_argument, verb,
           "{}: the model that this optimizer was made for has {} in its place. Make a new optimizer.", p.path,
           entry.path);
    if (entry.shape && !p.value->is_absent() && p.value->shape() != *entry.shape)
      fail(ErrorKind::shape_mismatch, verb,
           "{}: the parameter is {}, it was of shape {} when this optimizer was made. Make a new one.", p.path,
           p.value->type_string(), to_string(*entry.shape));
  }
  if (params.size() != entries_->size())
    fail(ErrorKind::invalid_argument, verb,
         "the model has {} arrays, the one that this optimizer was made for {}. Make a new optimizer.", params.size(),
         entries_->size());
  nn::check_distinct(params, verb);
  for (size_t i = 0; i < params.size(); ++i) types_[i] = type_of(*params[i].value);
  structure_ = bare.structure;
}

namespace {

bool is_given(const nn::Leaf& gradient) { return !gradient.value->is_absent(); }

// Throws if all gradients are absent, because there is nothing to update. Single gradients may be absent, for example
// by a filter.
void check_any_gradient(const nn::Leaves& params, const nn::Leaves& grads) {
  const auto first = std::find_if(params.begin(), params.end(), nn::is_trainable);
  if (first == params.end() || std::any_of(grads.begin(), grads.end(), is_given)) return;
  fail(ErrorKind::invalid_argument, "Optimizer.update",
       "{}: every gradient is absent, expected those that nn::value_and_grad gives, and that no call before was given "
       "with std::move.",
       first->path);
}

void check_gradient_mesh(const std::string& path, const Array& gradient, const Array& parameter) {
  const MeshImpl *from = mesh_of(gradient), *to = mesh_of(parameter);
  if (!from || !to || from == to) return;
  fail(
      ErrorKind::device_mismatch, "Optimizer.update",
      "{}: the gradient is on {}, the parameter on {}. Move the gradients with nn::filter_shard(grads, mesh_rules), or "
      "compute them from the model on that mesh.",
      path, Mesh(from).to_string(), Mesh(to).to_string());
}

// Detects swapped arguments: a model and its gradients have the same type, so both orders compile.
void check_order(const nn::Leaves& params, const nn::Leaves& grads) {
  for (size_t i = 0; i < std::min(params.size(), grads.size()); ++i) {
    const Array &p = *params[i].value, &g = *grads[i].value;
    if (p.is_absent() || g.is_absent()) continue;
    if (p.impl()->gradient && !g.impl()->gradient)
      fail(ErrorKind::invalid_argument, "Optimizer.update",
           "{}: a gradient is given where the model belongs, expected update(model, grads), the model first.",
           params[i].path);
    return;
  }
}

}  // namespace

void check_gradients(const nn::Leaves& params, const nn::Leaves& grads) {
  check_order(params, grads);
  check_same_tree("Optimizer.update", "the gradient", grads, params);
  check_any_gradient(params, grads);
  for (size_t i = 0; i < params.size(); ++i) {
    const Array &p = *params[i].value, &g = *grads[i].value;
    if (g.is_absent()) continue;
    if (g.dtype() != p.dtype() || !is_floating(p.dtype()))
      fail(ErrorKind::dtype_mismatch, "Optimizer.update",
           "{}: the gradient is {}, the parameter {}. Both must have the same floating element type; an integer's "
           "gradient is absent.",
           params[i].path, g.type_string(), p.type_string());
    check_gradient_mesh(params[i].path, g, p);
  }
}

namespace {

void check_finite(const nn::Leaves& leaves, const char* what, const char* advice) {
  for (const nn::Leaf& x : leaves)
    check_value({.verb = "Optimizer.update", .path = x.path, .what = what, .advice = advice}, *x.value);
}

}  // namespace

void check_finite_gradients(const nn::Leaves& grads) {
  check_finite(grads, "the gradient", "Look at what was done to it since nn::value_and_grad, and at the model before.");
}

void check_finite_update(const nn::Leaves& params, const nn::Leaves& state) {
  constexpr const char* advice = "Nothing was updated. Lower the learning rate, or clip the gradients.";
  check_finite(params, "the updated parameter", advice);
  check_finite(state, "the updated state", advice);
}

bool on_mesh_of(const Arrays& params, const Arrays& state) {
  std::vector<const MeshImpl*> meshes;
  for (const Array* p : params)
    if (const MeshImpl* mesh = mesh_of(*p); mesh && (meshes.empty() || mesh != meshes.back())) meshes.push_back(mesh);
  for (const Array* x : state)
    if (const MeshImpl* mesh = mesh_of(*x);
        mesh && !meshes.empty() && std::find(meshes.begin(), meshes.end(), mesh) == meshes.end())
      return false;
  return true;
}

void check_state_mesh(const nn::Leaves& params, const nn::Leaves& state) {
  Arrays all;
  for (const nn::Leaf& p : params) all.push_back(p.value);
  const auto placed = std::find_if(params.begin(), params.end(), [](const nn::Leaf& p) { return mesh_of(*p.value); });
  for (const nn::Leaf& x : state)
    if (!on_mesh_of(all, {x.value}))
      fail(ErrorKind::device_mismatch, "Optimizer.update",
           "{}: the state is on {}, the model on {}. Move the optimizer with nn::filter_shard(optimizer, mesh_rules), "
           "or "
           "make a new one.",
           x.path, Mesh(mesh_of(*x.value)).to_string(), Mesh(mesh_of(*placed->value)).to_string());
}

void rethrow_explained(const char* verb, const nn::Leaves& params, const nn::Leaves& state,
                       const OptimizerOptions& options) {
  nn::detail::rethrow_with_sections(verb, params, [&] {
    if (state.empty()) return nn::detail::largest_arrays("Model", nn::placement_table(params));
    const nn::PlacementTable model = nn::placement_table(params), moments = nn::placement_table(state);
    std::string text =
        nn::detail::largest_arrays("Model", model) + nn::detail::largest_arrays("Optimizer state", moments);
    if (const auto axes = nn::detail::replicated_axes(moments); options.shard_state_over.empty() && !axes.empty()) {
      int64_t bytes = 0;
      for (const nn::Leaf& x : state)
        if (!x.value->is_absent()) bytes += cut_further(x.value->impl()->type, axes)->bytes;
      text += fmt::format("With {{.shard_state_over = {{\"{}\"}}}} the state takes {} bytes on each device.\n",
                          fmt::join(axes, "\", \""), with_commas(bytes));
    }
    return text + "With update(model, std::move(grads)) the update copies no gradients.\n";
  });
}

bool is_guarded() { return tessera::detail::is_guarded(); }

bool any_given(const Arrays& updates) {
  return std::any_of(updates.begin(), updates.end(), [](const Array* u) { return !u->is_absent(); });
}

bool needs_placement(const Arrays& grads, const Arrays& params) {
  for (size_t i = 0; i < grads.size(); ++i)
    if (const Type* g = type_of(*grads[i]); g && (g->unreduced || (g->mesh && !mesh_of(*params[i])))) return true;
  return false;
}

}  // namespace tessera::optim::detail
