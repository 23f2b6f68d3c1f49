// Runs the slots of an operation, each with its own graph, and records all of them as one function.

#include <ATen/core/grad_mode.h>

#include "sharding/array/abstract_tensor.h"
#include "sharding/array/autograd.h"
#include "sharding/array/tape_state.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/kernels/tensors.h"
#include "sharding/propagation/run.h"

namespace tessera::detail {
namespace {

// Returns the cost of all slots in nanoseconds.
int64_t cost_of(const Prepared& call, int64_t calls_a_slot) {
  int64_t elements = 0;
  for (int i = 0; i < call.operands; ++i) elements += call.local(i, 0)->numel();
  return call.plan->runs * nanoseconds_of(calls_a_slot, elements);
}

// The operands whose gradient is needed: their local tensors, and for each slot the index of its tensor among them.
struct Inputs {
  Tensors tensors;
  std::vector<int> operands;
  std::vector<std::vector<int>> places;  // by operand, by slot

  explicit Inputs(const Prepared& call) {
    for (int i = 0; i < call.operands; ++i) {
      const Tensors& local = call.array[i]->local;
      if (!is_recorded(local[0])) continue;
      operands.push_back(i);
      std::vector<int>& place = places.emplace_back(call.index[i], call.index[i] + call.plan->runs);
      for (int& p : place) p += static_cast<int>(tensors.size());
      tensors.append(local.begin(), local.end());
    }
  }
};

// The results of one slot and its backward function.
struct Recording {
  Tensors results;
  Backward backward;
};

Recording record_slot(const Prepared& call, const Inputs& inputs, int slot, SlotFunction fn, size_t results) {
  const at::AutoGradMode on(true);
  const at::Tensor* tensors[max_operands];
  for (int i = 0; i < call.operands; ++i) tensors[i] = call.local(i, slot);
  Tensors mine;
  for (const int i : inputs.operands) mine.push_back(*tensors[i]);
  mine = make_proxies(mine);
  for (size_t k = 0; k < mine.size(); ++k) tensors[inputs.operands[k]] = &mine[k];
  Recording made{Tensors(results), nullptr};
  fn(Locals(tensors), BlockContext(*call.plan, slot), made.results.data());
  Tensors differentiable;
  for (const at::Tensor& t : made.results)
    if (t.requires_grad()) differentiable.push_back(t);
  made.backward = backward_of(mine, differentiable);
  return made;
}

// Adds terms of half precision in float32.
at::Tensor sum_of(Tensors terms) {
  if (terms.size() > 1 && terms[0].itemsize() < 4)
    for (at::Tensor& t : terms) t = t.to(at::kFloat);
  return sum_tensors(terms);
}

// The backward pass of all slots. Gradients are ordered by result or input, and then by slot.
struct SlotsBackward {
  std::vector<Backward> slots;
  std::vector<std::vector<int>> places;
  size_t inputs;
  int64_t cost;

  Tensors operator()(const Tensors& gradients) const {
    const size_t n = slots.size();
    std::vector<Tensors> parts(n);
    parallel_for(static_cast<int>(n), 2 * cost, [&](int slot) {
      const at::AutoGradMode off(false);
      Tensors mine;
      for (size_t i = static_cast<size_t>(slot); i < gradients.size(); i += n) mine.push_back(gradients[i]);
      parts[slot] = slots[slot](std::move(mine));
    });
    std::vector<Tensors> terms(inputs);
    for (size_t i = 0; i < places.size(); ++i)
      for (size_t s = 0; s < n; ++s)
        if (parts[s][i].defined()) terms[places[i][s]].push_back(std::move(parts[s][i]));
    Tensors sums;
    for (Tensors& all : terms) sums.push_back(all.empty() ? at::Tensor() : sum_of(std::move(all)));
    return sums;
  }
};

void run_recorded(const Prepared& call, const Inputs& inputs, const char* operation, SlotFunction fn,
                  std::span<Tensors* const> results) {
  const int n = call.plan->runs;
  std::vector<Recording> slots(n);
  const int64_t cost = cost_of(call, 3);  // including the recording of the graph
  parallel_for(n, cost, [&](int s) { slots[s] = record_slot(call, inputs, s, fn, results.size()); });
  Tensors differentiable;
  for (size_t i = 0; i < results.size(); ++i)
    for (int s = 0; s < n; ++s)
      if (slots[0].results[i].requires_grad()) differentiable.push_back(slots[s].results[i]);
  if (!differentiable.empty()) {
    SlotsBackward backward{{}, inputs.places, inputs.tensors.size(), cost};
    for (Recording& slot : slots) backward.slots.push_back(std::move(slot.backward));
    record_function(operation, inputs.tensors, differentiable, std::move(backward));
  }
  auto next = differentiable.begin();
  for (size_t i = 0; i < results.size(); ++i) {
    const bool recorded = slots[0].results[i].requires_grad();
    for (int s = 0; s < n; ++s) (*results[i])[s] = recorded ? std::move(*next++) : std::move(slots[s].results[i]);
  }
}

void run_in_turn(const Prepared& call, SlotFunction fn, std::span<Tensors* const> results, int slot) {
  const at::Tensor* tensors[max_operands];
  for (int i = 0; i < call.operands; ++i) tensors[i] = call.local(i, slot);
  Tensors made(results.size());
  fn(Locals(tensors), BlockContext(*call.plan, slot), made.data());
  for (size_t i = 0; i < results.size(); ++i) (*results[i])[slot] = std::move(made[i]);
}

}  // namespace

void run_slots(const Prepared& call, const char* operation, SlotFunction fn, std::span<Tensors* const> results) {
  const int n = call.plan->runs;
  const ScopedIntraOpThreads alone(call.plan->shares_the_cpu());
  for (Tensors* result : results) result->resize(n);
  if (n == 1 || call.in_turn || is_nested() || current_interceptor()) {
    for (int s = 0; s < n; ++s) run_in_turn(call, fn, results, s);
  } else if (const Inputs inputs(call); !inputs.operands.empty()) {
    run_recorded(call, inputs, operation, fn, results);
  } else {
    parallel_for(n, cost_of(call, 1), [&](int s) {
      const at::AutoGradMode off(false);
      run_in_turn(call, fn, results, s);
    });
  }
}

}  // namespace tessera::detail
