// define_operation: defines a custom operation in one line, for arrays of any sharding.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "sharding/operations/operand.h"
#include "sharding/propagation/run.h"

namespace tessera {

using detail::BlockContext;  // the position of a function's block: see define_operation
using detail::Linearity;
using detail::Tensors;

namespace detail {

// Returns the tensors that a function of an operation returns: one tensor, or a tuple, pair, array or vector of them.
inline Tensors tensors_of(at::Tensor result) { return Tensors(1, std::move(result)); }
template <class Result>
Tensors tensors_of(Result result) {
  Tensors tensors;
  if constexpr (requires { result.begin(); })
    for (at::Tensor& t : result) tensors.push_back(std::move(t));
  else
    std::apply([&](auto&... t) { (tensors.push_back(std::move(t)), ...); }, result);
  return tensors;
}

}  // namespace detail

// The gradient of an operation's function: see DefineOptions::backward.
class LocalBackward {
 public:
  LocalBackward() = default;
  template <class Fn>
  requires(!std::same_as<Fn, LocalBackward>) LocalBackward(Fn fn)
      : LocalBackward(std::move(fn), std::make_index_sequence<1>()) {}

  int parameters() const { return parameters_; }  // without the block
  bool takes_block() const { return takes_block_; }
  explicit operator bool() const { return fn_ != nullptr; }
  // `block`: null unless takes_block().
  Tensors operator()(const Tensors& arguments, const BlockContext* block) const { return fn_(arguments, block); }

 private:
  template <size_t>
  using Tensor = const at::Tensor&;

  // Finds the number of parameters of `fn`.
  template <class Fn, size_t... I>
  LocalBackward(Fn fn, std::index_sequence<I...>) {
    static_assert(sizeof...(I) <= 12,
                  "tessera: a backward function must take the cotangent, the operands, the tensors that the function "
                  "saved, and optionally a `const BlockContext&`. It must return tensors.");
    constexpr bool with_block = std::is_invocable_v<const Fn&, Tensor<I>..., const BlockContext&>;
    if constexpr (with_block || std::is_invocable_v<const Fn&, Tensor<I>...>) {
      parameters_ = sizeof...(I);
      takes_block_ = with_block;
      fn_ = [fn = std::move(fn)](const Tensors& t, const BlockContext* block) {
        if constexpr (with_block)
          return detail::tensors_of(fn(t[I]..., *block));
        else
          return detail::tensors_of(fn(t[I]...));
      };
    } else {
      *this = LocalBackward(std::move(fn), std::make_index_sequence<sizeof...(I) + 1>());
    }
  }

  int parameters_ = 0;
  bool takes_block_ = false;
  std::function<Tensors(const Tensors&, const BlockContext*)> fn_;
};

struct DefineOptions {
  // How the operation treats partial sums. The operands of a linear function need not be summed first.
  Linearity linearity = Linearity::nonlinear;
  // The result's element type; by default the first operand's.
  DType out_dtype = detail::like_first;
  // The gradient of the function; by default LibTorch's. See define_operation.
  LocalBackward backward = {};
};

namespace detail {

// Returns the operation of this name, rule and linearity. It is kept forever, since plans are cached by it.
const Operation& interned_operation(const std::string& name, const std::string& rule, Linearity linearity);

// Returns the result of `forward`, which returns it and the tensors that `backward` needs. Records `backward`, unless
// it is null, as its gradient. Given abstract tensors, it then calls neither, since kernels read data.
at::Tensor call_function(const Operation& operation, const std::shared_ptr<const LocalBackward>& backward,
                         const Tensors& operands, const BlockContext& block, c10::function_ref<Tensors()> forward);

template <class Fn>
class DefinedOperation {
 public:
  using HoldsNoArrays = void;  // nn::remat accepts it

  DefinedOperation(const Operation& operation, DefineOptions options, Fn fn)
      : operation_(&operation), out_dtype_(options.out_dtype), fn_(std::move(fn)) {
    if (options.backward) backward_ = std::make_shared<const LocalBackward>(std::move(options.backward));
  }

  template <std::convertible_to<Operand>... More>
  requires(sizeof...(More) < 4) Array operator()(Operand a, const More&... more) const {
    return call(std::make_index_sequence<1 + sizeof...(More)>(), a.where(), {&a.array(), &Operand(more).array()...});
  }

 private:
  template <size_t... I>
  Array call(std::index_sequence<I...>, std::source_location line, std::initializer_list<const Array*> operands) const {
    return run({.operation = *operation_, .out_dtype = out_dtype_, .in_turn = true, .where = line}, operands,
               [&](Locals t, const BlockContext& block) {
                 const auto called = [&] {
                   if constexpr (std::is_invocable_v<const Fn&, decltype(t[I])..., const BlockContext&>)
                     return fn_(t[I]..., block);
                   else
                     return fn_(t[I]...);
                 };
                 return call_function(*operation_, backward_, {t[I]...}, block, [&] { return tensors_of(called()); });
               });
  }

  const Operation* operation_;
  DType out_dtype_;
  std::shared_ptr<const LocalBackward> backward_;
  Fn fn_;
};

}  // namespace detail

// Returns an operation on arrays, made from a name (for ledgers and errors), a rule and a function of local LibTorch
// tensors:
//   const auto mish = define_operation("mish", "*", [](const at::Tensor& x) { return x * at::tanh(at::softplus(x)); });
//   const Array y = mish(x);
// The rule determines sharding and communication. LibTorch differentiates the function. An operation takes one to four
// operands.
//
// The rule names a factor for each dimension, as in einsum: "... i k, k j -> ... i j".
//   i        may be sharded; if the result lacks it, each device's result is a partial sum
//   [i]      must be replicated: it is gathered first
//   {a b}    a dimension made of two factors, a major
//   i=4      a size that the operands' shapes do not determine
//   ...      any number of dimensions, broadcast
//   *        as the complete rule: elementwise, broadcast
// A factor occurs at most once in each operand and in the result.
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
// For a function that LibTorch cannot differentiate, such as a custom kernel, give the gradient in `.backward` (as
// jax.custom_vjp). `backward` takes the local tensors of the result's cotangent and of the operands, and perhaps the
// block last. It returns a tensor for each operand; an undefined tensor is a gradient of zeros.
//   const auto cube = define_operation("cube", "*", cube_kernel, {.backward = [](const at::Tensor& g,
//                                                                               const at::Tensor& x)
//   {
//     return 3 * g * x * x;
//   }});
// The gradients of operands that were gathered or broadcast are reduced as the rule requires. If the function returns
// a tuple, its first tensor is the result, and `backward` receives the others after the operands. On abstract meshes
// neither function is called. For second derivatives LibTorch differentiates `backward`: it must not call kernels that
// LibTorch does not record, and the function must return only its result.
//
// Errors
//   invalid_argument: at the definition, a rule that cannot be parsed
//   invalid_argument: a `backward` that takes (at the call) or returns (in the backward pass) a wrong number of tensors
//   invalid_argument: a function that changes its arguments in place; a LibTorch exception in `backward`
//   shape_mismatch: a result or gradient whose local shape does not fit the rule
//   dtype_mismatch: a result of another element type than out_dtype; a sparse or complex gradient
//   no_gradient: a second derivative that does not exist
//   those of all operations (operand.h)
template <class Fn>
auto define_operation(const std::string& name, const std::string& rule, Fn fn, DefineOptions options = {}) {
  const detail::Operation& operation = detail::interned_operation(name, rule, options.linearity);
  return detail::DefinedOperation<Fn>(operation, std::move(options), std::move(fn));
}

}  // namespace tessera
