// run_slots: the function of an operation on the local tensors of every slot, side by side, with its way back.
#pragma once

#include <c10/util/FunctionRef.h>

#include <span>

#include "sharding/propagation/plan.h"

namespace tessera::detail {

struct Prepared;
class Locals;

// A function of one slot: from its operands to its results, which it puts where the pointer points.
using SlotFunction = c10::function_ref<void(Locals, const BlockContext&, at::Tensor* results)>;

// Calls `fn` for each slot of a plan that has several, and puts result i of each slot into *results[i]. What it records
// is a graph of each slot's own; all of them are one function of the operands in LibTorch's graph, whose backward pass
// runs side by side as well. The gradients of a local tensor that several slots read are added up in the slots' order.
// Where the slots have to be taken in turn (Prepared::in_turn, second derivatives, an interceptor of LibTorch's calls),
// `fn` records in LibTorch's graph itself.
void run_slots(const Prepared& call, const char* operation, SlotFunction fn, std::span<Tensors* const> results);

}  // namespace tessera::detail
