// Engines: a collective carried out by the devices of a group, within a process, between processes, or without data.
#pragma once

#include <chrono>

#include "sharding/redistribution/step.h"
#include "sharding/runtime/process_group.h"

namespace tessera::detail {

// One collective of one group, as an engine is given it.
struct Exchange {
  Collective collective;
  int devices;  // in the group
  int dim, to_dim;
  const std::vector<int>* senders = nullptr;  // permute: the device whose tensor each gets; -1 for zeros
};

// Returns a term of a sum, n times as long as `t` along `dim`: block i is `t`, all other elements are no_term.
at::Tensor padded(const at::Tensor& t, int dim, int i, int n);
// Whether a sum of such tensors is taken in double: few elements, of a floating type narrower than double.
bool is_small_sum(const at::Tensor& t);

// The result to all of `out`: where devices store their results apart, each has its own copy.
void give_to_all(const at::Tensor& result, Tensors& out);
// in: one tensor per device of the group, or a single one if all devices hold the same (or, of a pending sum, if one
// holds the sum already). out: one tensor per device if they store the result apart, else one.
void exchange_locally(const Exchange& exchange, const Tensors& in, Tensors& out);
// All groups of a step at once: first this process's devices of each group among themselves, then the processes.
void exchange_between_processes(const Exchange& exchange, const GroupProcesses& processes, const WaitContext& waiting,
                                const std::vector<Tensors>& in, std::vector<Tensors>& out);
// Tensors that lie as `from` on one stage of a mesh, as `to` on another; where this process has no device of that, one
// without data.
Tensors exchange_between_stages(const Type* from, const Type* to, const Tensors& x, const WaitContext& waiting);
// A collective between processes that was begun; works_under_way counts it until it is waited for or given up.
struct WorkDeleter {
  void operator()(Work* work) const;
};
using PendingWork = std::unique_ptr<Work, WorkDeleter>;
int64_t works_under_way();

// A permute's messages between this process and the others; places[i] are the groups and devices here that
// receives[i] is for.
struct PermuteMessages {
  std::vector<Message> sends = {}, receives = {};
  std::vector<std::vector<std::pair<int64_t, int>>> places = {};
};

// One all_gather or reduce_scatter of several steps between the same processes, as a single call of their group, or the
// permute of one step: begun by the constructor, carried out while this process computes.
class ExchangeWork {
 public:
  struct Part {
    Exchange exchange;
    std::vector<Tensors> in, out;  // as above; `out` has its sizes
  };
  // All parts are of one collective and element type. `members` has to outlive the work. The group is the processes'
  // ProcessGroup::beside(), whose collectives have an order of their own.
  ExchangeWork(const GroupProcesses& members, const WaitContext& waiting, std::vector<Part> parts);
  // `out` of each part.
  std::vector<std::vector<Tensors>> finish();

 private:
  const GroupProcesses& members_;
  const WaitContext waiting_;
  std::vector<Part> parts_;
  std::vector<std::vector<int64_t>> shapes_;  // of what each part gets
  at::Tensor received_;
  PermuteMessages messages_;
  PendingWork begun_;
};
// The sums of the tensors of each process along these mesh axes, the same bits on all of them; x itself if no such axis
// lies across processes. All tensors are of one element type.
Tensors sum_over_processes(const MeshImpl* mesh, AxisSet axes, const Tensors& x, const Provenance& cause);
// The same for more than a few elements, begun by the constructor and carried out while this process computes.
class SumWork {
 public:
  SumWork(const MeshImpl* mesh, AxisSet axes, Tensors x, const Provenance& cause);
  Tensors finish();
  std::chrono::steady_clock::time_point began() const { return began_; }
  // How many sums this process has begun so far.
  static int64_t count();

 private:
  Tensors like_;
  at::Tensor flat_;
  PendingWork begun_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};
// exchange_locally without data, on the one device that stands for all of an abstract mesh. Returned, for the meters:
// what a device has beside operand and result while the exchange is under way between so many processes: its part of
// that which its process gives to the others, and of that which comes from them.
Tensors exchange_abstractly(const Exchange& exchange, int processes, const Tensors& in, Tensors& out);
}  // namespace tessera::detail
