// PrefetchSchedule: gathers the weights of a step by block and before they are used, in the order of the previous step.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "sharding/array/gradient_options.h"
#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/resharding.h"

namespace tessera::detail {

// Returns the block of a parameter: the element of a list that owns it, "layers.2" for "layers.2.mlp.up.kernel".
// Returns "" for a parameter outside of lists, which is not grouped.
std::string block_of(const std::string& path);

// Returns true if `a` is one of the leaves of a tape's parameter.
bool is_leaf(const ArrayImpl& parameter, const ArrayPtr& a);

// One gather of a weight during a step.
struct WeightGather {
  int parameter = -1;               // index among the tape's parameters; -1: a frozen weight
  std::weak_ptr<ArrayImpl> frozen;  // the frozen weight
  std::shared_ptr<const Resharding> resharding;
  bool in_backward_pass = false;

  bool is_like(const WeightGather& other) const;
};

// The gathers of a program, in order. The gathers of one block are adjacent and form a group.
struct GatherOrder {
  std::vector<WeightGather> gathers;
  std::vector<size_t> group_end;  // for each gather, the end of its group
};
// The order that the steps of one program share; null before the first step.
struct KnownOrder {
  std::shared_ptr<const GatherOrder> order;
};

// Gathers the weights of a step in the order of the last step of the same program. Programs are the same if they have
// the same source line, and parameters of the same paths and types. Without a known order, or after a step diverges
// from it, each weight is gathered separately, and the next step uses the new order. All processes run the same
// program, so they diverge at the same point. Under a guard that may forbid a communication, nothing is prefetched.
class PrefetchSchedule {
 public:
  PrefetchSchedule(std::vector<ArrayPtr> parameters, const GradientOptions& options);

  // Returns the gather of the weight `a` from `start` by `resharding`; nullopt for a weight that is computed from
  // others, since such gathers have no place in the order.
  std::optional<WeightGather> gather_of(const ArrayPtr& a, const ArrayPtr& start,
                                        std::shared_ptr<const Resharding> resharding) const;
  // Carries out a gather from `start`'s tensors and returns the result.
  Tensors tensors(WeightGather gather, const Tensors& start);
  // Ends a complete step: keeps its order for the next one, and stops prefetching.
  void end_step();
  // Ends a step, complete or not, and abandons started gathers. No order is learned from an incomplete step.
  void abandon();
  const ArrayPtr& parameter(int place) const { return parameters_[place]; }

 private:
  // A range of the order whose weights have been gathered or are in flight.
  struct Begun {
    size_t begin, end;
    Transfer transfer;
  };
  int place_of(const ArrayImpl& parameter) const;  // -1: not a parameter of the tape
  Tensors start_of(const WeightGather& gather) const;
  bool crosses(size_t begin, size_t end) const;
  // Starts the gathers [begin, end) of the order. The ledger attributes them to the operation and source line of
  // `first`. Returns false, with nothing started, if a frozen weight has been destroyed.
  bool begin(size_t begin, size_t end, const WeightGather& first);
  void begin_ahead();
  Tensors take();
  void leave_order();

  std::vector<ArrayPtr> parameters_;
  const GradientOptions options_;
  std::shared_ptr<KnownOrder> known_;
  std::shared_ptr<const GatherOrder> order_;
  std::vector<WeightGather> seen_;  // used without an order, or after the step diverged from it
  size_t next_ = 0;                 // index in the order
  bool follows_ = false, ended_ = false;
  std::deque<Begun> begun_;
};

// Hides the orders that this thread has learned, and restores them at its end. Meanwhile only new orders are used.
class FreshGatherOrders {
 public:
  FreshGatherOrders();
  ~FreshGatherOrders();
  FreshGatherOrders(const FreshGatherOrders&) = delete;
  FreshGatherOrders& operator=(const FreshGatherOrders&) = delete;

 private:
  std::shared_ptr<void> before_;
};

// clear_gather_orders forgets the orders of all programs of this thread. learned_gather_orders returns how often a step
// of this thread has changed the order for the next one.
void clear_gather_orders();
int64_t learned_gather_orders();

// Returns the result of `run` with a known order of gathers: from its second run if the first one learned an order,
// else from its first. The result does not depend on earlier programs.
template <class Run>
auto run_knowing_gathers(const Run& run) {
  const FreshGatherOrders none_is_known;
  const int64_t learned = learned_gather_orders();
  auto first = run();
  return learned == learned_gather_orders() ? first : run();
}

}  // namespace tessera::detail
