// communicate: the one door through which bytes move between devices. It tells who listens, and moves, in one call.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "sharding/accounting/communication_event.h"
#include "sharding/redistribution/engine.h"
#include "sharding/redistribution/step.h"

namespace tessera::detail {

// What is said of a step beside what it does: whose it is, and which array becomes which.
struct Occasion {
  Cause cause;
  const Type* from = nullptr;
  const Type* to = nullptr;
  bool in_backward_pass = false;
};

// What the devices of a step make of x, one tensor per slot, by the step's row: announced to guards, budgets and
// ledgers, compared between processes under TESSERA_CHECK=1, and carried out. Not recorded for gradients.
// communicate_back goes the row's way back, from the result's slots to the operand's. Errors: those of who forbids it,
// before anything moves; inconsistent, where processes do different things; other, where another process is lost.
Tensors communicate(const Step& step, const Tensors& x, const Occasion& occasion);
Tensors communicate_back(const Step& step, const Tensors& x, const Occasion& occasion);
// Another collective than the row's, by the same devices.
Tensors communicate(const Step& step, Collective collective, const Tensors& x, const Occasion& occasion);

// Asks about all steps before the first of them moves anything: one later on may be forbidden.
void ask_about(std::span<const StepPtr> steps, const at::Tensor& x, const Occasion& occasion);

// An array's tensors and the steps that they take.
struct Shipment {
  std::span<const StepPtr> steps;
  Tensors tensors;
};
// Several at once: those that take the same collective over the same axes in one element type are one communication.
// Their tensors become the results.
void communicate(std::vector<Shipment>& shipments, const Cause& cause);

// A sum over mesh axes of what this process's devices have added up among themselves, of many tensors of one element
// type at once; a part of it may have been begun before.
struct Sum {
  const char* operation;
  const MeshImpl* mesh;
  AxisSet axes;  // the devices along them hold different parts
  AxisSet over;  // processes along them add theirs
  std::span<SumWork> begun = {};
  std::function<Communication()> said;  // asked for where somebody listens; kind, mesh and axes are filled in
};
// The sums of those that were begun, one after another, then of x.
Tensors communicate(const Sum& sum, const Tensors& x);

}  // namespace tessera::detail
