// run: an operation in one line, from its rule and what it does on local tensors.
#pragma once

#include <exception>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <utility>

#include "sharding/propagation/plan.h"

namespace tessera::detail {

constexpr int max_operands = 6;

// The local tensors of one slot, one per operand.
class Locals {
 public:
  explicit Locals(const at::Tensor* const* tensors) : tensors_(tensors) {}
  const at::Tensor& operator[](int i) const { return *tensors_[i]; }

 private:
  const at::Tensor* const* tensors_;
};

// How a result's element type follows from the operands'; by default it is the first operand's.
constexpr DType like_first = static_cast<DType>(-1);

struct CallSite {
  const Operation& operation;
  std::string (*rule)(const Attributes&,
                      const std::vector<const Type*>&) = nullptr;  // for operations without a fixed one
  Attributes attributes = {};
  DType out_dtype = like_first;
  DType rest_dtype = like_first;  // of the results after the first
  std::source_location where = std::source_location::current();
};

// Under TESSERA_CHECK=1, before the work of an operation: no operand is a pending sum where the operation takes values,
// since its parts would be read as one. Error (inconsistent).
void check_operands(const Operation& operation, const std::vector<const Type*>& operands);

// The operands of a call, brought to where the plan wants them.
struct Prepared {
  const Plan* plan = nullptr;  // the cache keeps it: see most_plans
  int operands = 0;
  const ArrayImpl* array[max_operands];
  const int* index[max_operands];
  std::unique_ptr<ArrayPtr[]> held;  // converted operands by their numbers; none where all are read as they are
  bool borrows = false;              // some of them are weights on loan
  bool weight = true;
  const LayoutImpl* layout = nullptr;

  const at::Tensor* local(int operand, int slot) const { return &array[operand]->local[index[operand][slot]]; }
};

// Finds the plan (kept by the thread in a bounded cache) and converts the operands. Errors: absent operands (absent),
// shapes that do not fit the rule (shape_mismatch), operands on different meshes (device_mismatch).
void prepare(Prepared& call, const CallSite& site, const Array* const* operands, int n);

// A result of the call, whose local tensors the caller puts in; once they are in, the operands' loans are settled.
ArrayPtr begin_result(const Prepared& call, int output = 0);
void settle_loans(const Prepared& call, const Tensors& results);

ArrayPtr finish(const Prepared& call, Tensors out);

// For operations that reduce inside themselves, over plan.reduced_inside: the axes over which their result is stored,
// the slots that compute its tensors, and for every slot the tensor that is its result.
AxisSet outside_axes(const Plan& plan);
std::vector<int> slots_outside(const Plan& plan);
std::vector<int> owners_outside(const Plan& plan);
ArrayPtr finish(const Prepared& call, Tensors out, AxisSet slots);

// Remembers how `result` was made from its only operand, if that is a parameter or was made from one, so that a
// reduced form of it can be made from another leaf.
using Again = std::function<ArrayPtr(const ArrayPtr&)>;
void remember_source(const ArrayPtr& result, const ArrayPtr& operand, Again again, bool cast);
bool has_parameter_source(const Array& operand);

// How many plans the cache keeps at most, and how many it holds; clear_plans() empties it. A full cache is set aside
// until the next one is full, so that the plans of calls in progress stay.
constexpr size_t most_plans = 1 << 16;
size_t plan_count();
void clear_plans();

// Called where `error` was caught: what a kernel of LibTorch or of oneDNN below it does not take, as an Error
// (bad_argument) with the operands' types and the first line of its words. Other exceptions go on as they are.
[[noreturn]] void refuse(const Prepared& call, const char* operation, const std::exception& error);

// Runs `fn(Locals, BlockContext) -> at::Tensor` on every slot.
template <class Fn>
Array run(const Prepared& call, const char* operation, Fn&& fn) try {
  const Plan& plan = *call.plan;
  ArrayPtr result = begin_result(call);
  result->local.reserve(plan.runs);
  const at::Tensor* tensors[max_operands];
  for (int s = 0; s < plan.runs; ++s) {
    for (int i = 0; i < call.operands; ++i) tensors[i] = call.local(i, s);
    result->local.push_back(fn(Locals(tensors), BlockContext(plan, s)));
  }
  if (call.borrows) settle_loans(call, result->local);
  return Array(std::move(result));
} catch (const std::exception& error) {
  refuse(call, operation, error);
}

template <class Fn>
Array run(const CallSite& site, std::initializer_list<const Array*> operands, Fn&& fn) {
  Prepared call;
  prepare(call, site, operands.begin(), static_cast<int>(operands.size()));
  return run(call, site.operation.name, fn);
}

// For operations with several outputs: `fn(Locals, BlockContext)` gives a container with one tensor for each.
template <class Fn>
std::vector<Array> run_all(const CallSite& site, std::initializer_list<const Array*> operands, Fn&& fn) {
  Prepared call;
  prepare(call, site, operands.begin(), static_cast<int>(operands.size()));
  try {
    const Plan& plan = *call.plan;
    std::vector<Array> out;
    out.reserve(plan.out.size());
    for (size_t i = 0; i < plan.out.size(); ++i) out.emplace_back(begin_result(call, static_cast<int>(i)));
    const at::Tensor* tensors[max_operands];
    for (int s = 0; s < plan.runs; ++s) {
      for (int i = 0; i < call.operands; ++i) tensors[i] = call.local(i, s);
      auto results = fn(Locals(tensors), BlockContext(plan, s));
      for (size_t i = 0; i < out.size(); ++i) out[i].impl()->local.push_back(std::move(results[i]));
    }
    if (call.borrows)
      for (const Array& x : out) settle_loans(call, x.impl()->local);
    return out;
  } catch (const std::exception& error) {
    refuse(call, site.operation.name, error);
  }
}

// The same for casts, views and scalings of one array: of a parameter they stay as good as the parameter itself.
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
