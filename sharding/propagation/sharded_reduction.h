// Operations that reduce over dimensions themselves: with one kernel if these are not sharded, else with collectives.
#pragma once

#include "sharding/array/autograd.h"
#include "sharding/propagation/run.h"
#include "sharding/redistribution/resharding.h"

namespace tessera::detail {

// The outcome of a reduction across devices: the result of each slot, and its backward function. That function maps the
// results' gradients to the gradients of the operands' local tensors (all slots of the first operand, then of the
// second, ...).
// Null: no gradient.
struct Across {
  Tensors results;
  Backward backward = nullptr;
};

// Returns the operand's local tensor for every slot.
Tensors locals(const Prepared& call, int operand);

// Calls job(i) for each of these tensors in parallel, without a graph. The cost is estimated from their sizes.
void each_slot(const Tensors& tensors, c10::function_ref<void(int)> job);

// Returns fn(tensor) of each tensor, computed in parallel.
template <class Fn>
Tensors for_each(const Tensors& tensors, Fn fn) {
  Tensors out(tensors.size());
  each_slot(tensors, [&](int i) { out[i] = fn(tensors[i]); });
  return out;
}

// Returns fn(a, b) of each pair, computed in parallel.
template <class Fn>
Tensors for_each(const Tensors& a, const Tensors& b, Fn fn) {
  Tensors out(a.size());
  each_slot(a, [&](int i) { out[i] = fn(a[i], b[i]); });
  return out;
}

// Detaches tensors from the graph and converts them to the element type for computation: float32 for half precision.
at::Tensor widened(const at::Tensor& t);
Tensors widened(const Tensors& tensors);
// Converts tensors to the element type for computation, without detaching them.
at::Tensor widened_in_graph(const at::Tensor& t);
// Like widened_in_graph, but only for float16 on a CPU: there LibTorch's log_softmax adds up exponentials in float16,
// and sums above 65504 overflow.
at::Tensor float16_widened_in_graph(const at::Tensor& t);

// Returns true if the result may be differentiated twice. Only LibTorch's own kernels on unsharded dimensions support
// that.
bool needs_whole_dims(const Prepared& call);

// Returns the operands with those dimensions gathered over which the call would reduce across devices.
std::vector<Array> whole_operands(const Prepared& call, const CallSite& site,
                                  std::initializer_list<const Array*> operands);

// Calls `across` once for all slots and records it as one function. If the plan reduces over nothing, `across` gets a
// ShardedReduction that it must not use.
Array run_across(const Prepared& call, const CallSite& site,
                 const std::function<Across(const Prepared&, const ShardedReduction&)>& across);

// Runs `whole(Locals, BlockContext)` on every slot if no factor in parentheses is sharded. Otherwise runs
// `across(Prepared, ShardedReduction)` once for all slots, recorded in the autograd graph as one function.
template <class Whole, class AcrossFn>
Array run_sharded_reduction(const CallSite& site, std::initializer_list<const Array*> operands, Whole&& whole,
                            AcrossFn&& across) {
  Prepared call;
  prepare(call, site, operands.begin(), static_cast<int>(operands.size()));
  if (!call.plan->reduced_inside) return run(call, site.operation.name, whole);
  if (needs_whole_dims(call)) {
    const std::vector<Array> gathered = whole_operands(call, site, operands);
    std::vector<const Array*> pointers;
    for (const Array& x : gathered) pointers.push_back(&x);
    Prepared again;
    prepare(again, site, pointers.data(), static_cast<int>(pointers.size()));
    return run(again, site.operation.name, whole);
  }
  return run_across(call, site, across);
}

}  // namespace tessera::detail
