// Runs reductions across devices, each recorded as one function.
#include "sharding/propagation/sharded_reduction.h"

#include <ATen/OpMathType.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "sharding/array/tape_state.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/redistribution/convert.h"

namespace tessera::detail {

Tensors locals(const Prepared& call, int operand) {
  Tensors all;
  for (int s = 0; s < call.plan->runs; ++s) all.push_back(*call.local(operand, s));
  return all;
}

void each_slot(const Tensors& tensors, c10::function_ref<void(int)> job) {
  const auto n = static_cast<int64_t>(tensors.size());
  parallel_for(static_cast<int>(n), n * nanoseconds_of(1, tensors[0].numel()), [&](int i) {
    const at::AutoGradMode off(false);
    job(i);
  });
}

at::Tensor widened_in_graph(const at::Tensor& t) {
  const at::ScalarType wide = at::toOpMathType(t.scalar_type());
  return wide == t.scalar_type() ? t : t.to(wide);
}

at::Tensor float16_widened_in_graph(const at::Tensor& t) {
  return t.scalar_type() == at::kHalf && t.is_cpu() ? widened_in_graph(t) : t;
}

at::Tensor widened(const at::Tensor& t) { return widened_in_graph(t.requires_grad() ? t.detach() : t); }

Tensors widened(const Tensors& tensors) {
  return for_each(tensors, [](const at::Tensor& t) { return widened(t); });
}

namespace {

Across computed(const Prepared& call, const CallSite& site,
                const std::function<Across(const Prepared&, const ShardedReduction&)>& across) try {
  at::AutoGradMode off(false);
  const Plan& plan = *call.plan;
  const ScopedIntraOpThreads alone(plan.shares_the_cpu());
  if (!plan.reduced_inside) return across(call, {});
  return across(call, sharded_reduction_over(plan.mesh, plan.reduced_inside, plan.slots, plan.operands[0].plain,
                                             plan.out[0], {site.operation.name, site.where, plan.reason, {}}));
} catch (const std::exception& error) {
  refuse(call, site.operation.name, error);
}

Tensors all_locals(const Prepared& call) {
  Tensors all;
  for (int i = 0; i < call.operands; ++i)
    for (const at::Tensor& t : locals(call, i)) all.push_back(t);
  return all;
}

}  // namespace

bool needs_whole_dims(const Prepared& call) {
  if (!is_nested() || !is_floating(call.plan->out[0]->dtype)) return false;
  return std::any_of(call.array, call.array + call.operands, [](const ArrayImpl* a) { return wants_gradient(*a); });
}

std::vector<Array> whole_operands(const Prepared& call, const CallSite& site,
                                  std::initializer_list<const Array*> operands) {
  static const Text reason = lasting_text("second derivatives over this dim need it replicated");
  std::vector<Array> gathered;
  for (const Array* x : operands) {
    ArrayImpl& a = *x->impl();
    TypeKey key = *a.type;
    key.unreduced = 0;
    const auto& planned = call.plan->operands[gathered.size()].plain->dims;
    for (size_t d = 0; d < key.dims.size(); ++d)
      if ((key.dims[d].axis_set() | planned[d].axis_set()) & call.plan->reduced_inside) key.dims[d] = {};
    gathered.emplace_back(convert(a, x->impl(), intern(std::move(key)), {site.operation.name, site.where, reason, {}}));
  }
  return gathered;
}

namespace {

// Returns the mesh axes over which the results are stored, for an operation that itself reduces over
// plan.reduced_inside. Slots share results.
AxisSet outside_axes(const Plan& plan) {
  return plan.mesh->private_replicas ? plan.slots : plan.slots & ~plan.reduced_inside;
}

// Returns, for each stored result, a slot that has it.
std::vector<int> slots_outside(const Plan& plan) {
  const AxisSet outside = outside_axes(plan);
  std::vector<int> slots;
  for (int i = 0; i < plan.mesh->slots(outside); ++i) slots.push_back(project(plan.mesh, outside, i, plan.slots));
  return slots;
}

// Returns, for each slot, the index of its stored result.
std::vector<int> owners_outside(const Plan& plan) {
  std::vector<int> owners;
  for (int s = 0; s < plan.runs; ++s) owners.push_back(project(plan.mesh, plan.slots, s, outside_axes(plan)));
  return owners;
}

}  // namespace

// Runs `across` for all slots. A result that is not sharded over the reduced axes is stored once per group.
Array run_across(const Prepared& call, const CallSite& site,
                 const std::function<Across(const Prepared&, const ShardedReduction&)>& across) {
  const Plan& plan = *call.plan;
  const bool everywhere = !plan.reduced_inside || (plan.out[0]->sharded & plan.reduced_inside) != 0;
  Across made = computed(call, site, across);
  Tensors out = everywhere ? made.results : Tensors();
  if (!everywhere)
    for (int s : slots_outside(plan)) out.push_back(made.results[s]);
  if (made.backward && everywhere) record_function(site.operation.name, all_locals(call), out, made.backward);
  if (made.backward && !everywhere)
    record_function(site.operation.name, all_locals(call), out,
                    [owners = owners_outside(plan), backward = std::move(made.backward)](const Tensors& gradients) {
                      Tensors each;
                      for (int owner : owners) each.push_back(gradients[owner]);
                      return backward(std::move(each));
                    });
  return Array(finish(call, std::move(out), everywhere ? plan.slots : outside_axes(plan)));
}

}  // namespace tessera::detail
