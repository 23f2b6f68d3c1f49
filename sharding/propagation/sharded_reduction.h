// Operations that themselves reduce over sharded dims: by one kernel where the dims are whole, else by collectives.
#pragma once

#include "sharding/array/autograd.h"
#include "sharding/propagation/run.h"
#include "sharding/redistribution/resharding.h"

namespace tessera::detail {

// What a reduction across devices returns: the result of each slot, and a function from the results' gradients to those
// of the operands' local tensors (all slots of the first operand, then of the second, ...); null: no gradient.
struct Across {
  Tensors results;
  Backward backward = nullptr;
};

// The operand's local tensor at every slot.
Tensors locals(const Prepared& call, int operand);

// job(i) for each of these tensors, side by side, without a graph; by their size it is known what that takes.
void each_slot(const Tensors& tensors, c10::function_ref<void(int)> job);

// fn(tensor) of each, side by side.
template <class Fn>
Tensors for_each(const Tensors& tensors, Fn fn) {
  Tensors out(tensors.size());
  each_slot(tensors, [&](int i) { out[i] = fn(tensors[i]); });
  return out;
}

// fn(a, b) of each pair.
template <class Fn>
Tensors for_each(const Tensors& a, const Tensors& b, Fn fn) {
  Tensors out(a.size());
  each_slot(a, [&](int i) { out[i] = fn(a[i], b[i]); });
  return out;
}

// Detached from the graph, in the element type to compute in: float32 for half precision.
at::Tensor widened(const at::Tensor& t);
Tensors widened(const Tensors& tensors);
// The same within the graph.
at::Tensor widened_in_graph(const at::Tensor& t);
// Like widened_in_graph, but only for float16 on a CPU: there LibTorch's log_softmax adds up exponentials in float16,
// and sums above 65504 overflow.
at::Tensor float16_widened_in_graph(const at::Tensor& t);

// Whether the result may be differentiated twice: only LibTorch's own kernels, on whole dims, support that.
bool needs_whole_dims(const Prepared& call);

// The operands, with the dims gathered over which the call would reduce across devices.
std::vector<Array> whole_operands(const Prepared& call, const CallSite& site,
                                  std::initializer_list<const Array*> operands);

// Calls `across` once for all slots and records it as one function. Where the plan reduces over nothing, it is given a
// ShardedReduction that it must not use.
Array run_across(const Prepared& call, const CallSite& site,
                 const std::function<Across(const Prepared&, const ShardedReduction&)>& across);

// Runs `whole(Locals, BlockContext)` on every slot if no factor in parentheses is sharded, else `across(Prepared,
// ShardedReduction)` once for all slots, recorded in the autograd graph as one function.
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
