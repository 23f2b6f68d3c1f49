// What goes first, and what is made of it.
#include "sharding/runtime/hierarchical_collectives.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <map>

#include "sharding/runtime/fold.h"

namespace tessera::detail {
namespace {

int64_t byte_count(const at::Tensor& t) { return static_cast<int64_t>(t.nbytes()); }
int64_t size_of(at::ScalarType type) { return static_cast<int64_t>(c10::elementSize(type)); }

std::vector<int64_t> to_each(const std::vector<int>& members, int64_t bytes, const HierarchicalCollectives& stages) {
  std::vector<int64_t> counts(stages.machines.size() * stages.machines[0].size());
  for (const int member : members) counts[member] = bytes;
  return counts;
}

// parts[own] goes to the other members, and their parts come.
void give(const std::vector<int>& members, int own, const std::vector<at::Tensor>& parts, int number,
          std::vector<Swap>& swaps) {
  for (size_t i = 0; i < members.size(); ++i)
    if (static_cast<int>(i) != own) swaps.push_back({members[i], parts[own], parts[i], number});
}

// Folds what each machine has for this one's place, sums[m] that for machine m, into `result`.
void fold_between(const HierarchicalCollectives& stages, const std::vector<at::Tensor>& sums, ReduceOp how,
                  at::ScalarType type, const at::Tensor& result, const SwapAll& swap_all) {
  const std::vector<int> between = stages.between();
  std::vector<at::Tensor> parts;
  std::vector<Swap> swaps;
  for (size_t m = 0; m < between.size(); ++m) {
    const bool is_own = static_cast<int>(m) == stages.machine;
    parts.push_back(is_own ? sums[m] : at::empty_like(sums[stages.machine]));
    if (!is_own) swaps.push_back({between[m], sums[m], parts[m], 0});
  }
  swap_all(swaps);
  fold(parts, how, type, result);
}

}  // namespace

std::vector<int> HierarchicalCollectives::between() const {
  std::vector<int> members;
  for (const std::vector<int>& one : machines) members.push_back(one[place]);
  return members;
}

// In one stage each member sends its part to all members of the others, and gets the result's parts from them; in two,
// one for its machine's.
bool HierarchicalCollectives::saves_in_all_reduce(at::ScalarType type, at::ScalarType given) const {
  return size_of(type) + size_of(given) < 2 * on_machine() * size_of(given);
}
bool HierarchicalCollectives::saves_in_reduce_scatter(at::ScalarType type, at::ScalarType given) const {
  return size_of(type) < on_machine() * size_of(given);
}

std::optional<HierarchicalCollectives> hierarchical_collectives(const std::vector<int>& machine_of_member, int self) {
  HierarchicalCollectives stages;
  std::map<int, size_t> numbers;
  for (size_t i = 0; i < machine_of_member.size(); ++i) {
    const size_t m = numbers.try_emplace(machine_of_member[i], numbers.size()).first->second;
    stages.machines.resize(numbers.size());
    if (static_cast<int>(i) == self)
      stages.machine = static_cast<int>(m), stages.place = static_cast<int>(stages.machines[m].size());
    stages.machines[m].push_back(static_cast<int>(i));
  }
  const auto is_as_long = [&](const std::vector<int>& one) { return one.size() == stages.machines[0].size(); };
  if (stages.machines.size() < 2 || stages.on_machine() < 2 ||
      !std::all_of(stages.machines.begin(), stages.machines.end(), is_as_long))
    return std::nullopt;
  return stages;
}

StagedVerb staged_all_reduce(const HierarchicalCollectives& stages, const at::Tensor& flat, ReduceOp how,
                             at::ScalarType type) {
  const std::vector<int>& within = stages.within();
  const std::vector<at::Tensor> parts = cut_evenly(flat, stages.on_machine());
  const at::Tensor mine = parts[stages.place];
  StagedVerb verb{.sent = flat,
                  .received = at::empty({stages.on_machine(), mine.numel()}, flat.options()),
                  .out = to_each({}, 0, stages),
                  .in = to_each(within, byte_count(mine), stages),
                  .finish = {},
                  .numbers = 3};
  for (size_t i = 0; i < within.size(); ++i) verb.out[within[i]] = byte_count(parts[i]);
  verb.finish = [=, received = verb.received](const SwapAll& swap_all) {
    const auto machines = static_cast<int64_t>(stages.machines.size());
    const std::vector<at::Tensor> sums = cut_evenly(folded(received.unbind(0), how, type), machines);
    const std::vector<at::Tensor> results = cut_evenly(mine, machines);
    fold_between(stages, sums, how, type, results[stages.machine], swap_all);
    std::vector<Swap> to_machines, to_own;
    give(stages.between(), stages.machine, results, 1, to_machines);
    swap_all(to_machines);
    give(stages.within(), stages.place, parts, 2, to_own);
    swap_all(to_own);
  };
  return verb;
}

StagedVerb staged_all_gather(const HierarchicalCollectives& stages, const at::Tensor& mine, const at::Tensor& all) {
  const auto others = static_cast<int64_t>(stages.machines.size()) - 1;
  const at::Tensor sent = mine.reshape({1, mine.numel()}).expand({others, mine.numel()}).contiguous();
  StagedVerb verb{.sent = sent,
                  .received = at::empty_like(sent),
                  .out = to_each(stages.between(), byte_count(mine), stages),
                  .in = {},
                  .finish = {},
                  .numbers = static_cast<int>(stages.machines.size())};
  verb.out[stages.within()[stages.place]] = 0;
  verb.in = verb.out;
  verb.finish = [=, received = verb.received](const SwapAll& swap_all) {
    const std::vector<at::Tensor> blocks = all.view({all.size(0), mine.numel()}).unbind(0);
    std::map<int, at::Tensor> come;  // in the order of the members
    for (const int member : stages.between()) come[member];
    int64_t next = 0;
    for (auto& [member, block] : come)
      block = member == stages.within()[stages.place] ? mine.reshape({mine.numel()}) : received[next++];
    for (const auto& [member, block] : come) blocks[member].copy_(block);
    std::vector<Swap> swaps;
    for (size_t m = 0; m < stages.machines.size(); ++m) {
      std::vector<at::Tensor> parts;
      for (const int member : stages.machines[m]) parts.push_back(blocks[member]);
      give(stages.within(), stages.place, parts, static_cast<int>(m), swaps);
    }
    swap_all(swaps);
  };
  return verb;
}

StagedVerb staged_reduce_scatter(const HierarchicalCollectives& stages, const at::Tensor& parts, const at::Tensor& mine,
                                 at::ScalarType type) {
  const std::vector<at::Tensor> rows = parts.view({parts.size(0), mine.numel()}).split(1);
  std::vector<at::Tensor> by_place;
  for (int64_t place = 0; place < stages.on_machine(); ++place)
    for (const std::vector<int>& members : stages.machines) by_place.push_back(rows[members[place]]);
  const auto machines = static_cast<int64_t>(stages.machines.size());
  StagedVerb verb{.sent = at::cat(by_place),
                  .received = at::empty({stages.on_machine(), machines, mine.numel()}, parts.options()),
                  .out = to_each(stages.within(), machines * byte_count(mine), stages),
                  .in = {},
                  .finish = {},
                  .numbers = 1};
  verb.in = verb.out;
  verb.finish = [=, received = verb.received](const SwapAll& swap_all) {
    const std::vector<at::Tensor> sums = folded(received.unbind(0), ReduceOp::sum, type).unbind(0);
    fold_between(stages, sums, ReduceOp::sum, type, mine.view({mine.numel()}), swap_all);
  };
  return verb;
}

}  // namespace tessera::detail
