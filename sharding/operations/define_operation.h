// define_operation: defines a custom operation in one line, for arrays of any sharding.
#pragma once

#include <concepts>
#include <string>
#include <type_traits>
#include <utility>

#include "sharding/operations/operand.h"
#include "sharding/propagation/run.h"

namespace tessera {

using detail::BlockContext;  // the function's access to its block: see below
using detail::Linearity;

struct DefineOptions {
  // How the operation treats partial sums. The operands of a linear function need not be summed first.
  Linearity linearity = Linearity::nonlinear;
  // The result's element type; by default the first operand's.
  DType out_dtype = detail::like_first;
};

namespace detail {

// Returns the operation of this name, rule and linearity. It is kept forever, since plans are cached by it.
const Operation& interned_operation(const std::string& name, const std::string& rule, Linearity linearity);

// Throws an Error (shape_mismatch, dtype_mismatch) if a function's result does not fit its rule.
void check_result(const at::Tensor& result, const BlockContext& block, const char* operation);

template <class Fn>
class DefinedOperation {
 public:
  DefinedOperation(const Operation& operation, DType out_dtype, Fn fn)
      : operation_(&operation), out_dtype_(out_dtype), fn_(std::move(fn)) {}

  template <std::convertible_to<Operand>... More>
  requires(sizeof...(More) < 4) Array operator()(Operand a, const More&... more) const {
    return call(std::make_index_sequence<1 + sizeof...(More)>(), a.where(), {&a.array(), &Operand(more).array()...});
  }

 private:
  template <size_t... I>
  Array call(std::index_sequence<I...>, std::source_location line, std::initializer_list<const Array*> operands) const {
    return run({.operation = *operation_, .out_dtype = out_dtype_, .in_turn = true, .where = line}, operands,
               [&](Locals t, const BlockContext& block) {
                 at::Tensor result;
                 if constexpr (std::is_invocable_v<const Fn&, decltype(t[I])..., const BlockContext&>)
                   result = fn_(t[I]..., block);
                 else
                   result = fn_(t[I]...);
                 check_result(result, block, operation_->name);
                 return result;
               });
  }

  const Operation* operation_;
  DType out_dtype_;
  Fn fn_;
};

}  // namespace detail

// Returns an operation on arrays, made from a name (for ledgers and errors), a rule and a function of local LibTorch
// tensors:
//   const auto mish = define_operation("mish", "*", [](const at::Tensor& x) { return x * at::tanh(at::softplus(x)); });
//   const Array y = mish(x);
// Sharding, communication, gradients and ledger entries follow from the rule. LibTorch differentiates the calls in
// the function. An operation takes one to four operands.
//
// The rule names a factor for each dimension, as in einsum: "... i k, k j -> ... i j".
//   i        may be sharded; summed over if the result lacks it: each device's result is then a partial sum
//   [i]      must be replicated: it is gathered first
//   {a b}    a dimension made of two factors, a major
//   i=4      a size that the operands' shapes do not determine
//   ...      any number of dimensions, broadcast
//   *        as the complete rule: elementwise, broadcast
// A factor occurs once in an operand, and once in the result.
//
// A function that depends on the position of its block takes a last parameter `const BlockContext& block`.
// block.size("i") is the global size of factor i, block.offset("i") the index at which this block begins.
//   const auto add_positions = define_operation("add_positions", "b t -> b t", [](const at::Tensor& x,
//                                                                               const BlockContext& w)
//   {
//     return x + at::arange(w.offset("t"), w.offset("t") + x.size(1), x.options());
//   });
// Include <ATen/ATen.h> in the file of the function.
//
// Errors
//   invalid_argument: a rule that cannot be parsed (at the definition)
//   those of all operations (operand.h)
template <class Fn>
auto define_operation(const std::string& name, const std::string& rule, Fn fn, DefineOptions options = {}) {
  return detail::DefinedOperation<Fn>(detail::interned_operation(name, rule, options.linearity), options.out_dtype,
                                      std::move(fn));
}

}  // namespace tessera
