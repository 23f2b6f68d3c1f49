// The table's rows carried out, for arrays, inside operations and inside shard_map.
#include "sharding/redistribute.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>

#include "sharding/autograd.h"
#include "sharding/check_mode.h"
#include "sharding/replica_checks.h"
#include "sharding/communication.h"
#include "sharding/engine.h"
#include "sharding/routes.h"

namespace tessera::detail {
namespace {

// Across processes all groups move at once.
void run_members(const Step& step, const Exchange& exchange, bool backward, const Tensors& in, Tensors& out,
                 const Cause& cause) {
  const char* kind = name_of(exchange.move);
  if (checks) check_same_move(kind ? kind : "no move", step.mesh, step.axes, in[0], cause);
  std::vector<Tensors> from, to;
  for (const Group& group : step.groups) {
    Tensors& members = from.emplace_back();
    for (int i : backward ? group.out : group.in) members.push_back(in[i]);
    to.emplace_back((backward ? group.in : group.out).size());
  }
  exchange_between_processes(exchange, step.members, {cause.operation, cause.where, step.mesh->kept_names(step.axes)},
                             from, to);
  for (size_t g = 0; g < to.size(); ++g) {
    const std::vector<int>& places = backward ? step.groups[g].in : step.groups[g].out;
    for (size_t i = 0; i < places.size(); ++i) out[places[i]] = std::move(to[g][i]);
  }
}

void run_groups(const Step& step, const Exchange& exchange, bool backward, const Tensors& in, Tensors& out,
                const Cause& cause) {
  if (!step.members.processes.empty()) return run_members(step, exchange, backward, in, out, cause);
  Tensors from, to;
  for (const Group& group : step.groups) {
    from.clear();
    for (int i : backward ? group.out : group.in) from.push_back(in[i]);
    const std::vector<int>& places = backward ? group.in : group.out;
    to.assign(places.size(), at::Tensor());
    (step.mesh->abstract ? exchange_abstractly : exchange_locally)(exchange, from, to);
    for (size_t i = 0; i < places.size(); ++i) out[places[i]] = std::move(to[i]);
  }
}

// The step as it is announced, of an operand of `bytes` on a device, in elements of `item` bytes; without a kind where
// nothing is communicated.
Communication communication_of(const Step& step, Move move, bool backward, int64_t bytes, int64_t item,
                               const Cause& cause, const Type* from, const Type* to) {
  const int64_t received = step.pieces ? (backward ? step.pieces->returned : step.pieces->received) * item
                                       : result_bytes(move, bytes, step.mesh->count(step.axes));
  return {.kind = received == 0 ? nullptr : name_of(move),
          .mesh = step.mesh,
          .axes = step.axes,
          .bytes = received,
          .cause = cause,
          .from = from,
          .to = to,
          .backward = backward};
}

void announce_step(const Step& step, Move move, bool backward, const Tensors& x, const Cause& cause, const Type* from,
                   const Type* to) {
  if (!name_of(move) || !is_watched()) return;
  const auto bytes = static_cast<int64_t>(x[0].nbytes()), item = static_cast<int64_t>(x[0].itemsize());
  Communication next = communication_of(step, move, backward, bytes, item, cause, from, to);
  if (next.kind) announce(std::move(next));
}

bool cross_processes(const std::vector<std::shared_ptr<const Step>>& steps) {
  return std::any_of(steps.begin(), steps.end(), [](const auto& step) {
    return step->pieces ? step->pieces->processes.size() > 1 : !step->members.processes.empty();
  });
}

}  // namespace

// clang-format off
const char* name_of(Move move) {
  switch (move) {
    case Move::all_reduce:         return "all_reduce";
    case Move::all_gather:         return "all_gather";
    case Move::reduce_scatter:     return "reduce_scatter";
    case Move::all_to_all:         return "all_to_all";
    case Move::all_reduce_max:     return "all_reduce_max";
    case Move::all_reduce_min:     return "all_reduce_min";
    case Move::all_reduce_product: return "all_reduce_product";
    case Move::permute:            return "permute";
    case Move::exchange:           return "block_exchange";
    default:                       return nullptr;  // nothing is communicated
  }
}
// clang-format on

int64_t result_bytes(Move move, int64_t bytes, int devices) {
  if (move == Move::all_gather || move == Move::pad) return bytes * devices;
  return move == Move::reduce_scatter || move == Move::slice ? bytes / devices : bytes;
}

Move forward_move(const Step& step) { return moves_of(step.row).forward; }

Tensors as_dtype(const Tensors& tensors, DType dtype) {
  Tensors cast;
  for (const at::Tensor& t : tensors) cast.push_back(t.to(static_cast<at::ScalarType>(dtype)));
  return cast;
}

Tensors exchange_forward(const Step& step, const Tensors& x, const Cause& cause) {
  if (step.pieces) return step.pieces->assemble(x, cause);
  Tensors out(step.tensors_out);
  const Exchange exchange{forward_move(step), step.mesh->count(step.axes), step.dim, step.to_dim, &step.senders};
  run_groups(step, exchange, false, x, out, cause);
  return out;
}

bool Passage::gathers() const {
  return std::any_of(steps.begin(), steps.end(),
                     [](const auto& step) { return forward_move(*step) == Move::all_gather; });
}

void Passage::ask_about_steps(const at::Tensor& x, bool in_backward_pass) const {
  const auto item = static_cast<int64_t>(x.itemsize());
  auto bytes = static_cast<int64_t>(x.nbytes());
  for (const auto& step : steps) {
    const Move move = forward_move(*step);
    const Communication next = communication_of(*step, move, in_backward_pass, bytes, item, cause, from, to);
    if (next.kind) ask(next);
    bytes = step->pieces ? c10::multiply_integers(step->pieces->out) * item
                         : result_bytes(move, bytes, step->mesh->count(step->axes));
  }
}

Tensors Passage::forward(const Tensors& x, bool in_backward_pass) const {
  at::AutoGradMode off(false);
  Tensors now = as_dtype(x, to->dtype);
  bring_to_memory_of(to->mesh, now);
  if (is_guarded()) ask_about_steps(now[0], in_backward_pass);
  if (checks && cross_processes(steps)) check_replicas_across_processes(from, now, cause);
  for (const auto& step : steps) {
    announce_step(*step, forward_move(*step), in_backward_pass, now, cause, from, to);
    now = exchange_forward(*step, now, cause);
  }
  return now;
}

Tensors Passage::backward(Tensors now) const {
  now = as_dtype(now, gradients);
  for (auto s = steps.rbegin(); s != steps.rend(); ++s) {
    const Step& step = **s;
    const Move move = moves_of(step.row).backward;
    const bool exchange_dims = move == Move::all_to_all;
    Tensors next(step.tensors_in);
    announce_step(step, move, true, now, cause, to, from);
    if (step.pieces)
      next = step.pieces->take_apart(now, cause);
    else
      run_groups(step,
                 {move, step.mesh->count(step.axes), exchange_dims ? step.to_dim : step.dim,
                  exchange_dims ? step.dim : step.to_dim, &step.receivers},
                 true, now, next, cause);
    now = std::move(next);
  }
  bring_to_memory_of(from->mesh, now);
  return now;
}

Inside inside_of(const MeshImpl* mesh, Mask axes, Mask slots, const Type* from, const Type* to, const Cause& cause) {
  auto step = std::make_shared<Step>(Step{.row = Row::unreduced_to_replicated, .mesh = mesh, .axes = axes});
  step->slots_in = step->slots_out = slots;
  form_groups(*step);
  return {std::move(step), from, to, cause};
}

Tensors Inside::combine(const Tensors& parts, Move move, bool in_backward_pass) const {
  Tensors out(parts.size());
  announce_step(*step, move, in_backward_pass, parts, cause, in_backward_pass ? to : from,
                in_backward_pass ? from : to);
  run_groups(*step, {move, step->mesh->count(step->axes), 0, 0}, false, parts, out, cause);
  return out;
}

namespace {

Step step_over(Row row, const Type* from, const Type* to, const DimAxes& axes) {
  Step step{.row = row, .mesh = from->mesh, .axes = axes.mask()};
  step.slots_in = from->slots;
  step.slots_out = to->slots;
  step.tensors_in = from->mesh->slots(from->slots);
  step.tensors_out = from->mesh->slots(to->slots);
  form_groups(step, axes);
  return step;
}

}  // namespace

Passage passage_over(Row row, const Type* from, const Type* to, const DimAxes& axes, int dim, int to_dim,
                     const Cause& cause) {
  Step step = step_over(row, from, to, axes);
  step.dim = dim;
  step.to_dim = to_dim;
  return {from, to, {std::make_shared<const Step>(std::move(step))}, from->dtype, cause};
}

Passage permutation(const Type* type, const DimAxes& axes, std::vector<int> senders, const Cause& cause) {
  Step step = step_over(Row::varying_to_varying, type, type, axes);
  step.receivers.assign(senders.size(), -1);
  for (size_t i = 0; i < senders.size(); ++i)
    if (senders[i] >= 0) step.receivers[senders[i]] = static_cast<int>(i);
  step.senders = std::move(senders);
  return {type, type, {std::make_shared<const Step>(std::move(step))}, type->dtype, cause};
}

Tensors reduce_over(const Type* from, const Type* to, const DimAxes& axes, const Tensors& x, Move move,
                    const Cause& cause) {
  at::AutoGradMode off(false);
  const Step step = step_over(Row::unreduced_to_replicated, from, to, axes);
  Tensors out(step.tensors_out);
  announce_step(step, move, false, x, cause, from, to);
  run_groups(step, {move, step.mesh->count(step.axes), 0, 0}, false, x, out, cause);
  return out;
}

}  // namespace tessera::detail
