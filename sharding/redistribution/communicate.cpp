// Notifies observers of a communication and carries it out with the mesh's engine.
#include "sharding/redistribution/communicate.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "sharding/base/environment.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/redistribution/route.h"

namespace tessera::detail {

Communication event_of(Collective collective, const MeshImpl* mesh, AxisSet axes, int64_t bytes,
                       const EventContext& context) {
  return {.kind = bytes ? traits_of(collective).name : nullptr,
          .mesh = mesh,
          .axes = axes,
          .bytes = bytes,
          .cause = context.cause,
          .from = context.from,
          .to = context.to,
          .backward = context.in_backward_pass};
}

namespace {

Communication event_of(const DirectedStep& directed, int64_t bytes, int64_t item, const EventContext& context) {
  return detail::event_of(directed.collective, directed.mesh(), directed.axes(), directed.result_bytes(bytes, item),
                          context);
}

// Returns the tensors of each group, and empty tensors for its results.
std::pair<std::vector<Tensors>, std::vector<Tensors>> by_group(const DirectedStep& directed, const Tensors& in) {
  std::vector<Tensors> from, to;
  for (const Group& group : directed.step.groups) {
    Tensors& devices = from.emplace_back();
    for (int i : directed.slots_from(group)) devices.push_back(in[i]);
    to.emplace_back(directed.slots_to(group).size());
  }
  return {std::move(from), std::move(to)};
}

Tensors from_groups(const DirectedStep& directed, const std::vector<Tensors>& results) {
  Tensors out(directed.is_backward ? directed.step.tensors_in : directed.step.tensors_out);
  for (size_t g = 0; g < results.size(); ++g) {
    const std::vector<int>& places = directed.slots_to(directed.step.groups[g]);
    for (size_t i = 0; i < places.size(); ++i) out[places[i]] = results[g][i];
  }
  return out;
}

WaitContext waiting_for(const Step& step, const Provenance& cause) {
  return {cause.operation, cause.where, step.mesh->kept_names(step.axes)};
}

Exchange exchange_of(const DirectedStep& directed, const Provenance& cause) {
  Exchange exchange{.collective = directed.collective,
                    .devices = directed.devices(),
                    .dim = directed.dim(),
                    .to_dim = directed.to_dim(),
                    .senders = directed.is_backward ? &directed.step.receivers : &directed.step.senders,
                    .processes = directed.processes()};
  if (!crosses_processes(directed.step)) return exchange;
  exchange.members = &directed.step.processes;
  exchange.waiting = waiting_for(directed.step, cause);
  return exchange;
}

// Carries out the exchange. `kept` receives the buffers of an abstract mesh's device, so that they outlive the call.
Tensors exchanged(const DirectedStep& directed, const Tensors& x, const Provenance& cause, std::vector<Tensors>* kept) {
  auto [from, to] = by_group(directed, x);
  Tensors buffers = directed.step.mesh->engine->exchange(exchange_of(directed, cause), from, to);
  if (kept && !buffers.empty()) kept->push_back(std::move(buffers));
  return from_groups(directed, to);
}

void compare_between_processes(const DirectedStep& directed, const Tensors& x, const Provenance& cause) {
  const Step& step = directed.step;
  const char* kind = traits_of(directed.collective).name;
  check_same_collective(kind ? kind : "no move", step.mesh, step.exchange ? step.exchange->axes : step.axes, x[0],
                        cause);
}

Tensors moved(const DirectedStep& directed, const Tensors& x, const Provenance& cause,
              std::vector<Tensors>* kept = nullptr) {
  const Step& step = directed.step;
  if (crosses_processes(step)) compare_between_processes(directed, x, cause);
  if (step.exchange)
    return directed.is_backward ? step.exchange->scatter_blocks(x, cause) : step.exchange->gather_blocks(x, cause);
  return directed.without_padding(exchanged(directed, directed.padded(x), cause, kept));
}

}  // namespace

Tensors communicate(const DirectedStep& directed, const Tensors& x, const EventContext& context) {
  return communicate(
      [&] {
        return event_of(directed, static_cast<int64_t>(x[0].nbytes()), static_cast<int64_t>(x[0].itemsize()), context);
      },
      [&] { return moved(directed, x, context.cause); });
}

bool crosses_processes(const Step& step) {
  return step.exchange ? step.exchange->processes.size() > 1 : !step.processes.processes.empty();
}

bool is_between_processes(const Step& step) {
  if (!step.mesh->has_no_hardware()) return crosses_processes(step);
  return step.mesh->processes_over(step.exchange ? step.mesh->all() : step.axes) > 1;
}

void check_allowed(std::span<const StepPtr> steps, const at::Tensor& x, const EventContext& context) {
  if (!is_guarded()) return;
  const auto item = static_cast<int64_t>(x.itemsize());
  auto bytes = static_cast<int64_t>(x.nbytes());
  for (const StepPtr& step : steps) {
    const DirectedStep directed = in_direction(*step, Direction::forward);
    const Communication event = event_of(directed, bytes, item, context);
    if (event.kind) check_allowed(event);
    bytes = directed.bytes_after(bytes, item);
  }
}

namespace {

// The properties that all items of one communication share.
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

Transfer::Transfer(std::vector<TransferItem> items, const EventContext& context, Direction direction)
    : items_(std::move(items)), next_(items_.size()), cause_(context.cause), direction_(direction) {
  if (direction == Direction::backward)
    for (TransferItem& item : items_) std::reverse(item.steps.begin(), item.steps.end());
  for (const TransferItem& item : items_)
    for (const StepPtr& step : item.steps) stands_for_others_ |= step->mesh->abstract && is_between_processes(*step);
  notify_steps(context);
  advance();
}

// Announces the steps of all items before the first one communicates.
void Transfer::notify_steps(const EventContext& context) {
  if (!is_observed(Events::communication)) return;
  std::vector<Shared> all;
  for (const auto& [steps, tensors, path] : items_) {
    auto bytes = static_cast<int64_t>(tensors[0].nbytes());
    const auto item = static_cast<int64_t>(tensors[0].itemsize());
    const auto dtype = static_cast<DType>(tensors[0].scalar_type());
    for (const StepPtr& step : steps) {
      const DirectedStep directed = in_direction(*step, direction_);
      const int64_t received = directed.result_bytes(bytes, item);
      if (items_.size() == 1 && context.from) {
        if (Communication event = event_of(directed, bytes, item, context); event.kind)
          events_.push_back(notify(std::move(event)));
      } else if (received)
        add_to(all, {directed.collective, directed.mesh(), directed.axes(), dtype, received, 1, path ? *path : ""});
      bytes = directed.bytes_after(bytes, item);
    }
  }
  for (Shared& shared : all)
    if (const char* kind = traits_of(shared.collective).name)
      events_.push_back(notify({.kind = kind,
                                .mesh = shared.mesh,
                                .axes = shared.axes,
                                .bytes = shared.bytes,
                                .cause = {cause_.operation, cause_.where, cause_.reason,
                                          shared.paths.empty() ? cause_.path : as_text(std::move(shared.paths))},
                                .operand = as_text(fmt::format("{} arrays, {}", shared.arrays, name_of(shared.dtype))),
                                .result = as_text("the arrays' shardings"),
                                .backward = context.in_backward_pass}));
}

// Moves every item to its next step between processes. Under TESSERA_CHECK items go one after the other, because
// processes compare them.
void Transfer::move_here() {
  int64_t cost = 0;
  bool several_slots = false;
  for (size_t i = 0; i < items_.size(); ++i)
    for (size_t s = next_[i]; s < items_[i].steps.size() && !crosses_processes(*items_[i].steps[s]); ++s) {
      const Tensors& tensors = items_[i].tensors;
      cost += static_cast<int64_t>(tensors.size()) * nanoseconds_of(3, tensors[0].numel());
      several_slots |= items_[i].steps[s]->mesh->shares_the_cpu();
    }
  std::vector<Tensors> packed;  // buffers of an abstract mesh's joint gathers
  const auto carry_out = [&](int i) {
    const at::AutoGradMode off(false);
    for (; !has_arrived(i) && !crosses_processes(next_step(i)); ++next_[i]) {
      const DirectedStep directed = in_direction(next_step(i), direction_);
      const bool arrives_later = directed.collective == Collective::reduce_scatter;
      std::vector<Tensors>* kept = !stands_for_others_ ? nullptr : arrives_later ? &buffers_ : &packed;
      items_[i].tensors = moved(directed, items_[i].tensors, cause_, kept);
    }
  };
  const auto n = static_cast<int>(items_.size());
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

// Advances until a collective is in flight or all items are done. A collective that cannot be started asynchronously is
// carried out immediately.
void Transfer::advance() {
  const at::AutoGradMode off(false);
  for (bool moves = true; moves && begun_.empty();) {
    move_here();
    moves = false;
    std::vector<std::vector<size_t>> together;
    const auto next = [&](size_t i) { return in_direction(next_step(i), direction_); };
    for (size_t i = 0; i < items_.size(); ++i) {
      if (has_arrived(i)) continue;
      const Collective collective = next(i).collective;
      if (!can_be_begun(collective)) {
        items_[i].tensors = moved(next(i), items_[i].tensors, cause_);
        ++next_[i];
        moves = true;
        continue;
      }
      const auto like = std::find_if(together.begin(), together.end(), [&](const std::vector<size_t>& others) {
        const size_t o = others[0];
        return collective != Collective::permute && next(o).collective == collective &&
               next_step(o).mesh == next_step(i).mesh && next_step(o).axes == next_step(i).axes &&
               next_step(o).processes.numbers == next_step(i).processes.numbers &&
               items_[o].tensors[0].scalar_type() == items_[i].tensors[0].scalar_type();
      });
      (like == together.end() ? together.emplace_back() : *like).push_back(i);
    }
    for (const std::vector<size_t>& items : together) begin(items);
  }
}

void Transfer::begin(const std::vector<size_t>& items) {
  std::vector<PendingExchange::Part> parts;
  for (const size_t i : items) {
    const DirectedStep directed = in_direction(next_step(i), direction_);
    compare_between_processes(directed, items_[i].tensors, cause_);
    auto [from, to] = by_group(directed, directed.padded(items_[i].tensors));
    parts.push_back({exchange_of(directed, cause_), std::move(from), std::move(to)});
    items_[i].tensors.clear();
  }
  begun_.push_back({items, PendingExchange(std::move(parts))});
}

void Transfer::wait() {
  if (error_) std::rethrow_exception(error_);
  if (std::exchange(is_waited_for_, true)) return;
  try {
    wait_for_all();
  } catch (...) {
    error_ = std::current_exception();
    begun_.clear();
    throw;
  }
}

std::vector<Tensors> Transfer::finish() {
  std::vector<Tensors> results;
  for (size_t i = 0; i < items_.size(); ++i) results.push_back(take(i));
  return results;
}

void Transfer::wait_for_all() {
  const at::AutoGradMode off(false);
  for (const int64_t number : events_) notify_awaited(number);
  while (!begun_.empty()) {
    for (Begun& begun : std::exchange(begun_, {})) {
      const std::vector<std::vector<Tensors>> results = begun.work.finish();
      for (size_t k = 0; k < begun.items.size(); ++k) {
        const size_t i = begun.items[k];
        const DirectedStep directed = in_direction(next_step(i), direction_);
        items_[i].tensors = directed.without_padding(from_groups(directed, results[k]));
        ++next_[i];
      }
    }
    advance();
  }
  for (const int64_t number : events_) notify_arrived(number);
  buffers_.clear();
}

namespace {

at::Tensor flat(const Tensors& x) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& t : x) parts.push_back(t.reshape({-1}));
  return at::cat(parts);
}

Tensors cut(const at::Tensor& flat, const Tensors& like) {
  Tensors parts;
  int64_t begin = 0;
  for (const at::Tensor& t : like) {
    parts.push_back(flat.narrow(0, begin, t.numel()).view(t.sizes()));
    begin += t.numel();
  }
  return parts;
}

// Returns the processes along these axes, each as one device.
GroupProcesses processes_of(const MeshImpl* mesh, AxisSet axes) {
  GroupProcesses members{processes_along(mesh, axes), process_along(mesh, axes, Coordinates(mesh)), {}};
  for (int p = 0; p < static_cast<int>(members.processes.size()); ++p) members.numbers.push_back({p});
  return members;
}

PendingExchange::Part sum_of(const Tensors& x, const GroupProcesses& members, const MeshImpl* mesh, AxisSet axes,
                             const Provenance& cause) {
  const auto n = static_cast<int>(members.processes.size());
  PendingExchange::Part part{{.collective = Collective::all_reduce,
                              .devices = n,
                              .processes = n,
                              .members = &members,
                              .waiting = {cause.operation, cause.where, mesh->kept_names(axes)}},
                             {Tensors(1, flat(x))},
                             {Tensors(1)}};
  check_same_collective("all_reduce", mesh, axes, part.in[0][0], cause);
  return part;
}

}  // namespace

Tensors sum_over_processes(const MeshImpl* mesh, AxisSet axes, const Tensors& x, const Provenance& cause) {
  if (x.empty() || !(axes & mesh->crossing())) return x;
  const GroupProcesses members = processes_of(mesh, axes);
  PendingExchange::Part part = sum_of(x, members, mesh, axes, cause);
  mesh->engine->exchange(part.exchange, part.in, part.out);
  return cut(part.out[0][0], x);
}

namespace {

std::atomic<int64_t> sums_begun{0};

PendingExchange begun_sum(const MeshImpl* mesh, AxisSet axes, const Tensors& x, const Provenance& cause) {
  const GroupProcesses members = processes_of(mesh, axes);
  std::vector<PendingExchange::Part> parts;
  parts.push_back(sum_of(x, members, mesh, axes, cause));
  ++sums_begun;
  return PendingExchange(std::move(parts));
}

}  // namespace

PendingSum::PendingSum(const MeshImpl* mesh, AxisSet axes, Tensors x, const Provenance& cause)
    : like_(std::move(x)), sum_(begun_sum(mesh, axes, like_, cause)) {}

int64_t PendingSum::count() { return sums_begun; }

Tensors PendingSum::finish() { return cut(sum_.finish()[0][0][0], like_); }

}  // namespace tessera::detail
