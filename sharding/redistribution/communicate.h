// communicate: notifies guards, budgets and ledgers of a communication, then carries it out.
#pragma once

#include <c10/util/accumulate.h>

#include <chrono>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sharding/accounting/communication_event.h"
#include "sharding/array/padding.h"
#include "sharding/redistribution/engine.h"
#include "sharding/redistribution/route.h"

namespace tessera::detail {

enum class Direction : uint8_t { forward, backward };

// One collective over a step's groups: forward from the operand's slots to the result's, or backward.
struct DirectedStep {
  const Step& step;
  Collective collective;
  bool is_backward = false;

  int devices() const { return step.mesh->count(step.axes); }
  int processes() const { return step.mesh->processes_over(step.axes); }  // processes that have these devices
  const std::vector<int>& slots_from(const Group& group) const { return is_backward ? group.out : group.in; }
  const std::vector<int>& slots_to(const Group& group) const { return is_backward ? group.in : group.out; }
  const MeshImpl* mesh() const { return is_backward && step.mesh_before ? step.mesh_before : step.mesh; }
  AxisSet axes() const { return step.mesh_before ? mesh()->all() : step.axes; }
  // An all_to_all swaps its two dimensions in the backward direction.
  bool swaps() const { return is_backward && collective == Collective::all_to_all; }
  int dim() const { return swaps() ? step.to_dim : step.dim; }
  int to_dim() const { return swaps() ? step.dim : step.to_dim; }

  // The size of the dimension that is split into padded blocks, and of the dimension that is joined from such blocks;
  // 0: none.
  int64_t size_cut() const {
    if (collective == Collective::all_to_all) return is_backward ? step.size : step.to_size;
    return collective == Collective::slice || collective == Collective::reduce_scatter ? step.size : 0;
  }
  int64_t size_joined() const {
    if (collective == Collective::all_to_all) return is_backward ? step.to_size : step.size;
    return collective == Collective::all_gather || collective == Collective::pad ? step.size : 0;
  }
  int64_t with_padding(int64_t size) const { return block_size(size, devices()) * devices(); }
  Tensors padded(const Tensors& x) const {
    if (!size_cut()) return x;
    const int cut = collective == Collective::all_to_all ? to_dim() : dim();
    Tensors longer;
    for (const at::Tensor& t : x) longer.push_back(lengthened(t, cut, with_padding(size_cut())));
    return longer;
  }
  Tensors without_padding(const Tensors& x) const {
    if (!size_joined()) return x;
    Tensors shorter;  // results that devices share stay shared
    for (size_t i = 0; i < x.size(); ++i)
      shorter.push_back(i && x[i].is_same(x[i - 1]) ? shorter.back()
                                                    : x[i].narrow(dim(), 0, size_joined()).contiguous());
    return shorter;
  }
  int64_t padded_bytes(int64_t bytes) const {
    return size_cut() ? bytes / size_cut() * with_padding(size_cut()) : bytes;
  }

  int64_t result_bytes(int64_t bytes, int64_t item) const {
    if (step.exchange) return (is_backward ? step.exchange->returned : step.exchange->received) * item;
    return traits_of(collective).result_bytes(padded_bytes(bytes), devices());
  }
  // Returns the bytes of the result on a device, which may have received only some of them.
  int64_t bytes_after(int64_t bytes, int64_t item) const {
    if (step.exchange) return c10::multiply_integers(step.exchange->out) * item;
    const int64_t after = result_bytes(bytes, item);
    return size_joined() ? after / with_padding(size_joined()) * size_joined() : after;
  }
};

// Returns the collective of the step's table row in this direction.
inline DirectedStep in_direction(const Step& step, Direction direction) {
  const TableRow& row = table_row(step.row);
  if (direction == Direction::forward) return {step, row.forward};
  return {step, row.backward, true};
}

// The part of an event that does not depend on the collective: its cause, and the types before and after.
struct EventContext {
  const Provenance& cause;
  const Type* from = nullptr;
  const Type* to = nullptr;
  bool in_backward_pass = false;
};

// Returns the event of a collective whose result has this many bytes on one device. The event has no kind for 0 bytes.
Communication event_of(Collective collective, const MeshImpl* mesh, AxisSet axes, int64_t bytes,
                       const EventContext& context);

// Carries out a communication that is finished when the call returns; all such communications start here. Notifies
// observers of the event that `event()` returns, unless it has no kind. Then calls `move()`, notifies observers of the
// arrival, and returns the tensors of `move()`. Calls `event` only if there are observers. A guard or budget throws
// before anything is communicated.
template <class Event, class Move>
Tensors communicate(const Event& event, const Move& move) {
  std::optional<int64_t> number;
  if (is_observed(Events::communication))
    if (Communication announced = event(); announced.kind) number = notify(std::move(announced));
  Tensors results = move();
  if (number) notify_arrived(*number);
  return results;
}

// Carries out a collective on x, one tensor per slot, and returns one tensor per slot. Not recorded for gradients.
// Under TESSERA_CHECK=1 processes compare their calls first.
// Errors
//   inconsistent: the calls of the processes differ
//   lost_process: another process is lost
Tensors communicate(const DirectedStep& step, const Tensors& x, const EventContext& context);

// Returns true if a step's devices belong to several processes.
bool crosses_processes(const Step& step);
// Returns true if a step's devices belong to several processes, or would on hardware in the case of an abstract mesh.
bool is_between_processes(const Step& step);

// Lets guards check all steps before the first one communicates, since a later one may be forbidden.
void check_allowed(std::span<const StepPtr> steps, const at::Tensor& x, const EventContext& context);

// An array's tensors, and the steps that they take.
struct TransferItem {
  std::vector<StepPtr> steps;
  Tensors tensors;
  Text path = {};
};

// Transfers several arrays at once, forward from the first step to the last, or backward from the last to the first.
// Arrays with the same collective, mesh axes and element type are announced as one communication, with all their paths.
// Between processes such a communication is one call. The constructor announces all of it and starts the part that
// involves other processes. All processes do so in the same order.
class Transfer {
 public:
  Transfer(std::vector<TransferItem> items, const EventContext& context, Direction direction = Direction::forward);
  // Returns true if nothing is under way between processes. On an abstract mesh, transfers that would be between
  // processes are under way until wait().
  bool has_arrived() const { return begun_.empty() && !stands_for_others_; }
  // Waits until all arrays have arrived. Later calls do nothing, or throw the same error again.
  void wait();
  // take waits and returns the tensors of one array; each array can be taken once. finish waits and returns the tensors
  // of all arrays.
  Tensors take(size_t i) {
    wait();
    return std::move(items_[i].tensors);
  }
  std::vector<Tensors> finish();

 private:
  struct Begun {
    std::vector<size_t> items;
    PendingExchange work;
  };
  bool has_arrived(size_t i) const { return next_[i] == items_[i].steps.size(); }
  const Step& next_step(size_t i) const { return *items_[i].steps[next_[i]]; }
  void notify_steps(const EventContext& context);
  void wait_for_all();
  void move_here();
  void advance();
  void begin(const std::vector<size_t>& items);

  std::vector<TransferItem> items_;
  std::vector<size_t> next_;  // the next step of each item
  Provenance cause_;
  Direction direction_;
  bool stands_for_others_ = false;  // true: an abstract mesh whose devices would belong to several processes
  std::vector<int64_t> events_;     // the numbers of the announced communications
  std::vector<Begun> begun_;
  std::vector<Tensors> buffers_;  // buffers of an abstract mesh's reduce_scatters, until they have arrived
  bool is_waited_for_ = false;
  std::exception_ptr error_;  // the error that wait() threw
};

// Sums tensors over the processes along these axes. The tensors have one element type, and more than a few elements.
// The constructor starts the sums, which are computed while this process continues.
class PendingSum {
 public:
  PendingSum(const MeshImpl* mesh, AxisSet axes, Tensors x, const Provenance& cause);
  Tensors finish();
  std::chrono::steady_clock::time_point began() const { return began_; }
  // Returns the number of sums that this process has started so far.
  static int64_t count();

 private:
  Tensors like_;
  PendingExchange sum_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

// Returns the sums of x over the processes along these axes, with the same bits on all processes. Returns x itself if
// no such axis crosses processes. Does not notify observers.
Tensors sum_over_processes(const MeshImpl* mesh, AxisSet axes, const Tensors& x, const Provenance& cause);

// ---- checks between processes

// Returns, for example, "the mesh (data=4) over the devices 0, 1, 2, 3".
std::string words_of(const MeshImpl* mesh);

// Checks that processes agree on a collective on `x`. All processes of the mesh call it before the collective. The
// first call for a mesh compares its axes and devices between processes. Under TESSERA_CHECK=1 every call compares the
// collective, mesh axes, bytes, operation and line. Error (inconsistent), equal on all processes: shows how two of them
// differ.
void check_same_collective(const char* kind, const MeshImpl* mesh, AxisSet axes, const at::Tensor& x,
                           const Provenance& cause);

// Checks that processes with the same block hold the same bits. All processes of the mesh call this function before
// they communicate an array, and for every parameter before they compute gradients. Error (inconsistent), equal on all
// processes: names the first two processes that differ.
void check_replicas_across_processes(const Type* type, const Tensors& local, const Provenance& cause);

}  // namespace tessera::detail
