// define_operation: an operation of one's own, in one line, for arrays of any placement.
#pragma once

#include <string>
#include <type_traits>
#include <utility>

#include "sharding/operations/operand.h"
#include "sharding/propagation/run.h"

namespace tessera {

using detail::BlockContext;  // what a function may ask about its block: see below
using detail::Linearity;

struct DefineOptions {
  // How it treats pending sums. A function that is linear says so, and its operands need not be summed first.
  Linearity linearity = Linearity::nonlinear;
  // The result's element type; by default the first operand's.
  DType out_dtype = detail::like_first;
};

namespace detail {

// The operation of this name, rule and linearity: kept for good, as plans are found by it.
const Operation& interned_operation(const std::string& name, const std::string& rule, Linearity linearity);

// Error (shape_mismatch, dtype_mismatch) if what a function gave is not what its rule says.
void check_result(const at::Tensor& result, const BlockContext& block, const char* operation);

template <class Fn>
class DefinedOperation {
 public:
  DefinedOperation(const Operation& operation, DType out_dtype, Fn fn)
      : operation_(&operation), out_dtype_(out_dtype), fn_(std::move(fn)) {}

  Array operator()(Operand a) const { return call(std::make_index_sequence<1>(), a.where(), {&a.array()}); }
  Array operator()(Operand a, Operand b) const {
    return call(std::make_index_sequence<2>(), a.where(), {&a.array(), &b.array()});
  }
  Array operator()(Operand a, Operand b, Operand c) const {
    return call(std::make_index_sequence<3>(), a.where(), {&a.array(), &b.array(), &c.array()});
  }
  Array operator()(Operand a, Operand b, Operand c, Operand d) const {
    return call(std::make_index_sequence<4>(), a.where(), {&a.array(), &b.array(), &c.array(), &d.array()});
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

// From a name (for ledgers and errors), a rule and a function of local LibTorch tensors, the operation on arrays:
//   const auto mish = define_operation("mish", "*", [](const at::Tensor& x) { return x * at::tanh(at::softplus(x)); });
//   const Array y = mish(x);
// Placement, communication, gradients and the ledger follow from the rule; gradients are LibTorch's, of what the
// function calls. One to four operands.
//
// The rule names a factor for each dim, in einsum's manner: "... i k, k j -> ... i j".
//   i        may be sharded; summed over where the result lacks it: each device's result is then a part of a sum
//   [i]      must be whole: it is gathered first
//   {a b}    a dim made of two factors, a major
//   i=4      a size that the operands' shapes do not give
//   ...      any number of dims, broadcast
//   *        as the whole rule: elementwise, broadcast
// A factor stands once in an operand, and once in the result.
// A function that has to know where its block lies takes a last parameter `const BlockContext& block`: block.size("i")
// is the global size of factor i, block.offset("i") where this block begins.
//   const auto add_positions = define_operation("add_positions", "b t -> b t", [](const at::Tensor& x,
//                                                                               const BlockContext& w)
//   {
//     return x + at::arange(w.offset("t"), w.offset("t") + x.size(1), x.options());
//   });
// Include <ATen/ATen.h> where the function is written. Errors: a rule that cannot be read (invalid_argument, at the
// definition), and those of all operations.
template <class Fn>
auto define_operation(const std::string& name, const std::string& rule, Fn fn, DefineOptions options = {}) {
  return detail::DefinedOperation<Fn>(detail::interned_operation(name, rule, options.linearity), options.out_dtype,
                                      std::move(fn));
}

}  // namespace tessera
