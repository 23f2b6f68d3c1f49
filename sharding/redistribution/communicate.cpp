// Told, then done: by the engine of the step's mesh, or piece by piece.
#include "sharding/redistribution/communicate.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "sharding/base/check_mode.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/redistribution/act.h"
#include "sharding/redistribution/replica_checks.h"
#include "sharding/redistribution/route.h"

namespace tessera::detail {
namespace {

Act forward(const Step& step) { return {step, table_row(step.row).forward}; }
Act backward(const Step& step) { return {step, table_row(step.row).backward, true}; }
Act act_of(const Step& step, Direction direction) {
  return direction == Direction::there ? forward(step) : backward(step);
}

Communication event_of(Collective collective, const MeshImpl* mesh, AxisSet axes, int64_t bytes,
                       const EventContext& occasion) {
  return {.kind = traits_of(collective).name,
          .mesh = mesh,
          .axes = axes,
          .bytes = bytes,
          .cause = occasion.cause,
          .from = occasion.from,
          .to = occasion.to,
          .backward = occasion.in_backward_pass};
}

// Without a kind where nothing is communicated.
Communication event_of(const Act& act, int64_t bytes, int64_t item, const EventContext& occasion) {
  const int64_t received = act.result_bytes(bytes, item);
  Communication event = event_of(act.collective, act.mesh(), act.axes(), received, occasion);
  if (received == 0) event.kind = nullptr;
  return event;
}

// Its number, if anything is announced.
std::optional<int64_t> tell(const Act& act, const Tensors& x, const EventContext& occasion) {
  if (!is_watched() || !traits_of(act.collective).name) return std::nullopt;
  Communication event =
      event_of(act, static_cast<int64_t>(x[0].nbytes()), static_cast<int64_t>(x[0].itemsize()), occasion);
  return event.kind ? std::optional(announce(std::move(event))) : std::nullopt;
}

// The tensors of each group, and places for its results.
std::pair<std::vector<Tensors>, std::vector<Tensors>> by_group(const Act& act, const Tensors& in) {
  std::vector<Tensors> from, to;
  for (const Group& group : act.step.groups) {
    Tensors& devices = from.emplace_back();
    for (int i : act.slots_from(group)) devices.push_back(in[i]);
    to.emplace_back(act.slots_to(group).size());
  }
  return {std::move(from), std::move(to)};
}

Tensors from_groups(const Act& act, const std::vector<Tensors>& results) {
  Tensors out(act.back ? act.step.tensors_in : act.step.tensors_out);
  for (size_t g = 0; g < results.size(); ++g) {
    const std::vector<int>& places = act.slots_to(act.step.groups[g]);
    for (size_t i = 0; i < places.size(); ++i) out[places[i]] = results[g][i];
  }
  return out;
}

WaitContext waiting_for(const Step& step, const Provenance& cause) {
  return {cause.operation, cause.where, step.mesh->kept_names(step.axes)};
}

Exchange exchange_of(const Act& act, const Provenance& cause) {
  Exchange exchange{.collective = act.collective,
                    .devices = act.devices(),
                    .dim = act.dim(),
                    .to_dim = act.to_dim(),
                    .senders = act.back ? &act.step.receivers : &act.step.senders,
                    .processes = act.processes()};
  if (!crosses_processes(act.step)) return exchange;
  exchange.members = &act.step.processes;
  exchange.waiting = waiting_for(act.step, cause);
  return exchange;
}

// `kept` gets the buffers of an abstract mesh's device, so that they outlive the call.
Tensors exchanged(const Act& act, const Tensors& x, const Provenance& cause, std::vector<Tensors>* kept) {
  auto [from, to] = by_group(act, x);
  Tensors buffers = act.step.mesh->engine->exchange(exchange_of(act, cause), from, to);
  if (kept && !buffers.empty()) kept->push_back(std::move(buffers));
  return from_groups(act, to);
}

void compare_between_processes(const Act& act, const Tensors& x, const Provenance& cause) {
  const Step& step = act.step;
  const char* kind = traits_of(act.collective).name;
  check_same_collective(kind ? kind : "no move", step.mesh, step.exchange ? step.exchange->axes : step.axes, x[0],
                        cause);
}

Tensors moved(const Act& act, const Tensors& x, const Provenance& cause, std::vector<Tensors>* kept = nullptr) {
  const Step& step = act.step;
  if (crosses_processes(step)) compare_between_processes(act, x, cause);
  if (step.exchange) return act.back ? step.exchange->take_apart(x, cause) : step.exchange->assemble(x, cause);
  return act.without_padding(exchanged(act, act.padded(x), cause, kept));
}

Tensors told_and_moved(const Act& act, const Tensors& x, const EventContext& occasion) {
  const std::optional<int64_t> told = tell(act, x, occasion);
  Tensors results = moved(act, x, occasion.cause);
  if (told) announce_arrived(*told);
  return results;
}

}  // namespace

Tensors communicate(const Step& step, const Tensors& x, const EventContext& occasion) {
  return told_and_moved(forward(step), x, occasion);
}

Tensors communicate_back(const Step& step, const Tensors& x, const EventContext& occasion) {
  return told_and_moved(backward(step), x, occasion);
}

Tensors communicate(const Step& step, Collective collective, const Tensors& x, const EventContext& occasion) {
  return told_and_moved({step, collective}, x, occasion);
}

bool crosses_processes(const Step& step) {
  return step.exchange ? step.exchange->processes.size() > 1 : !step.processes.processes.empty();
}

bool is_between_processes(const Step& step) {
  if (!step.mesh->has_no_hardware()) return crosses_processes(step);
  return step.mesh->processes_over(step.exchange ? step.mesh->all() : step.axes) > 1;
}

void check_allowed(std::span<const StepPtr> steps, const at::Tensor& x, const EventContext& occasion) {
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
  int arrays = 1;
  std::string paths = {};

  bool is_like(const Shared& o) const {
    return collective == o.collective && mesh == o.mesh && axes == o.axes && dtype == o.dtype;
  }
};

void add_to(std::vector<Shared>& all, Shared one) {
  const auto like = std::find_if(all.begin(), all.end(), [&](const Shared& shared) { return shared.is_like(one); });
  if (like == all.end()) return all.push_back(std::move(one));
  like->bytes += one.bytes;
  ++like->arrays;
  if (!one.paths.empty()) like->paths += ", " + one.paths;
}

}  // namespace

Shipping::Shipping(std::vector<Shipment> shipments, const EventContext& occasion, Direction direction)
    : shipments_(std::move(shipments)), next_(shipments_.size()), cause_(occasion.cause), direction_(direction) {
  if (direction == Direction::back)
    for (Shipment& shipment : shipments_) std::reverse(shipment.steps.begin(), shipment.steps.end());
  for (const Shipment& shipment : shipments_)
    for (const StepPtr& step : shipment.steps)
      stands_for_others_ |= step->mesh->abstract && is_between_processes(*step);
  tell(occasion);
  advance();
}

// What all of them move, step by step, before any of it does.
void Shipping::tell(const EventContext& occasion) {
  if (!is_watched()) return;
  std::vector<Shared> all;
  for (const auto& [steps, tensors, path] : shipments_) {
    auto bytes = static_cast<int64_t>(tensors[0].nbytes());
    const auto item = static_cast<int64_t>(tensors[0].itemsize());
    const auto dtype = static_cast<DType>(tensors[0].scalar_type());
    for (const StepPtr& step : steps) {
      const Act act = act_of(*step, direction_);
      const int64_t received = act.result_bytes(bytes, item);
      if (shipments_.size() == 1 && occasion.from) {
        if (Communication event = event_of(act, bytes, item, occasion); event.kind)
          told_.push_back(announce(std::move(event)));
      } else if (received)
        add_to(all, {act.collective, act.mesh(), act.axes(), dtype, received, 1, path ? *path : ""});
      bytes = act.bytes_after(bytes, item);
    }
  }
  for (Shared& shared : all)
    if (const char* kind = traits_of(shared.collective).name)
      told_.push_back(announce({.kind = kind,
                                .mesh = shared.mesh,
                                .axes = shared.axes,
                                .bytes = shared.bytes,
                                .cause = {cause_.operation, cause_.where, cause_.reason,
                                          shared.paths.empty() ? cause_.path : as_text(std::move(shared.paths))},
                                .operand = as_text(fmt::format("{} arrays, {}", shared.arrays, name_of(shared.dtype))),
                                .result = as_text("at their placements"),
                                .backward = occasion.in_backward_pass}));
}

// Every one to its next step between processes. Under TESSERA_CHECK one after the other, since they are compared.
void Shipping::move_here() {
  int64_t cost = 0;
  bool several_slots = false;
  for (size_t i = 0; i < shipments_.size(); ++i)
    for (size_t s = next_[i]; s < shipments_[i].steps.size() && !crosses_processes(*shipments_[i].steps[s]); ++s) {
      const Tensors& tensors = shipments_[i].tensors;
      cost += static_cast<int64_t>(tensors.size()) * nanoseconds_of(3, tensors[0].numel());
      several_slots |= shipments_[i].steps[s]->mesh->shares_the_cpu();
    }
  std::vector<Tensors> packed;  // of what an abstract mesh gathers together
  const auto carry_out = [&](int i) {
    const at::AutoGradMode off(false);
    for (; !has_arrived(i) && !crosses_processes(next_step(i)); ++next_[i]) {
      const Act act = act_of(next_step(i), direction_);
      const bool arrives_later = act.collective == Collective::reduce_scatter;
      std::vector<Tensors>* kept = !stands_for_others_ ? nullptr : arrives_later ? &buffers_ : &packed;
      shipments_[i].tensors = moved(act, shipments_[i].tensors, cause_, kept);
    }
  };
  const auto n = static_cast<int>(shipments_.size());
  const ScopedIntraOpThreads alone(several_slots);
  if (!checks && !stands_for_others_) return parallel_for(n, cost, carry_out);
  for (int i = 0; i < n; ++i) carry_out(i);
}

namespace {

bool can_be_begun(Collective collective) {
  return collective == Collective::all_gather || collective == Collective::reduce_scatter ||
         collective == Collective::permute;
}

}  // namespace

// To where something is under way, or all have arrived. What can't be begun is done at once.
void Shipping::advance() {
  const at::AutoGradMode off(false);
  for (bool moves = true; moves && begun_.empty();) {
    move_here();
    moves = false;
    std::vector<std::vector<size_t>> together;
    const auto act = [&](size_t i) { return act_of(next_step(i), direction_); };
    for (size_t i = 0; i < shipments_.size(); ++i) {
      if (has_arrived(i)) continue;
      const Collective collective = act(i).collective;
      if (!can_be_begun(collective)) {
        shipments_[i].tensors = moved(act(i), shipments_[i].tensors, cause_);
        ++next_[i];
        moves = true;
        continue;
      }
      const auto like = std::find_if(together.begin(), together.end(), [&](const std::vector<size_t>& others) {
        const size_t o = others[0];
        return collective != Collective::permute && act(o).collective == collective &&
               next_step(o).mesh == next_step(i).mesh && next_step(o).axes == next_step(i).axes &&
               next_step(o).processes.numbers == next_step(i).processes.numbers &&
               shipments_[o].tensors[0].scalar_type() == shipments_[i].tensors[0].scalar_type();
      });
      (like == together.end() ? together.emplace_back() : *like).push_back(i);
    }
    for (const std::vector<size_t>& shipments : together) begin(shipments);
  }
}

void Shipping::begin(const std::vector<size_t>& shipments) {
  std::vector<ExchangeWork::Part> parts;
  for (const size_t i : shipments) {
    const Act act = act_of(next_step(i), direction_);
    compare_between_processes(act, shipments_[i].tensors, cause_);
    auto [from, to] = by_group(act, act.padded(shipments_[i].tensors));
    parts.push_back({exchange_of(act, cause_), std::move(from), std::move(to)});
    shipments_[i].tensors.clear();
  }
  begun_.push_back({shipments, ExchangeWork(std::move(parts))});
}

std::vector<Tensors> Shipping::finish() {
  const at::AutoGradMode off(false);
  for (const int64_t number : told_) announce_awaited(number);
  while (!begun_.empty()) {
    for (Begun& begun : std::exchange(begun_, {})) {
      const std::vector<std::vector<Tensors>> results = begun.work.finish();
      for (size_t k = 0; k < begun.shipments.size(); ++k) {
        const size_t i = begun.shipments[k];
        const Act act = act_of(next_step(i), direction_);
        shipments_[i].tensors = act.without_padding(from_groups(act, results[k]));
        ++next_[i];
      }
    }
    advance();
  }
  for (const int64_t number : told_) announce_arrived(number);
  buffers_.clear();
  std::vector<Tensors> results;
  for (Shipment& shipment : shipments_) results.push_back(std::move(shipment.tensors));
  return results;
}

Tensors communicate(const Sum& sum, const Tensors& x) {
  std::optional<int64_t> told;
  if (sum.mesh->count(sum.axes) > 1 && is_watched()) {
    Communication said = sum.said();
    said.kind = traits_of(Collective::all_reduce).name;
    said.mesh = sum.mesh;
    said.axes = sum.axes;
    if (!sum.begun.empty()) said.began = sum.begun.front().began();
    if (said.bytes > 0) told = announce(std::move(said));
  }
  Tensors sums;
  for (SumWork& work : sum.begun)
    for (const at::Tensor& t : work.finish()) sums.push_back(t);
  for (const at::Tensor& t : sum_over_processes(sum.mesh, sum.over, x, {.operation = sum.operation, .where = {}}))
    sums.push_back(t);
  if (told) announce_arrived(*told);
  return sums;
}

Tensors communicate(const StagePermute& permute, const Tensors& x, const EventContext& occasion) {
  const auto [from, to] = permute;
  const MeshImpl* whole = from->mesh->parent;
  const AxisSet axes = cut_of(from->mesh);
  const int64_t told = announce(event_of(Collective::permute, whole, axes, to->bytes, occasion));
  Tensors results = whole->engine->pass(from, to, x, {"permute", occasion.cause.where, whole->kept_names(axes)});
  announce_arrived(told);
  return results;
}

}  // namespace tessera::detail
