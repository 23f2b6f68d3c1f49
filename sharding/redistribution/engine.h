// Engine: carries out collectives between the devices of a mesh.
#pragma once

#include "sharding/redistribution/step.h"
#include "sharding/runtime/process_group.h"

namespace tessera::detail {

// One collective in all groups of a step.
struct Exchange {
  Collective collective;
  int devices;  // in each group
  int dim = 0, to_dim = 0;
  const std::vector<int>* senders = nullptr;  // permute: the device whose tensor each gets; -1 for zeros
  int processes = 1;                        // that have the devices of a group, or would have them, of an abstract mesh
  const GroupProcesses* members = nullptr;  // if several processes have the devices of a group
  WaitContext waiting = {};                 // the same
};

// Carries out collectives. A mesh holds one engine (MeshImpl::engine), which choose_engine() chooses.
class Engine {
 public:
  virtual ~Engine() = default;
  // Carries out an exchange. `in` has for each group one tensor per device of this process, or a single one if all
  // devices hold the same (or, of a pending sum, if one holds the sum already). `out` has for each group one place per
  // device if they store the result apart, else one. Returns the temporary buffers of one device, which only an
  // abstract mesh has, for meters.
  virtual Tensors exchange(const Exchange& exchange, const std::vector<Tensors>& in,
                           std::vector<Tensors>& out) const = 0;
  // Sends the tensors of a stage of the mesh, which are placed as `from`, to another stage, placed as `to`. Returns
  // those for this process's devices there; where it has none, one without data.
  virtual Tensors pass(const Type* from, const Type* to, const Tensors& x, const WaitContext& waiting) const = 0;
};
// The engines, each of its file engine_<name>.cpp.
const Engine& local_engine();
const Engine& processes_engine();
const Engine& abstract_engine();

// Returns a term of a sum, n times as long as `t` along `dim`: block i is `t`, all other elements are no_term.
at::Tensor padded(const at::Tensor& t, int dim, int i, int n);
// Whether a sum of such tensors is taken in double: few elements, of a floating type narrower than double.
bool is_small_sum(const at::Tensor& t);

// The result to all of `out`: where devices store their results apart, each has its own copy.
void give_to_all(const at::Tensor& result, Tensors& out);
// Carries out an exchange of one group whose devices are all this process's.
void exchange_locally(const Exchange& exchange, const Tensors& in, Tensors& out);
// Engine::pass between processes.
Tensors pass_between_processes(const Type* from, const Type* to, const Tensors& x, const WaitContext& waiting);
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
// permute or all_reduce of one step: begun by the constructor, carried out while this process computes. An all_reduce
// is in place, of one contiguous tensor.
class PendingExchange {
 public:
  struct Part {
    Exchange exchange;
    std::vector<Tensors> in, out;  // as above; `out` has its sizes
  };
  // All parts are of one collective, element type and group of processes, and Exchange::members has to outlive the
  // work, except of an all_reduce. The group is the processes' ProcessGroup::beside(), whose collectives have an order
  // of their own.
  explicit PendingExchange(std::vector<Part> parts);
  // `out` of each part.
  std::vector<std::vector<Tensors>> finish();

 private:
  std::vector<Part> parts_;
  std::vector<std::vector<int64_t>> shapes_;  // of what each part gets
  at::Tensor received_;
  PermuteMessages messages_;
  PendingWork begun_;
};
}  // namespace tessera::detail
