// Told, then done: by the engine of the step's mesh, or piece by piece.
#include "sharding/redistribution/communicate.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include "sharding/array/side_by_side.h"
#include "sharding/diagnostics/check_mode.h"
#include "sharding/redistribution/replica_checks.h"
#include "sharding/redistribution/route.h"

namespace tessera::detail {
namespace {

// A step in one of its directions.
struct Act {
  const Step& step;
  Collective collective;
  bool back = false;  // from the result's slots to the operand's

  int devices() const { return step.mesh->count(step.axes); }
  const std::vector<int>& slots_from(const Group& group) const { return back ? group.out : group.in; }
  const std::vector<int>& slots_to(const Group& group) const { return back ? group.in : group.out; }
  const MeshImpl* mesh() const { return back && step.mesh_before ? step.mesh_before : step.mesh; }
  AxisSet axes() const { return step.mesh_before ? mesh()->all() : step.axes; }
  int64_t result_bytes(int64_t bytes, int64_t item) const {
    if (step.exchange) return (back ? step.exchange->returned : step.exchange->received) * item;
    return traits_of(collective).result_bytes(bytes, devices());
  }
  // Of the result on a device, of which it may have received only a part.
  int64_t bytes_after(int64_t bytes, int64_t item) const {
    return step.exchange ? c10::multiply_integers(step.exchange->out) * item : result_bytes(bytes, item);
  }
};

// Without a kind where nothing is communicated.
Communication event_of(const Act& act, int64_t bytes, int64_t item, const Occasion& occasion) {
  const int64_t received = act.result_bytes(bytes, item);
  return {.kind = received == 0 ? nullptr : traits_of(act.collective).name,
          .mesh = act.mesh(),
          .axes = act.axes(),
          .bytes = received,
          .cause = occasion.cause,
          .from = occasion.from,
          .to = occasion.to,
          .backward = occasion.in_backward_pass};
}

void tell(const Act& act, const Tensors& x, const Occasion& occasion) {
  if (!is_watched() || !traits_of(act.collective).name) return;
  Communication event =
      event_of(act, static_cast<int64_t>(x[0].nbytes()), static_cast<int64_t>(x[0].itemsize()), occasion);
  if (event.kind) announce(std::move(event));
}

// Across processes all groups move at once.
void move_between_processes(const Act& act, const Exchange& exchange, const Tensors& in, Tensors& out,
                            const Cause& cause) {
  std::vector<Tensors> from, to;
  for (const Group& group : act.step.groups) {
    Tensors& devices = from.emplace_back();
    for (int i : act.slots_from(group)) devices.push_back(in[i]);
    to.emplace_back(act.slots_to(group).size());
  }
  exchange_between_processes(exchange, act.step.processes,
                             {cause.operation, cause.where, act.step.mesh->kept_names(act.step.axes)}, from, to);
  for (size_t g = 0; g < to.size(); ++g) {
    const std::vector<int>& places = act.slots_to(act.step.groups[g]);
    for (size_t i = 0; i < places.size(); ++i) out[places[i]] = std::move(to[g][i]);
  }
}

void move_here(const Act& act, const Exchange& exchange, const Tensors& in, Tensors& out) {
  Tensors from, to;
  for (const Group& group : act.step.groups) {
    from.clear();
    for (int i : act.slots_from(group)) from.push_back(in[i]);
    const std::vector<int>& places = act.slots_to(group);
    to.assign(places.size(), at::Tensor());
    (act.step.mesh->abstract ? exchange_abstractly : exchange_locally)(exchange, from, to);
    for (size_t i = 0; i < places.size(); ++i) out[places[i]] = std::move(to[i]);
  }
}

Tensors moved(const Act& act, const Tensors& x, const Cause& cause) {
  const Step& step = act.step;
  if (checks && crosses_processes(act.step)) {
    const char* kind = traits_of(act.collective).name;
    check_same_collective(kind ? kind : "no move", step.mesh, step.exchange ? step.exchange->axes : step.axes, x[0],
                          cause);
  }
  if (step.exchange) return act.back ? step.exchange->take_apart(x, cause) : step.exchange->assemble(x, cause);
  const bool swaps = act.back && act.collective == Collective::all_to_all;
  const Exchange exchange{act.collective, act.devices(), swaps ? step.to_dim : step.dim, swaps ? step.dim : step.to_dim,
                          act.back ? &step.receivers : &step.senders};
  Tensors out(act.back ? step.tensors_in : step.tensors_out);
  crosses_processes(act.step) ? move_between_processes(act, exchange, x, out, cause) : move_here(act, exchange, x, out);
  return out;
}

Tensors told_and_moved(const Act& act, const Tensors& x, const Occasion& occasion) {
  tell(act, x, occasion);
  return moved(act, x, occasion.cause);
}

Act forward(const Step& step) { return {step, table_row(step.row).forward}; }

}  // namespace

Tensors communicate(const Step& step, const Tensors& x, const Occasion& occasion) {
  return told_and_moved(forward(step), x, occasion);
}

Tensors communicate_back(const Step& step, const Tensors& x, const Occasion& occasion) {
  return told_and_moved({step, table_row(step.row).backward, true}, x, occasion);
}

Tensors communicate(const Step& step, Collective collective, const Tensors& x, const Occasion& occasion) {
  return told_and_moved({step, collective}, x, occasion);
}

bool crosses_processes(const Step& step) {
  return step.exchange ? step.exchange->processes.size() > 1 : !step.processes.processes.empty();
}

void ask_about(std::span<const StepPtr> steps, const at::Tensor& x, const Occasion& occasion) {
  if (!is_guarded()) return;
  const auto item = static_cast<int64_t>(x.itemsize());
  auto bytes = static_cast<int64_t>(x.nbytes());
  for (const StepPtr& step : steps) {
    const Act act = forward(*step);
    const Communication event = event_of(act, bytes, item, occasion);
    if (event.kind) ask(event);
    bytes = act.bytes_after(bytes, item);
  }
}

namespace {

// What shipments have in common that make one communication.
struct Shared {
  Collective collective;
  const MeshImpl* mesh;
  AxisSet axes;
  DType dtype;
  int64_t bytes = 0;
  int arrays = 0;

  bool is_like(const Shared& o) const {
    return collective == o.collective && mesh == o.mesh && axes == o.axes && dtype == o.dtype;
  }
};

void add_to(std::vector<Shared>& all, const Shared& one) {
  for (Shared& shared : all)
    if (shared.is_like(one)) {
      shared.bytes += one.bytes;
      shared.arrays += one.arrays;
      return;
    }
  all.push_back(one);
}

// What all of them move, step by step, before any of it does.
void tell(const std::vector<Shipment>& shipments, const Cause& cause) {
  if (!is_watched()) return;
  std::vector<Shared> all;
  for (const auto& [steps, tensors] : shipments) {
    auto bytes = static_cast<int64_t>(tensors[0].nbytes());
    const auto item = static_cast<int64_t>(tensors[0].itemsize());
    const auto dtype = static_cast<DType>(tensors[0].scalar_type());
    for (const StepPtr& step : steps) {
      const Act act = forward(*step);
      if (const int64_t received = act.result_bytes(bytes, item))
        add_to(all, {act.collective, step->mesh, step->axes, dtype, received, 1});
      bytes = act.bytes_after(bytes, item);
    }
  }
  for (const Shared& shared : all)
    if (const char* kind = traits_of(shared.collective).name)
      announce({.kind = kind,
                .mesh = shared.mesh,
                .axes = shared.axes,
                .bytes = shared.bytes,
                .cause = cause,
                .operand = as_text(fmt::format("{} arrays, {}", shared.arrays, name_of(shared.dtype))),
                .result = as_text("at their placements")});
}

}  // namespace

void communicate(std::vector<Shipment>& shipments, const Cause& cause) {
  tell(shipments, cause);
  int64_t cost = 0;
  bool crosses = checks, several_slots = false;
  for (const auto& [steps, tensors] : shipments)
    for (const StepPtr& step : steps) {
      cost += static_cast<int64_t>(tensors.size()) * nanoseconds_of(3, tensors[0].numel());
      crosses |= crosses_processes(*step);
      several_slots |= step->mesh->shares_the_cpu();
    }
  const auto carry_out = [&](int i) {
    const at::AutoGradMode off(false);
    auto& [steps, tensors] = shipments[i];
    for (const StepPtr& step : steps) tensors = moved(forward(*step), tensors, cause);
  };
  const auto n = static_cast<int>(shipments.size());
  const WithoutTeams alone(several_slots);
  if (!crosses) return side_by_side(n, cost, carry_out);
  for (int i = 0; i < n; ++i) carry_out(i);  // all processes in one order
}

Tensors communicate(const Sum& sum, const Tensors& x) {
  if (sum.mesh->count(sum.axes) > 1 && is_watched()) {
    Communication said = sum.said();
    said.kind = traits_of(Collective::all_reduce).name;
    said.mesh = sum.mesh;
    said.axes = sum.axes;
    if (said.bytes > 0) announce(std::move(said));
  }
  Tensors sums;
  for (SumWork& work : sum.begun)
    for (const at::Tensor& t : work.finish()) sums.push_back(t);
  for (const at::Tensor& t : sum_over_processes(sum.mesh, sum.over, x, {.operation = sum.operation, .where = {}}))
    sums.push_back(t);
  return sums;
}

}  // namespace tessera::detail
