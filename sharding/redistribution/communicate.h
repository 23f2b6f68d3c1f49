// communicate: carries out what moves between devices, and announces it to guards, budgets and ledgers.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <vector>

#include "sharding/accounting/communication_event.h"
#include "sharding/redistribution/directed_step.h"
#include "sharding/redistribution/engine.h"

namespace tessera::detail {

// What is announced of a step beside its collective: its cause, and which type becomes which.
struct EventContext {
  const Provenance& cause;
  const Type* from = nullptr;
  const Type* to = nullptr;
  bool in_backward_pass = false;
};

// Carries out a collective on x, one tensor per slot, and returns one per slot. Observers (guards, budgets, ledgers)
// are notified first. Under TESSERA_CHECK=1 processes compare what they do. Not recorded for gradients. Throws the
// errors of a guard or budget before anything moves; inconsistent, if processes do different things; other, if another
// process is lost.
Tensors communicate(const DirectedStep& step, const Tensors& x, const EventContext& context);

// Whether a step's devices are those of several processes.
bool crosses_processes(const Step& step);
// Whether they are, or would be, of an abstract mesh.
bool is_between_processes(const Step& step);

// Asks the guards about all steps before the first of them moves anything, since a later one may be forbidden.
void check_allowed(std::span<const StepPtr> steps, const at::Tensor& x, const EventContext& context);

// An array's tensors, and the steps that they take.
struct TransferItem {
  std::vector<StepPtr> steps;
  Tensors tensors;
  Text path = {};
};

// Moves several arrays at once, forward from the first step to the last, or backward from the last to the first. Arrays
// that take the same collective over the same mesh axes in one element type are announced as one communication, with
// all their paths, and between processes they are one call. The constructor announces all of it and begins what
// involves other processes. All processes do so in the same order.
class Transfer {
 public:
  Transfer(std::vector<TransferItem> items, const EventContext& context, Direction direction = Direction::forward);
  // Whether nothing is under way between processes; what would be, of an abstract mesh, is under way until finish().
  bool has_arrived() const { return begun_.empty() && !stands_for_others_; }
  // The tensors of each, when all have arrived. Called once.
  std::vector<Tensors> finish();

 private:
  struct Begun {
    std::vector<size_t> items;
    PendingExchange work;
  };
  bool has_arrived(size_t i) const { return next_[i] == items_[i].steps.size(); }
  const Step& next_step(size_t i) const { return *items_[i].steps[next_[i]]; }
  void notify_steps(const EventContext& context);
  void move_here();
  void advance();
  void begin(const std::vector<size_t>& items);

  std::vector<TransferItem> items_;
  std::vector<size_t> next_;  // the step before which each stands
  Provenance cause_;
  Direction direction_;
  bool stands_for_others_ = false;  // an abstract mesh's devices would be of several processes
  std::vector<int64_t> told_;  // the numbers of what was announced
  std::vector<Begun> begun_;
  std::vector<Tensors> buffers_;  // of an abstract mesh's reduce_scatters, until they have arrived
};

// The sums over the processes along these axes of tensors of one element type, more than a few elements: begun by the
// constructor, carried out while this process computes.
class PendingSum {
 public:
  PendingSum(const MeshImpl* mesh, AxisSet axes, Tensors x, const Provenance& cause);
  Tensors finish();
  std::chrono::steady_clock::time_point began() const { return began_; }
  // How many sums this process has begun so far.
  static int64_t count();

 private:
  Tensors like_;
  PendingExchange sum_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// A sum over mesh axes of many tensors of one element type at once. This process's devices have added up theirs
// already; some of the sums over processes may have been begun before, beside a computation: those are announced here,
// with the rest. (Where a guard may forbid them, nothing is begun before.)
struct Sum {
  const char* operation;
  const MeshImpl* mesh;
  AxisSet axes;  // the mesh axes along which devices hold different parts
  AxisSet over;  // the mesh axes along which processes add up their sums
  std::span<PendingSum> begun = {};
  std::function<Communication()> said;  // called if there is a watcher; kind, mesh and axes are filled in
};
// Returns the sums that were begun, in order, then those of x.
Tensors communicate(const Sum& sum, const Tensors& x);

// A permute from one stage of a mesh to another: each device there gets the tensor of the one at its place here.
struct StagePermute {
  const Type *from, *to;
};
// Returns one tensor for each of this process's devices on `to`; where it has none, one without data.
Tensors communicate(const StagePermute& permute, const Tensors& x, const EventContext& context);

}  // namespace tessera::detail
