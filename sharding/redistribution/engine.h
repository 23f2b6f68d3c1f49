// Engine: carries out collectives between the devices of a mesh.
#pragma once

#include "sharding/redistribution/step.h"
#include "sharding/runtime/process_group.h"

namespace tessera::detail {

// One collective, carried out in all groups of a step.
struct Exchange {
  Collective collective;
  int devices;  // in each group
  int dim = 0, to_dim = 0;
  const std::vector<int>* senders = nullptr;  // permute: the device whose tensor each device gets; -1 for zeros
  int processes = 1;  // the number of processes with devices of a group, or the number on hardware
  const GroupProcesses* members = nullptr;  // set if several processes have the devices of a group
  WaitContext waiting = {};                 // set only if several processes have the devices of a group
};

// Carries out collectives. A mesh holds one engine (MeshImpl::engine), selected by choose_engine().
class Engine {
 public:
  virtual ~Engine() = default;
  // Carries out an exchange. `in` has for each group one tensor per device of this process. It has a single tensor if
  // all devices store the same one, or if one tensor already has the sum of a partial sum. `out` has for each group one
  // tensor per device if devices store the result separately, else one. Returns the temporary buffers of one device for
  // meters; only an abstract mesh has them.
  virtual Tensors exchange(const Exchange& exchange, const std::vector<Tensors>& in,
                           std::vector<Tensors>& out) const = 0;
  // Sends the tensors of a stage of the mesh, placed as `from`, to another stage, placed as `to`. Returns the tensors
  // of this process's devices there; without such a device, one tensor without data.
  virtual Tensors pass(const Type* from, const Type* to, const Tensors& x, const WaitContext& waiting) const = 0;
};
// The engines, each in its file engine_<name>.cpp.
const Engine& local_engine();
const Engine& processes_engine();
const Engine& abstract_engine();

// Returns a view of block i of n along `dim`.
at::Tensor block(const at::Tensor& t, int dim, int i, int n);
// Returns a term of a sum, n times as long as `t` along `dim`: block i is `t`, all other elements are no_term.
at::Tensor padded(const at::Tensor& t, int dim, int i, int n);
// Returns true if a sum of such tensors is computed in double: few elements, of a floating type narrower than double.
bool is_small_sum(const at::Tensor& t);

// Copies the result to each element of `out`: one copy per device that stores its result separately.
void broadcast(const at::Tensor& result, Tensors& out);
// Carries out an exchange of one group whose devices all belong to this process.
void exchange_locally(const Exchange& exchange, const Tensors& in, Tensors& out);
// A started collective between processes. works_under_way counts it until it is waited for or abandoned.
struct WorkDeleter {
  void operator()(Work* work) const;
};
using PendingWork = std::unique_ptr<Work, WorkDeleter>;
int64_t works_under_way();

// The messages of a permute between this process and others. places[i] are the groups and devices of this process that
// receives[i] is for.
struct PermuteMessages {
  std::vector<Message> sends = {}, receives = {};
  std::vector<std::vector<std::pair<int64_t, int>>> places = {};
};

// A started collective, which proceeds while this process computes:
// - one all_gather or reduce_scatter of several steps between the same processes, as a single call of their group
// - or the permute or all_reduce of one step. An all_reduce is in place, on one contiguous tensor.
class PendingExchange {
 public:
  struct Part {
    Exchange exchange;
    std::vector<Tensors> in, out;  // as in Engine::exchange; `out` has its sizes
  };
  // All parts have the same collective, element type and group of processes. Exchange::members must outlive the work,
  // except for an all_reduce. The group is the processes' ProcessGroup::secondary(), which orders its collectives
  // independently.
  explicit PendingExchange(std::vector<Part> parts);
  // Waits and returns `out` of each part.
  std::vector<std::vector<Tensors>> finish();

 private:
  std::vector<Part> parts_;
  std::vector<std::vector<int64_t>> shapes_;  // the shapes that each part receives
  at::Tensor received_;
  PermuteMessages messages_;
  PendingWork begun_;
};
}  // namespace tessera::detail
