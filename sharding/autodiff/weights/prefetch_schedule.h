// PrefetchSchedule: gathers the weights of a step by block and ahead of use, in the order of the step before.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "sharding/array/gradient_options.h"
#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/resharding.h"

namespace tessera::detail {

// Which part of a model a parameter belongs to: what one element of a list owns, "layers.2" of
// "layers.2.mlp.up.kernel"; "" of a parameter outside of lists, which is by itself.
std::string block_of(const std::string& path);

// Whether `a` is one of the leaves of a tape's parameter.
bool is_leaf(const ArrayImpl& parameter, const ArrayPtr& a);

// One gather of a weight, as a step makes it.
struct WeightGather {
  int parameter = -1;               // of the tape; -1: a weight that it does not train
  std::weak_ptr<ArrayImpl> frozen;  // that weight
  std::shared_ptr<const Resharding> resharding;
  bool in_backward_pass = false;

  bool is_like(const WeightGather& other) const;
};

// What a program gathers, in order. The gathers of one block follow each other in one group.
struct GatherOrder {
  std::vector<WeightGather> gathers;
  std::vector<size_t> group_end;  // of the group of each gather
};
// From step to step of one program; null before its first.
struct KnownOrder {
  std::shared_ptr<const GatherOrder> order;
};

// The order is known from the last step of the same program: of the same line, with parameters of the same paths and
// types. A step without one, and the rest of a step that goes another way, gathers each weight by itself; the next step
// knows that order. All processes run the same program, so they fall back alike. Where a guard may forbid a
// communication, nothing is gathered before the program asks for it.
class PrefetchSchedule {
 public:
  PrefetchSchedule(std::vector<ArrayPtr> parameters, const GradientOptions& options);

  // The gather of the weight `a` from `start` by `resharding`; none if it is in no order, because the weight is
  // computed from others.
  std::optional<WeightGather> gather_of(const ArrayPtr& a, const ArrayPtr& start,
                                        std::shared_ptr<const Resharding> resharding) const;
  // What it makes of `start`, its tensors.
  Tensors tensors(WeightGather gather, const Tensors& start);
  // The step is complete: its order is kept for the next one. Nothing is gathered ahead any more.
  void end_step();
  // The step is over, complete or not: what is begun is given up. Nothing is learned from one that was not completed.
  void abandon();
  const ArrayPtr& parameter(int place) const { return parameters_[place]; }

 private:
  // A range of the order whose weights are there, or on their way.
  struct Begun {
    size_t begin, end;
    std::unique_ptr<Transfer> transfer;
    std::vector<Tensors> ready;
  };
  int place_of(const ArrayImpl& parameter) const;  // -1: it is none of the tape's
  Tensors start_of(const WeightGather& gather) const;
  bool crosses(size_t begin, size_t end) const;
  // Announced for the cause of `first`. False, and nothing is done, if one of the weights is gone.
  bool begin(size_t begin, size_t end, const WeightGather& first);
  void begin_ahead();
  Tensors take();
  void leave_order();

  std::vector<ArrayPtr> parameters_;
  const GradientOptions options_;
  std::shared_ptr<KnownOrder> known_;
  std::shared_ptr<const GatherOrder> order_;
  std::vector<WeightGather> seen_;  // where there is no order, or since the step left it
  size_t next_ = 0;                 // in the order
  bool follows_ = false, ended_ = false;
  std::deque<Begun> begun_;
};

// While it lives, this thread knows no orders but those that are learned meanwhile.
class FreshGatherOrders {
 public:
  FreshGatherOrders();
  ~FreshGatherOrders();
  FreshGatherOrders(const FreshGatherOrders&) = delete;
  FreshGatherOrders& operator=(const FreshGatherOrders&) = delete;

 private:
  std::shared_ptr<void> before_;
};

// Forgets the orders of all programs of this thread; and how often a step of this thread has left another order for the
// next one than it found.
void clear_gather_orders();
int64_t learned_gather_orders();

// What `run` returns of a program that knows the order of its gathers: from its second run, if the first had any to
// learn. It is the same whatever ran before.
template <class Run>
auto run_knowing_gathers(const Run& run) {
  const FreshGatherOrders none_is_known;
  const int64_t learned = learned_gather_orders();
  auto first = run();
  return learned == learned_gather_orders() ? first : run();
}

}  // namespace tessera::detail
