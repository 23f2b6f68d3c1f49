// HierarchicalCollectives: collectives within each machine, then between machines, to send fewer bytes.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sharding/runtime/process_group.h"

namespace tessera::detail {

// The members of a group by machine, equally many on each; a member is its index in the group.
struct HierarchicalCollectives {
  std::vector<std::vector<int>> machines;  // in the order of their first members
  int machine = 0, place = 0;              // this process is machines[machine][place]

  int64_t on_machine() const { return static_cast<int64_t>(machines[0].size()); }
  const std::vector<int>& within() const { return machines[machine]; }
  std::vector<int> between() const;  // the members at this process's place, one of each machine

  // Whether the bytes between machines become fewer, where the parts that go there are of `type`. A gather's always do.
  bool saves_in_all_reduce(at::ScalarType type, at::ScalarType given) const;
  bool saves_in_reduce_scatter(at::ScalarType type, at::ScalarType given) const;
};

// Of the machine of each member. None where one machine has them all, each has one, or some have more than others.
std::optional<HierarchicalCollectives> hierarchical_collectives(const std::vector<int>& machine_of_member, int self);

// To one peer and from it at once. Every message between two members has a number of its own in the verb.
struct Swap {
  int peer;
  at::Tensor sent, received;
  int number;
};
using SwapAll = std::function<void(const std::vector<Swap>&)>;  // returns when all have come and gone

// A verb in stages. `sent` goes first, in the members' order so many bytes to each, and `received` comes from them;
// then `finish` does the rest, with swaps of `numbers` different numbers. Tensors are on the host.
struct StagedVerb {
  at::Tensor sent, received;
  std::vector<int64_t> out, in;
  std::function<void(const SwapAll&)> finish;
  int numbers = 0;
};

// As the verbs of ProcessGroup. Sums are taken over the members of each machine, in their order, then over the
// machines: in another order than in one stage, and as there in one process for all, so that all have the same bits.
StagedVerb staged_all_reduce(const HierarchicalCollectives& stages, const at::Tensor& flat, ReduceOp how,
                             at::ScalarType type);
StagedVerb staged_all_gather(const HierarchicalCollectives& stages, const at::Tensor& mine, const at::Tensor& all);
StagedVerb staged_reduce_scatter(const HierarchicalCollectives& stages, const at::Tensor& parts, const at::Tensor& mine,
                                 at::ScalarType type);

}  // namespace tessera::detail
