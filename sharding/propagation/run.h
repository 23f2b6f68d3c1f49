// run: computes an operation from its rule and a function on local tensors.
#pragma once

#include <c10/util/FunctionRef.h>

#include <exception>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <span>
#include <utility>

#include "sharding/propagation/plan.h"

namespace tessera::detail {

constexpr int max_operands = 7;

// The local tensors of one slot, one per operand.
class Locals {
 public:
  explicit Locals(const at::Tensor* const* tensors) : tensors_(tensors) {}
  const at::Tensor& operator[](int i) const { return *tensors_[i]; }

 private:
  const at::Tensor* const* tensors_;
};

// A marker: the result has the first operand's element type.
constexpr DType like_first = static_cast<DType>(-1);

struct CallSite {
  const Operation& operation;
  Attributes attributes = {};
  DType out_dtype = like_first;
  DType rest_dtype = like_first;  // element type of the results after the first
  bool in_turn = false;           // true: user code, which must not be called from several threads at once
  std::source_location where = std::source_location::current();
};

// Checks the operands of an operation; called before it under TESSERA_CHECK=1. Error (inconsistent) if an operand is a
// partial sum whose terms the operation would read as values.
void check_operands(const Operation& operation, const OperandTypes& operands);

// An observed call, with its operands before conversion.
struct WatchedCall;

// State that a call keeps until it has its results.
struct CallState {
  ArrayPtr held[max_operands];   // the converted operands, by number
  std::vector<ArrayPtr> padded;  // replacements of operands that have padding, or are broadcast over it
  std::vector<int> every_slot;   // 0, 1, ...: the index of an operand with a tensor for each slot
  std::shared_ptr<WatchedCall> watched;
  ~CallState();
};

// The operands of a call, converted to the types of its plan.
struct Prepared {
  const Plan* plan = nullptr;  // owned by the cache: see max_plans
  int operands = 0;
  const ArrayImpl* array[max_operands];
  const int* index[max_operands];
  bool frees_weights = false;  // some of them are gathered weights that are freed after this call
  bool weight = true;
  bool in_turn = false;
  const MeshRulesImpl* mesh_rules = nullptr;
  std::source_location where = {};
  std::unique_ptr<CallState> state;  // null if no operand is converted and the call is not observed

  const at::Tensor* local(int operand, int slot) const {
    return &array[operand]->local[static_cast<size_t>(index[operand][slot])];
  }
  bool is_watched() const { return state && state->watched; }
  CallState& own() { return state ? *state : *(state = std::make_unique<CallState>()); }
};

// Returns the plan of a call without converting its operands; null if the operands may be on several stages (stages.h).
// Errors: those of prepare.
const Plan* plan_of(const CallSite& site, std::initializer_list<const Array*> operands);

// Finds the plan in this thread's bounded cache, or makes it, and converts the operands.
// Errors
//   missing_array: an absent operand
//   shape_mismatch: shapes that do not fit the rule
//   device_mismatch: operands on different meshes
void prepare(Prepared& call, const CallSite& site, const Array* const* operands, int n);

// Returns a result without local tensors, which the caller adds before finish_results.
ArrayPtr begin_result(const Prepared& call, int output = 0);
// Ends a call whose results have their local tensors: sets their padding to zeros, notifies the observers of
// operations, and frees gathered weights unless a result is a view of them.
void finish_results(const Prepared& call, std::span<const Array> results);
// Returns the finished result with these local tensors. `slots` are the axes over which the tensors are stored, by
// default the plan's.
ArrayPtr finish(const Prepared& call, Tensors out);
ArrayPtr finish(const Prepared& call, Tensors out, AxisSet slots);

// Records in `result` that again(operand) computes it. The operand is a parameter, or is itself computed from one. A
// reduced form of `result` can then be recomputed from another leaf of the parameter. `cast`: only the element types of
// operand and result differ.
using Again = std::function<ArrayPtr(const ArrayPtr&)>;
void remember_source(const ArrayPtr& result, const ArrayPtr& operand, Again again, bool cast);
bool has_parameter_source(const Array& operand);

// A thread's plan cache: its bound, its number of plans, and a function that empties it. A full cache is set aside
// until the next one is full, so that the plans of calls in progress stay valid.
constexpr size_t max_plans = 1 << 16;
size_t plan_count();
void clear_plans();

// Handles an exception; call it where `error` was caught. An exception of a LibTorch or oneDNN kernel becomes an Error
// (invalid_argument) with the operands' types and the first line of the kernel's message; a failed allocation becomes
// one of kind out_of_memory. Other exceptions are rethrown unchanged.
[[noreturn]] void refuse(const Prepared& call, const char* operation, const std::exception& error);

// Stores the local tensors of the only slot in `tensors`.
inline void locals_of(const Prepared& call, const at::Tensor** tensors) {
  for (int i = 0; i < call.operands; ++i) tensors[i] = call.local(i, 0);
}

// A function of one slot, which computes `results` from its operands.
using SlotFunction = c10::function_ref<void(Locals, const BlockContext&, at::Tensor* results)>;

// Calls `fn` for each slot of a plan with several slots, and stores result i of each slot in *results[i]. Each slot has
// its own autograd graph. LibTorch's graph contains all of them as one function of the operands, whose backward pass
// also runs in parallel. Gradients of a local tensor that several slots read are added in the order of the slots. If
// the slots run one after another (Prepared::in_turn, second derivatives, an interceptor of LibTorch's calls), `fn`
// records in LibTorch's graph directly.
void run_slots(const Prepared& call, const char* operation, SlotFunction fn, std::span<Tensors* const> results);

// Runs `fn(Locals, BlockContext) -> at::Tensor` on every slot.
template <class Fn>
Array run(const Prepared& call, const char* operation, Fn&& fn) {
  Array result(begin_result(call));
  Tensors& local = result.impl()->local;
  try {
    if (call.plan->runs == 1) {
      const at::Tensor* tensors[max_operands];
      locals_of(call, tensors);
      local.push_back(fn(Locals(tensors), BlockContext(*call.plan, 0)));
    } else {
      Tensors* const results[] = {&local};
      run_slots(
          call, operation, [&](Locals t, const BlockContext& block, at::Tensor* out) { *out = fn(t, block); }, results);
    }
    finish_results(call, {&result, 1});
  } catch (const std::exception& error) {
    refuse(call, operation, error);
  }
  return result;
}

template <class Fn>
Array run(const CallSite& site, std::initializer_list<const Array*> operands, Fn&& fn) {
  Prepared call;
  prepare(call, site, operands.begin(), static_cast<int>(operands.size()));
  return run(call, site.operation.name, fn);
}

// Runs an operation with several outputs: `fn(Locals, BlockContext)` returns a container with one tensor per output.
template <class Fn>
std::vector<Array> run_all(const CallSite& site, std::initializer_list<const Array*> operands, Fn&& fn) {
  Prepared call;
  prepare(call, site, operands.begin(), static_cast<int>(operands.size()));
  try {
    std::vector<Array> out;
    out.reserve(call.plan->out.size());
    for (size_t i = 0; i < call.plan->out.size(); ++i) out.emplace_back(begin_result(call, static_cast<int>(i)));
    if (call.plan->runs == 1) {
      const at::Tensor* tensors[max_operands];
      locals_of(call, tensors);
      auto next = out.begin();
      for (at::Tensor& result : fn(Locals(tensors), BlockContext(*call.plan, 0)))
        (next++)->impl()->local.push_back(std::move(result));
    } else {
      std::vector<Tensors*> results;
      for (const Array& x : out) results.push_back(&x.impl()->local);
      const auto call_once = [&](Locals t, const BlockContext& block, at::Tensor* made) {
        for (at::Tensor& result : fn(t, block)) *made++ = std::move(result);
      };
      run_slots(call, site.operation.name, call_once, results);
    }
    finish_results(call, out);
    return out;
  } catch (const std::exception& error) {
    refuse(call, site.operation.name, error);
  }
}

// Runs a cast, view or scaling of one array. Calls remember_source if that array is a parameter or was made from one.
template <class Fn>
Array run_on_parameter(const CallSite& site, const Array& operand, const Fn& fn, bool cast = false) {
  Array result = run(site, {&operand}, fn);
  if (operand.impl()->details && has_parameter_source(operand))
    remember_source(
        result.impl(), operand.impl(),
        [site, fn](const ArrayPtr& other) {
          const Array x(other);
          return run(site, {&x}, fn).impl();
        },
        cast);
  return result;
}

}  // namespace tessera::detail
