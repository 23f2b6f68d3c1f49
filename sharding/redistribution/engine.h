// Engines move bytes between the devices of a group; the mesh says which one.
#pragma once

#include "sharding/distributed/process_group.h"
#include "sharding/redistribution/step.h"

namespace tessera::detail {

// What an engine is asked to do: one move of one group.
struct Exchange {
  Collective collective;
  int devices;  // of the group
  int dim, to_dim;
  const std::vector<int>* senders = nullptr;  // permute: the device whose tensor each gets; -1 for zeros
};

// Block i of n of a dim, a view; and the tensor as that block of zeros.
at::Tensor block(const at::Tensor& t, int dim, int i, int n);
at::Tensor padded(const at::Tensor& t, int dim, int i, int n);
// Whether it is so small, and of a type that is not as wide as double.
bool is_small_sum(const at::Tensor& t);

// in: the group's tensors, one per device, or a single one where all hold the same (or, of an unreduced array, where
// one holds the sum already). out: as many as the group's devices store apart, one or all.
void exchange_locally(const Exchange& exchange, const Tensors& in, Tensors& out);
// All groups of a step at once, of each this process's devices: what they do together, then what the processes do.
void exchange_between_processes(const Exchange& exchange, const GroupProcesses& processes, const Waiting& waiting,
                                const std::vector<Tensors>& in, std::vector<Tensors>& out);
// The sums of what each process along these axes has, the same bits on all of them; x itself where no axis lies across
// processes. All tensors are of one element type.
Tensors sum_over_processes(const MeshImpl* mesh, AxisSet axes, const Tensors& x, const Cause& cause);
// The same of more than a few numbers, begun now and carried out beside what this process computes.
class SumWork {
 public:
  SumWork(const MeshImpl* mesh, AxisSet axes, const Tensors& x, const Cause& cause);
  Tensors finish();
  // How many this process has begun so far.
  static int64_t count();

 private:
  Tensors like_;
  at::Tensor flat_;
  std::unique_ptr<Work> begun_;
};
// The same without data, on the one device that stands for all of an abstract mesh.
void exchange_abstractly(const Exchange& exchange, const Tensors& in, Tensors& out);

}  // namespace tessera::detail
