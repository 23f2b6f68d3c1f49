// Runs steps in sequence: for arrays, inside operations and inside shard_map.
#include "sharding/redistribution/resharding.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "sharding/accounting/finite_check.h"
#include "sharding/base/environment.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/route.h"

namespace tessera::detail {

bool Resharding::gathers() const {
  return std::any_of(steps.begin(), steps.end(),
                     [](const StepPtr& step) { return table_row(step->row).forward == Collective::all_gather; });
}

namespace {

// Returns true if the resharding sums or casts, which can make finite values infinite. Other steps only copy: an
// infinity in their result may come from another process and is not an error.
bool sums_or_casts(const Resharding& way) {
  return way.from->dtype != way.to->dtype || std::any_of(way.steps.begin(), way.steps.end(), [](const StepPtr& step) {
           const Collective collective = table_row(step->row).forward;
           return collective == Collective::all_reduce || collective == Collective::reduce_scatter;
         });
}

}  // namespace

Tensors Resharding::forward(const Tensors& x, bool in_backward_pass) const {
  at::AutoGradMode off(false);
  const ScopedIntraOpThreads alone(to->mesh && to->mesh->shares_the_cpu());
  const EventContext context{cause, from, to, in_backward_pass};
  Tensors now = as_dtype(x, to->dtype);
  bring_to_memory_of(to->mesh, now);
  check_allowed(steps, now[0], context);
  const auto crosses = [](const StepPtr& step) { return crosses_processes(*step); };
  if (checks && std::any_of(steps.begin(), steps.end(), crosses)) check_replicas_across_processes(from, now, cause);
  for (const StepPtr& step : steps) now = communicate(in_direction(*step, Direction::forward), now, context);
  if (checks_finite() && sums_or_casts(*this)) check_moved({cause, from, to, in_backward_pass}, x, now);
  return now;
}

Tensors Resharding::backward(Tensors now) const {
  const Tensors given = checks_finite() ? now : Tensors();
  now = as_dtype(now, gradients);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step)
    now = communicate(in_direction(**step, Direction::backward), now, {cause, to, from, true});
  bring_to_memory_of(from->mesh, now);
  if (checks_finite()) check_moved({cause, to, from, true}, given, now);
  return now;
}

ShardedReduction sharded_reduction_over(const MeshImpl* mesh, AxisSet axes, AxisSet slots, const Type* from,
                                        const Type* to, const Provenance& cause, const DimAxes& order) {
  auto step = std::make_shared<Step>(Step{.row = Row::unreduced_to_replicated, .mesh = mesh, .axes = axes});
  step->slots_in = step->slots_out = slots;
  step->tensors_in = step->tensors_out = mesh->slots(slots);
  form_groups(*step, order);
  return {std::move(step), from, to, cause};
}

namespace {

EventContext context_of(const ShardedReduction& r, bool in_backward_pass) {
  return {r.cause, in_backward_pass ? r.to : r.from, in_backward_pass ? r.from : r.to, in_backward_pass};
}

}  // namespace

Tensors ShardedReduction::combine(const Tensors& parts, Collective collective, bool in_backward_pass) const {
  return communicate({*step, collective}, parts, context_of(*this, in_backward_pass));
}

Transfer ShardedReduction::permute(const Tensors& parts, std::vector<int> senders, bool in_backward_pass) const {
  auto moves = std::make_shared<Step>(*step);
  moves->row = Row::varying_to_varying;
  moves->senders = std::move(senders);
  return Transfer({{{std::move(moves)}, parts}}, context_of(*this, in_backward_pass));
}

}  // namespace tessera::detail
