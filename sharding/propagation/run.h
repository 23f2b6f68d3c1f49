// run: computes an operation from its rule and a function on local tensors.
#pragma once

#include <exception>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <utility>

#include "sharding/propagation/slots.h"

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

// The result has the first operand's element type.
constexpr DType like_first = static_cast<DType>(-1);

struct CallSite {
  const Operation& operation;
  Attributes attributes = {};
  DType out_dtype = like_first;
  DType rest_dtype = like_first;  // of the results after the first
  bool in_turn = false;           // the function is a program's, and not called from several threads at once
  std::source_location where = std::source_location::current();
};

// Called before an operation under TESSERA_CHECK=1. Error (inconsistent) if an operand is a pending sum whose terms the
// operation would read as values.
void check_operands(const Operation& operation, const OperandTypes& operands);

// A call that is watched, and its operands as they were given.
struct WatchedCall;

// What a call keeps until its results are there.
struct Owned {
  ArrayPtr held[max_operands];   // the converted operands, by number
  std::vector<ArrayPtr> padded;  // replacements of operands that have padding, or are broadcast over it
  std::vector<int> every_slot;   // 0, 1, ...: the index of an operand with a tensor for each slot
  std::shared_ptr<WatchedCall> watched;
  ~Owned();
};

// The operands of a call, converted to the types that its plan wants.
struct Prepared {
  const Plan* plan = nullptr;  // owned by the cache: see max_plans
  int operands = 0;
  const ArrayImpl* array[max_operands];
  const int* index[max_operands];
  bool borrows = false;  // some of them are gathered weights on loan (BorrowedGather)
  bool weight = true;
  bool in_turn = false;
  const MeshRulesImpl* mesh_rules = nullptr;
  std::unique_ptr<Owned> owned;  // null if all operands are read as they are, and no one watches

  const at::Tensor* local(int operand, int slot) const { return &array[operand]->local[index[operand][slot]]; }
  bool is_watched() const { return owned && owned->watched; }
  Owned& own() { return owned ? *owned : *(owned = std::make_unique<Owned>()); }
};

// The plan of a call for which nothing is converted yet; null if its operands may lie on several stages (stages.h).
// Errors as of prepare.
const Plan* plan_of(const CallSite& site, std::initializer_list<const Array*> operands);

// Finds the plan in this thread's bounded cache, or makes it, and converts the operands. Errors: absent operands
// (missing_array), shapes that do not fit the rule (shape_mismatch), operands on different meshes (device_mismatch).
void prepare(Prepared& call, const CallSite& site, const Array* const* operands, int n);

// begin_result makes a result without local tensors, which the caller adds. After that, if call.borrows, settle_loans
// gives back the memory of gathered weights; a weight of which a result is a view stays. finish does all of it.
ArrayPtr begin_result(const Prepared& call, int output = 0);
void settle_loans(const Prepared& call, const Tensors& results);
// Notifies the observers of operations; only if call.is_watched().
void notify(const Prepared& call, std::span<const Array> results);

// Only if call.plan->is_padded: makes the result's padding zeros.
void clear_padding(const Prepared& call, ArrayImpl& result);

ArrayPtr finish(const Prepared& call, Tensors out);

// For operations that reduce over plan.reduced_inside themselves, so that slots share results: the mesh axes that
// number the stored results, by stored result a slot that has it, and by slot the index of its stored result.
AxisSet outside_axes(const Plan& plan);
std::vector<int> slots_outside(const Plan& plan);
std::vector<int> owners_outside(const Plan& plan);
ArrayPtr finish(const Prepared& call, Tensors out, AxisSet slots);

// Records in `result` that `again` made it from its only operand, a parameter or an array made from one; then a reduced
// form of `result` can be made from another leaf of the parameter. `cast`: they differ by the element type only.
using Again = std::function<ArrayPtr(const ArrayPtr&)>;
void remember_source(const ArrayPtr& result, const ArrayPtr& operand, Again again, bool cast);
bool has_parameter_source(const Array& operand);

// A thread's plan cache: its bound, its number of plans, and how to empty it. A full cache is set aside and kept until
// the next one is full, so that the plans of calls in progress stay valid.
constexpr size_t max_plans = 1 << 16;
size_t plan_count();
void clear_plans();

// Call it where `error` was caught. An exception of a LibTorch or oneDNN kernel becomes an Error (invalid_argument)
// with the operands' types and the first line of the kernel's message; any other exception is thrown again unchanged.
[[noreturn]] void refuse(const Prepared& call, const char* operation, const std::exception& error);

// The local tensors of the only slot.
inline void locals_of(const Prepared& call, const at::Tensor** tensors) {
  for (int i = 0; i < call.operands; ++i) tensors[i] = call.local(i, 0);
}

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
    if (call.plan->is_padded) clear_padding(call, *result.impl());
    if (call.is_watched()) notify(call, {&result, 1});
    if (call.borrows) settle_loans(call, local);
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

// For operations with several outputs: `fn(Locals, BlockContext)` returns a container with one tensor per output.
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
    if (call.plan->is_padded)
      for (const Array& x : out) clear_padding(call, *x.impl());
    if (call.is_watched()) notify(call, out);
    if (call.borrows) {
      Tensors all;  // of which none may be a view of what is given back
      for (const Array& x : out) all.append(x.impl()->local.begin(), x.impl()->local.end());
      settle_loans(call, all);
    }
    return out;
  } catch (const std::exception& error) {
    refuse(call, site.operation.name, error);
  }
}

// run for casts, views and scalings of one array. Calls remember_source if that is a parameter or was made from one.
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
