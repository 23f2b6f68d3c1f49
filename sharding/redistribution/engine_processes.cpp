// The engine of several processes: first the devices of each process act together, then all processes in one call.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "sharding/array/abstract_tensor.h"
#include "sharding/kernels/tensors.h"
#include "sharding/redistribution/engine.h"
#include "sharding/redistribution/stages.h"
#include "sharding/runtime/process_group.h"

namespace tessera::detail {
namespace {

std::vector<int64_t> longer(int64_t first, at::IntArrayRef rest) {
  std::vector<int64_t> sizes{first};
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  return sizes;
}

// Stacks the tensors as a contiguous tensor, whatever their memory format.
at::Tensor stacked(const Tensors& parts) {
  return at::stack(at::ArrayRef<at::Tensor>(parts.data(), parts.size())).contiguous();
}

// Returns, for each device of a group in order, its process and its index among the process's devices.
std::vector<std::pair<int, int>> places_of(const GroupProcesses& members, int devices) {
  std::vector<std::pair<int, int>> places(devices);
  for (size_t p = 0; p < members.numbers.size(); ++p)
    for (size_t i = 0; i < members.numbers[p].size(); ++i)
      places[members.numbers[p][i]] = {static_cast<int>(p), static_cast<int>(i)};
  return places;
}

// An exchange between processes.
class ProcessExchange {
 public:
  ProcessExchange(const Exchange& exchange, const std::vector<Tensors>& in, std::vector<Tensors>& out)
      : e_(exchange),
        members_(*exchange.members),
        mine_(members_.numbers[members_.self]),
        places_(places_of(members_, exchange.devices)),
        waiting_(exchange.waiting),
        group_(process_group(members_.processes, in[0][0].device())),
        in_(in),
        out_(out) {}

  void run() {
    switch (e_.collective) {
      case Collective::identity:
        return each([&](const at::Tensor& t, int) { return t; });
      case Collective::slice:
        return each([&](const at::Tensor& t, int number) { return block(t, e_.dim, number, e_.devices); });
      case Collective::pad:
        return each([&](const at::Tensor& t, int number) { return padded(t, e_.dim, number, e_.devices); });
      case Collective::keep_first:
        return each([&](const at::Tensor& t, int number) { return number == 0 ? t : at::full_like(t, no_term); });
      case Collective::all_reduce:
        return sum();
      case Collective::all_reduce_max:
        return ordered_reduce(at::maximum);
      case Collective::all_reduce_min:
        return ordered_reduce(at::minimum);
      case Collective::all_reduce_product:
        return ordered_reduce(at::mul);
      case Collective::all_gather:
        return gather();
      case Collective::reduce_scatter:
        return scatter();
      case Collective::all_to_all:
        return exchange_dims();
      case Collective::permute:
        return permute();
      case Collective::block_exchange:  // carried out piece by piece
      case Collective::count:
        return;
    }
  }

  // For an all_gather or a reduce_scatter: the shape that this process gives to its group; the element type if it gives
  // a single tensor; the functions that pack given data and unpack received data.
  std::vector<int64_t> shape_given() const {
    const at::Tensor& t = in_[0][0];
    if (gathers()) return longer(groups(), longer(each_has(), t.sizes()));
    return longer(processes(), longer(groups(), longer(each_has(), block(t, e_.dim, 0, e_.devices).sizes())));
  }
  at::ScalarType type_given() const { return is_small() ? at::kDouble : in_[0][0].scalar_type(); }
  void pack(const at::Tensor& given) const { gathers() ? give_blocks(given) : give_sums(given); }
  void unpack(const at::Tensor& received) { gathers() ? join(received) : keep(received); }

  // Returns one message per other process for a permute: the tensors of all groups, ordered by the receiving device.
  // Tensors that stay in this process are passed on directly.
  PermuteMessages write_messages() {
    std::map<int, Tensors> outgoing;
    std::map<int, std::vector<std::pair<int64_t, int>>> incoming;  // group and receiving device
    for (int64_t g = 0; g < groups(); ++g)
      for (int to = 0; to < e_.devices; ++to) {
        const int from = (*e_.senders)[to];
        const auto [to_process, to_device] = places_[to];
        const bool is_mine = to_process == members_.self;
        if (from < 0) {
          if (is_mine) out_[g][to_device] = at::zeros_like(in_[g][0]);
          continue;
        }
        const auto [from_process, from_device] = places_[from];
        if (is_mine && from_process == members_.self) out_[g][to_device] = in_[g][from_device];
        if (is_mine && from_process != members_.self) incoming[from_process].emplace_back(g, to_device);
        if (!is_mine && from_process == members_.self) outgoing[to_process].push_back(in_[g][from_device]);
      }
    PermuteMessages messages;
    for (const auto& [peer, tensors] : outgoing) messages.sends.push_back({peer, stacked(tensors)});
    for (auto& [peer, places] : incoming) {
      const auto n = static_cast<int64_t>(places.size());
      messages.receives.push_back({peer, in_[0][0].new_empty(longer(n, in_[0][0].sizes()))});
      messages.places.push_back(std::move(places));
    }
    return messages;
  }

  void read_messages(const PermuteMessages& messages) {
    for (size_t m = 0; m < messages.places.size(); ++m)
      for (size_t i = 0; i < messages.places[m].size(); ++i) {
        const auto [group, device] = messages.places[m][i];
        out_[group][device] = messages.receives[m].tensor[static_cast<int64_t>(i)];
      }
  }

 private:
  int processes() const { return static_cast<int>(members_.processes.size()); }
  int64_t groups() const { return static_cast<int64_t>(in_.size()); }
  int64_t each_has() const { return static_cast<int64_t>(mine_.size()); }

  // Calls fn(its tensor, its number) for every device, in collectives without communication.
  template <class Fn>
  void each(Fn fn) {
    for (size_t g = 0; g < in_.size(); ++g)
      for (size_t i = 0; i < out_[g].size(); ++i) out_[g][i] = fn(in_[g][in_[g].size() == 1 ? 0 : i], mine_[i]);
  }

  // Reduces the tensors of this process's devices of each group, small sums in double.
  Tensors reduced_here(Collective collective, bool small = false) const {
    Tensors folds;
    for (const Tensors& tensors : in_) {
      Tensors one(1);
      exchange_locally({.collective = collective, .devices = static_cast<int>(tensors.size())},
                       small ? in_double(tensors) : tensors, one);
      folds.push_back(one[0]);
    }
    return folds;
  }

  at::Tensor gathered(const at::Tensor& here) const {
    at::Tensor all = here.new_empty(longer(processes(), here.sizes()));
    group_.all_gather(here, all, waiting_)->wait();
    return all;
  }

  void fill(const at::Tensor& results) {
    for (int64_t g = 0; g < groups(); ++g) broadcast(results[g], out_[g]);
  }

  Tensors in_double(const Tensors& tensors) const {
    Tensors wide;
    for (const at::Tensor& t : tensors) wide.push_back(t.to(at::kDouble));
    return wide;
  }

  void sum() {
    const at::ScalarType dtype = in_[0][0].scalar_type();
    const at::Tensor total = stacked(reduced_here(Collective::all_reduce, is_small_sum(in_[0][0])));
    group_.all_reduce(total, ReduceOp::sum, waiting_)->wait();
    fill(total.to(dtype));
  }

  // Reduces in the order of the processes, so that NaNs stay NaNs as in the local kernels and products round
  // deterministically.
  void ordered_reduce(at::Tensor (*combine)(const at::Tensor&, const at::Tensor&)) {
    const at::Tensor all = gathered(stacked(reduced_here(e_.collective)));
    at::Tensor total = all[0];
    for (int p = 1; p < processes(); ++p) total = combine(total, all[p]);
    fill(total);
  }

  bool gathers() const { return e_.collective == Collective::all_gather; }
  bool is_small() const { return !gathers() && is_small_sum(block(in_[0][0], e_.dim, 0, e_.devices)); }
  at::Tensor packed() const {
    const at::Tensor given = at::empty(shape_given(), in_[0][0].options().dtype(type_given()));
    pack(given);
    return given;
  }

  void gather() { unpack(gathered(packed())); }

  void scatter() {
    const at::Tensor parts = packed();
    const at::Tensor mine = parts.new_empty(parts.sizes().slice(1));
    group_.reduce_scatter(parts, mine, waiting_)->wait();
    unpack(mine);
  }

  // Packs the blocks of an all_gather into given: [group, device, ...].
  void give_blocks(const at::Tensor& given) const {
    for (int64_t g = 0; g < groups(); ++g)
      for (int64_t i = 0; i < each_has(); ++i) given[g][i].copy_(in_[g][i]);
  }

  // Packs this process's sums, split into the blocks of all processes, into given: [process, group, device, ...].
  void give_sums(const at::Tensor& given) const {
    const Tensors sums = reduced_here(Collective::all_reduce, is_small());
    for (int p = 0; p < processes(); ++p)
      for (int64_t g = 0; g < groups(); ++g)
        for (int64_t i = 0; i < each_has(); ++i)
          given[p][g][i].copy_(block(sums[g], e_.dim, members_.numbers[p][i], e_.devices));
  }

  // Joins the gathered blocks of all: [process, group, device, ...].
  void join(const at::Tensor& all) {
    for (int64_t g = 0; g < groups(); ++g) {
      std::vector<at::Tensor> blocks;
      for (const auto& [p, i] : places_) blocks.push_back(all[p][g][i]);
      broadcast(at::cat(blocks, e_.dim), out_[g]);
    }
  }

  // Stores the reduced blocks of mine: [group, device, ...].
  void keep(const at::Tensor& mine) {
    const at::Tensor blocks = mine.to(in_[0][0].scalar_type());
    for (int64_t g = 0; g < groups(); ++g)
      for (size_t i = 0; i < out_[g].size(); ++i) out_[g][i] = blocks[g][static_cast<int64_t>(i)];
  }

  void exchange_dims() {
    Tensors blocks;
    for (int p = 0; p < processes(); ++p)
      for (const Tensors& tensors : in_)
        for (const at::Tensor& t : tensors)
          for (const int number : members_.numbers[p]) blocks.push_back(block(t, e_.to_dim, number, e_.devices));
    const std::vector<int64_t> sizes = longer(groups(), longer(each_has(), longer(each_has(), blocks[0].sizes())));
    const at::Tensor parts = stacked(blocks).view(longer(processes(), sizes));
    at::Tensor received = at::empty_like(parts);  // [process, group, its device, this process's device, ...]
    group_.all_to_all(parts, received, waiting_)->wait();
    for (int64_t g = 0; g < groups(); ++g)
      for (size_t i = 0; i < out_[g].size(); ++i) {
        std::vector<at::Tensor> joined;
        for (const auto& [p, from] : places_) joined.push_back(received[p][g][from][static_cast<int64_t>(i)]);
        out_[g][i] = at::cat(joined, e_.dim);
      }
  }

  void permute() {
    const PermuteMessages messages = write_messages();
    group_.exchange(messages.sends, messages.receives, waiting_)->wait();
    read_messages(messages);
  }

  const Exchange& e_;
  const GroupProcesses& members_;
  const std::vector<int>& mine_;  // the numbers of this process's devices
  const std::vector<std::pair<int, int>> places_;
  const WaitContext& waiting_;
  ProcessGroup& group_;
  const std::vector<Tensors>& in_;
  std::vector<Tensors>& out_;
};

// Returns the process that has this device's counterpart on that stage.
int process_on(const MeshImpl* stage) {
  const MeshImpl* whole = stage->parent;
  Coordinates coordinates(whole);
  coordinates[stage->cut_axis] = stage->cut_at;
  return whole->process_of(ravel_place(whole, whole->all(), coordinates));
}

// Sends tensors of this process's stage to another stage. Messages between stages are not ordered with the collectives
// of both processes, so each direction between two processes has its own group. The process continues while the message
// is sent.
void send(const Type* from, const Type* to, const Tensors& x, const WaitContext& waiting) {
  std::vector<Message> messages;
  for (const at::Tensor& t : x) messages.push_back({1, t.detach().contiguous()});
  ProcessGroup& group = process_group({from->mesh->process, process_on(to->mesh)}, from->mesh->device).p2p_channel();
  (void)group.exchange(std::move(messages), {}, waiting);
}

Tensors received(const Type* from, const Type* to, const WaitContext& waiting) {
  Tensors arrived;
  std::vector<Message> messages;
  for (int i = 0; i < to->mesh->slots(to->slots); ++i) {
    arrived.push_back(at::zeros(to->local, at::TensorOptions(scalar_type(to->dtype)).device(to->mesh->device)));
    messages.push_back({0, arrived.back()});
  }
  process_group({process_on(from->mesh), to->mesh->process}, to->mesh->device)
      .p2p_channel()
      .exchange({}, std::move(messages), waiting)
      ->wait();
  return arrived;
}

// Uses the local engine for steps along mesh axes within the process.
struct ProcessesEngine : Engine {
  Tensors exchange(const Exchange& e, const std::vector<Tensors>& in, std::vector<Tensors>& out) const override {
    if (!e.members) return local_engine().exchange(e, in, out);
    ProcessExchange(e, in, out).run();
    return {};
  }
  Tensors pass(const Type* from, const Type* to, const Tensors& x, const WaitContext& waiting) const override {
    const bool gives = !from->mesh->elsewhere, gets = !to->mesh->elsewhere;
    if (gives && gets) return local_engine().pass(from, to, x, waiting);
    if (gives || gets) ++stage_messages();
    if (gets) return received(from, to, waiting);
    if (gives) send(from, to, x, waiting);
    return {abstract_block(to)};
  }
};

}  // namespace

const Engine& processes_engine() {
  static const ProcessesEngine engine;
  return engine;
}

static std::atomic<int64_t> under_way{0};

static PendingWork begun(std::unique_ptr<Work> work) {
  ++under_way;
  return PendingWork(work.release());
}

void WorkDeleter::operator()(Work* work) const {
  --under_way;
  delete work;
}

int64_t works_under_way() { return under_way; }

PendingExchange::PendingExchange(std::vector<Part> parts) : parts_(std::move(parts)) {
  const GroupProcesses& members = *parts_[0].exchange.members;
  const WaitContext& waiting = parts_[0].exchange.waiting;
  ProcessGroup& group = process_group(members.processes, parts_[0].in[0][0].device()).secondary();
  if (parts_[0].exchange.collective == Collective::permute) {
    messages_ = ProcessExchange(parts_[0].exchange, parts_[0].in, parts_[0].out).write_messages();
    begun_ = begun(group.exchange(messages_.sends, messages_.receives, waiting));
    return;
  }
  if (parts_[0].exchange.collective == Collective::all_reduce) {
    begun_ = begun(group.all_reduce(parts_[0].in[0][0], ReduceOp::sum, waiting));
    return;
  }
  const bool gathers = parts_[0].exchange.collective == Collective::all_gather;
  const auto n = static_cast<int64_t>(members.processes.size());
  int64_t width = 0;  // elements given to each of `rows` processes
  const int64_t rows = gathers ? 1 : n;
  std::vector<ProcessExchange> exchanges;
  for (Part& part : parts_) {
    exchanges.emplace_back(part.exchange, part.in, part.out);
    width += c10::multiply_integers(exchanges.back().shape_given()) / rows;
  }
  const at::Tensor& like = parts_[0].in[0][0];
  const at::ScalarType dtype = parts_.size() == 1 ? exchanges[0].type_given() : like.scalar_type();
  const at::Tensor given = at::empty({rows, width}, like.options().dtype(dtype));
  int64_t begin = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const std::vector<int64_t> shape = exchanges[i].shape_given();
    const int64_t mine = c10::multiply_integers(shape) / rows;
    exchanges[i].pack(given.narrow(1, begin, mine).view(shape));
    for (Tensors& operands : parts_[i].in) operands = Tensors(1, operands[0].new_empty({0}));  // frees their memory
    shapes_.push_back(gathers ? longer(n, shape) : std::vector<int64_t>(shape.begin() + 1, shape.end()));
    begin += mine;
  }
  received_ = given.new_empty({gathers ? n : 1, width});
  begun_ = begun(gathers ? group.all_gather(given[0], received_, waiting)
                         : group.reduce_scatter(given, received_[0], waiting));
}

std::vector<std::vector<Tensors>> PendingExchange::finish() {
  begun_->wait();
  begun_.reset();
  std::vector<std::vector<Tensors>> results;
  if (parts_[0].exchange.collective == Collective::permute) {
    ProcessExchange(parts_[0].exchange, parts_[0].in, parts_[0].out).read_messages(messages_);
    results.push_back(std::move(parts_[0].out));
    return results;
  }
  if (parts_[0].exchange.collective == Collective::all_reduce) return {parts_[0].in};
  int64_t begin = 0;
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    const int64_t width = c10::multiply_integers(shapes_[i]) / received_.size(0);
    ProcessExchange(part.exchange, part.in, part.out).unpack(received_.narrow(1, begin, width).view(shapes_[i]));
    begin += width;
    results.push_back(std::move(part.out));
  }
  // Joined blocks are copies, so the buffer is free. The group's thread may keep its reference until it is next
  // scheduled, but then refers to no memory.
  if (parts_[0].exchange.collective == Collective::all_gather) received_.storage().set_data_ptr_noswap({});
  return results;
}

}  // namespace tessera::detail
