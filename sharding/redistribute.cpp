// The table's rows, and the routes made of them.
#include "sharding/redistribute.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "sharding/autograd.h"
#include "sharding/engine.h"
#include "sharding/ledger.h"
#include "sharding/plan.h"

namespace tessera::detail {
namespace {

struct Moves {
  Move forward, backward;
};

// clang-format off
constexpr Moves moves_of(Row row) {
  switch (row) {
    case Row::unreduced_to_replicated: return {Move::all_reduce, Move::identity};
    case Row::unreduced_to_reduced:    return {Move::all_reduce, Move::all_reduce};
    case Row::unreduced_to_sharded:    return {Move::reduce_scatter, Move::all_gather};
    case Row::sharded_to_replicated:   return {Move::all_gather, Move::slice};
    case Row::sharded_to_reduced:      return {Move::all_gather, Move::reduce_scatter};
    case Row::sharded_to_sharded:      return {Move::all_to_all, Move::all_to_all};
    case Row::sharded_to_unreduced:    return {Move::pad, Move::slice};
    case Row::replicated_to_sharded:   return {Move::slice, Move::all_gather};
    case Row::replicated_to_reduced:   return {Move::identity, Move::all_reduce};
    case Row::replicated_to_unreduced: return {Move::keep_first, Move::identity};
    case Row::reduced_to_replicated:   return {Move::identity, Move::keep_first};
    case Row::spread:                  return {Move::identity, Move::identity};
    case Row::varying_to_varying:      return {Move::permute, Move::permute};
  }
  return {};
}

// What one device sends for a move whose result has `bytes` on it; zero for what is local.
double traffic(Move move, double bytes, int n) {
  const double share = double(n - 1) / n;
  switch (move) {
    case Move::all_reduce:     return 2 * bytes * share;
    case Move::all_gather:     return bytes * share;
    case Move::reduce_scatter: return bytes * n * share;
    case Move::all_to_all:     return bytes * share;
    default:                   return 0;
  }
}
// clang-format on

// ---- steps -------------------------------------------------------------------------------------------------

std::vector<Group> groups_of(const Step& step) {
  const MeshImpl* mesh = step.mesh;
  const Mask others = (step.slots_in | step.slots_out) & ~step.axes;
  const bool apart_in = (step.slots_in & step.axes) != 0, apart_out = (step.slots_out & step.axes) != 0;
  std::vector<Group> groups(mesh->count(others));
  for (size_t g = 0; g < groups.size(); ++g) {
    int coordinates[max_axes] = {};
    unravel(mesh, others, static_cast<int>(g), coordinates);
    for (int k = 0; k < (apart_in || apart_out ? mesh->count(step.axes) : 1); ++k) {
      unravel(mesh, step.axes, k, coordinates);
      if (apart_in || k == 0) groups[g].in.push_back(ravel(mesh, step.slots_in, coordinates));
      if (apart_out || k == 0) groups[g].out.push_back(ravel(mesh, step.slots_out, coordinates));
    }
  }
  return groups;
}

void run_groups(const Step& step, const Exchange& exchange, bool backward, const Tensors& in, Tensors& out) {
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

void record(const Step& step, Move move, bool backward, const Tensors& result, const Cause& cause, const Type* from,
            const Type* to) {
  if (!name_of(move) || !ledger_is_open()) return;
  record_communication({.kind = name_of(move),
                        .axes = step.mesh->names(step.axes),
                        .devices = step.mesh->count(step.axes),
                        .bytes = static_cast<int64_t>(result[0].nbytes()),
                        .operation = cause.operation,
                        .operand = from->to_string(),
                        .result = to->to_string(),
                        .path = cause.path ? *cause.path : "",
                        .reason = cause.reason ? *cause.reason : "",
                        .backward = backward,
                        .where = cause.where});
}

// ---- routes ------------------------------------------------------------------------------------------------

class RouteMaker {
 public:
  RouteMaker(const Type* from, Mask slots, const Type* to)
      : current_(*on_mesh(from, to->mesh)), slots_(slots), to_(to) {}

  Route make() {
    if (!to_->mesh) return {};
    refuse_leaving_varying();
    spread();
    leave_reduced();
    while (shrink() || sum() || exchange() || gather()) {
    }
    if (const Mask axes = to_->unreduced & ~current_.unreduced) {
      add(Row::replicated_to_unreduced, axes, 0, 0, slots_ | axes);
      current_.unreduced |= axes;
    }
    if (const Mask axes = to_->reduced & ~current_.reduced) add(Row::replicated_to_reduced, axes, 0, 0, slots_);
    return std::move(route_);
  }

 private:
  // What differs along an axis becomes equal by a collective that the program names, never by a placement.
  void refuse_leaving_varying() const {
    if (current_.varying != to_->varying || (to_->varying & (to_->sharded | to_->unreduced | to_->reduced)))
      fail(ErrorKind::vma, "redistribute",
           fmt::format("{} differs along \"{}\" inside shard_map and cannot become {}. Use psum, all_gather or another "
                       "collective.",
                       intern(current_)->to_string(), to_->mesh->names(current_.varying | to_->varying),
                       to_->to_string()));
  }

  // An uncommitted array has one tensor; private replicas want one each.
  void spread() {
    const Mask missing = to_->mesh->private_replicas ? to_->mesh->all() & ~slots_ : 0;
    if (missing && to_->mesh->count(missing) > 1) add(Row::spread, missing, 0, 0, slots_ | missing);
    slots_ |= missing;
  }

  void leave_reduced() {
    if (const Mask axes = current_.reduced & ~to_->reduced) add(Row::reduced_to_replicated, axes, 0, 0, slots_);
    current_.reduced &= to_->reduced;
  }

  // Slices and reduce-scatters of the next axes that the target wants: every later step then moves less.
  bool shrink() {
    for (size_t d = 0; d < current_.dims.size(); ++d) {
      DimAxes& now = current_.dims[d];
      const DimAxes& wanted = to_->dims[d];
      if (now == wanted || !now.is_prefix_of(wanted)) continue;
      const bool pending = current_.unreduced >> wanted[now.size()] & 1;
      Mask axes = 0;
      for (int i = now.size(); i < wanted.size() && may_join(axes, wanted[i], pending); ++i)
        axes |= Mask{1} << wanted[i];
      if (!axes) continue;
      for (int left = std::popcount(axes); left > 0; --left) now.push_back(wanted[now.size()]);
      add(pending ? Row::unreduced_to_sharded : Row::replicated_to_sharded, axes, d, 0, slots_ | axes);
      current_.unreduced &= ~axes;
      return true;
    }
    return false;
  }

  // Axes of one dim act as one group while they are in the mesh's order, free, and alike.
  bool may_join(Mask axes, int axis, bool pending) const {
    const bool in_order = (axes >> axis) == 0;
    return in_order && !(sharded() >> axis & 1) && static_cast<bool>(current_.unreduced >> axis & 1) == pending;
  }

  // One all_reduce over all sums that nobody scatters.
  bool sum() {
    const Mask wanted = mask_of(to_->dims);
    const Mask pending = current_.unreduced & ~to_->unreduced & ~wanted;
    for (const Mask axes : {pending & ~to_->reduced, pending & to_->reduced}) {
      if (!axes) continue;
      const bool reduced = (axes & to_->reduced) != 0;
      add(reduced ? Row::unreduced_to_reduced : Row::unreduced_to_replicated, axes, 0, 0, without(axes));
      current_.unreduced &= ~axes;
      if (reduced) current_.reduced |= axes;
      return true;
    }
    return false;
  }

  // The minor-most axis that the target wants next on another dim moves there.
  bool exchange() {
    for (size_t d = 0; d < current_.dims.size(); ++d) {
      DimAxes& now = current_.dims[d];
      if (now.is_prefix_of(to_->dims[d])) continue;
      const int axis = now.back();
      for (size_t e = 0; e < current_.dims.size(); ++e) {
        DimAxes& other = current_.dims[e];
        const DimAxes& wanted = to_->dims[e];
        if (e == d || wanted.size() <= other.size() || !other.is_prefix_of(wanted) || wanted[other.size()] != axis)
          continue;
        now.pop_back();
        other.push_back(axis);
        add(Row::sharded_to_sharded, Mask{1} << axis, d, e, slots_);
        return true;
      }
    }
    return false;
  }

  // Else it is gathered (or, for an unreduced target, padded), with the axes before it that go the same way.
  bool gather() {
    for (size_t d = 0; d < current_.dims.size(); ++d) {
      DimAxes& now = current_.dims[d];
      if (now.is_prefix_of(to_->dims[d])) continue;
      const Row row = row_of_gather(now.back());
      Mask axes = 0;
      do {
        axes |= Mask{1} << now.back();
        now.pop_back();
      } while (!now.is_prefix_of(to_->dims[d]) && row_of_gather(now.back()) == row &&
               (axes & ((Mask{1} << now.back()) - 1)) == 0);
      if (row == Row::sharded_to_reduced) current_.reduced |= axes;
      if (row == Row::sharded_to_unreduced) current_.unreduced |= axes;
      add(row, axes, d, 0, row == Row::sharded_to_unreduced ? slots_ : without(axes));
      return true;
    }
    return false;
  }

  Row row_of_gather(int axis) const {
    if (to_->unreduced >> axis & 1) return Row::sharded_to_unreduced;
    return to_->reduced >> axis & 1 ? Row::sharded_to_reduced : Row::sharded_to_replicated;
  }

  Mask sharded() const { return mask_of(current_.dims); }

  Mask without(Mask axes) const { return to_->mesh->private_replicas ? slots_ : slots_ & ~axes; }

  // Of one device's block, as current_ now is.
  double bytes() const {
    double b = static_cast<double>(item_size(current_.dtype));
    for (size_t d = 0; d < current_.dims.size(); ++d)
      b *= static_cast<double>(current_.shape[d]) / to_->mesh->count(current_.dims[d].mask());
    return b;
  }

  void add(Row row, Mask axes, int dim, int to_dim, Mask slots_out) {
    slots_out = to_->mesh->distinct(slots_out);
    Step step{.row = row, .mesh = to_->mesh, .axes = axes, .dim = dim, .to_dim = to_dim};
    step.slots_in = slots_;
    step.slots_out = slots_out;
    step.tensors_in = to_->mesh->count(slots_);
    step.tensors_out = to_->mesh->count(slots_out);
    step.groups = groups_of(step);
    const int n = to_->mesh->count(axes);
    const double before = row == Row::sharded_to_reduced || row == Row::sharded_to_replicated     ? bytes() / n
                          : row == Row::unreduced_to_sharded || row == Row::replicated_to_sharded ? bytes() * n
                                                                                                  : bytes();
    step.cost = traffic(moves_of(row).forward, bytes(), n) + traffic(moves_of(row).backward, before, n);
    route_.cost += step.cost;
    route_.steps.push_back(std::make_shared<const Step>(std::move(step)));
    slots_ = slots_out;
  }

  TypeKey current_;
  Mask slots_;
  const Type* to_;
  Route route_;
};

struct RouteKey {
  const Type* from;
  const Type* to;
  Mask slots;
  bool operator==(const RouteKey&) const = default;
};

struct RouteKeyHash {
  size_t operator()(const RouteKey& k) const {
    return reinterpret_cast<size_t>(k.from) * 0x9E3779B97F4A7C15ull ^
           reinterpret_cast<size_t>(k.to) * 0xC2B2AE3D27D4EB4Full ^ k.slots;
  }
};

}  // namespace

// clang-format off
const char* name_of(Move move) {
  switch (move) {
    case Move::all_reduce:     return "all_reduce";
    case Move::all_gather:     return "all_gather";
    case Move::reduce_scatter: return "reduce_scatter";
    case Move::all_to_all:     return "all_to_all";
    case Move::all_reduce_max: return "all_reduce_max";
    case Move::all_reduce_min: return "all_reduce_min";
    case Move::permute:        return "permute";
    default:                   return nullptr;  // nothing is communicated
  }
}
// clang-format on

Move forward_move(const Step& step) { return moves_of(step.row).forward; }

Tensors as_dtype(const Tensors& tensors, DType dtype) {
  Tensors cast;
  for (const at::Tensor& t : tensors) cast.push_back(t.to(static_cast<at::ScalarType>(dtype)));
  return cast;
}

Tensors exchange_forward(const Step& step, const Tensors& x) {
  Tensors out(step.tensors_out);
  const Exchange exchange{forward_move(step), step.mesh->count(step.axes), step.dim, step.to_dim, &step.senders};
  run_groups(step, exchange, false, x, out);
  return out;
}

bool Passage::gathers() const {
  return std::any_of(steps.begin(), steps.end(),
                     [](const auto& step) { return forward_move(*step) == Move::all_gather; });
}

Tensors Passage::forward(const Tensors& x, bool in_backward_pass) const {
  at::AutoGradMode off(false);
  Tensors now = as_dtype(x, to->dtype);
  for (const auto& step : steps) {
    now = exchange_forward(*step, now);
    record(*step, forward_move(*step), in_backward_pass, now, cause, from, to);
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
    run_groups(step,
               {move, step.mesh->count(step.axes), exchange_dims ? step.to_dim : step.dim,
                exchange_dims ? step.dim : step.to_dim, &step.receivers},
               true, now, next);
    record(step, move, true, next, cause, to, from);
    now = std::move(next);
  }
  return now;
}

const Route& route(const Type* from, Mask slots, const Type* to) {
  constexpr size_t most = 1 << 14;
  thread_local std::unordered_map<RouteKey, Route, RouteKeyHash> routes;
  const RouteKey key{from, to, slots};
  if (auto found = routes.find(key); found != routes.end()) return found->second;
  if (routes.size() >= most) routes.clear();
  return routes.emplace(key, RouteMaker(from, slots, to).make()).first->second;
}

Tensors reduce_inside(const Plan& plan, const Tensors& parts, Move move, const Cause& cause) {
  Step step{.row = Row::unreduced_to_replicated, .mesh = plan.mesh, .axes = plan.reduced_inside};
  step.slots_in = step.slots_out = plan.slots;
  step.groups = groups_of(step);
  Tensors out(parts.size());
  run_groups(step, {move, plan.mesh->count(step.axes), 0, 0}, false, parts, out);
  record(step, move, false, out, cause, plan.operands[0].plain, plan.out[0]);
  return out;
}

Tensors reduce_varying(const Type* from, const Type* to, Mask axes, const Tensors& x, Move move, const Cause& cause) {
  at::AutoGradMode off(false);
  Step step{.row = Row::unreduced_to_replicated, .mesh = from->mesh, .axes = axes};
  step.slots_in = from->slots;
  step.slots_out = to->slots;
  step.groups = groups_of(step);
  Tensors out(from->mesh->count(to->slots));
  run_groups(step, {move, from->mesh->count(axes), 0, 0}, false, x, out);
  record(step, move, false, out, cause, from, to);
  return out;
}

Passage permutation(const Type* type, Mask axes, std::vector<int> senders, const Cause& cause) {
  auto step = std::make_shared<Step>(Step{.row = Row::varying_to_varying, .mesh = type->mesh, .axes = axes});
  step->slots_in = step->slots_out = type->slots;
  step->tensors_in = step->tensors_out = type->mesh->count(type->slots);
  step->groups = groups_of(*step);
  step->receivers.assign(senders.size(), -1);
  for (size_t i = 0; i < senders.size(); ++i)
    if (senders[i] >= 0) step->receivers[senders[i]] = static_cast<int>(i);
  step->senders = std::move(senders);
  return {.from = type, .to = type, .steps = {step}, .gradients = type->dtype, .cause = cause};
}

}  // namespace tessera::detail
