// GradientCall: a call of value_and_grad that ran out of memory, for the tables and forecasts in its Error.
#pragma once

#include <functional>
#include <type_traits>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/array/gradient_options.h"

namespace tessera::nn::detail {

// True if the loss function captures nothing, so that another call of it changes no variable of the program.
template <class F>
inline constexpr bool captures_nothing = std::is_empty_v<F> || std::is_pointer_v<F>;

struct GradientCall {
  Leaves model;
  std::vector<Leaves> arguments;
  GradientOptions options;
  // Repeats the call with copies of the model and the arguments, whose arrays `replace` has replaced, and returns the
  // gradients. Empty if the loss function captures something, or if an argument cannot be copied.
  using Replace = std::function<void(const Leaves& model, const std::vector<Leaves>& arguments)>;
  std::function<std::vector<Array>(const Replace& replace, const GradientOptions& options)> repeat = {};
};

// Rethrows the exception that is handled, a failed allocation, with sections about the model, its activations, and
// changes of the program that fit. Defined in nn/report/memory_advice.cpp.
[[noreturn]] void rethrow_explained(const GradientCall& call);

}  // namespace tessera::nn::detail
