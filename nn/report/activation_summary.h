// trace: one forward and backward pass, and what each module reads, makes, keeps, computes and communicates in it.
#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/report/activations.h"
#include "nn/transformations/eval_shape.h"
#include "nn/transformations/value_and_grad.h"

namespace tessera::nn {

namespace detail {

// The modules and arguments of the program, collected before it runs.
struct TraceSubject {
  std::vector<std::pair<std::string, std::string>> modules = {};  // paths and types, in the order of the tree
  std::vector<Array> arguments = {};                              // without the model
};

using HandOut = std::function<void(const std::vector<Array>& returned)>;
// Runs the program, which calls the function it is given with what it returns, and makes the table of it. The program
// runs a second time if it has gathered weights in an order that was not known.
ActivationTable traced(const TraceSubject& subject, const std::function<void(const HandOut&)>& program);

// Parameters without a path are given their own, as filter_shard does it.
void stamp_paths(const Leaves& model);

template <class Model>
std::vector<std::pair<std::string, std::string>> modules_of(Model& model) {
  std::vector<std::pair<std::string, std::string>> modules;
  for (const Part& part : parts_of(model, module_path(model)))
    if (part.type->is_module) modules.emplace_back(part.path, part.text().substr(0, part.text().find('<')));
  return modules;
}

template <class T>
void append_arrays(T& part, std::vector<Array*>& arrays) {
  if constexpr (is_tree<std::remove_const_t<T>>)
    for (Array* x : bare_arrays(part).arrays) arrays.push_back(x);
}

// The loss whose backward pass is traced: what the program returns, or the sum of its floating arrays.
Array loss_of(const std::vector<Array>& returned);

template <class Result>
std::vector<Array> returned_arrays(const Result& result) {
  std::vector<Array> arrays;
  if constexpr (std::is_convertible_v<Result, Array>)
    arrays.push_back(result);
  else if constexpr (std::is_same_v<Result, WeightedSum>)
    arrays.push_back(scalar_loss(result));
  else if constexpr (has_aux<Result>)
    arrays = returned_arrays(result.first);
  else
    append_values(result, arrays);
  return arrays;
}

// Whether a function that returns this goes back by itself: nn::value_and_grad(loss), or a whole step.
template <class Result, class Model>
inline constexpr bool goes_back = std::is_void_v<Result>;
template <class Value, class Model>
inline constexpr bool goes_back<std::pair<Value, Model>, Model> = !std::is_convertible_v<Model, Array>;

template <class Model, class F, class... Args>
void run_traced(const HandOut& hand_out, Model& model, F&& f, Args&... args) {
  using Result = std::decay_t<decltype(f(model, args...))>;
  if constexpr (goes_back<Result, Model>) {
    f(model, args...);
  } else {
    const auto loss = [&](Model& shadow, auto&...) {
      const std::vector<Array> returned = returned_arrays(f(shadow, args...));
      hand_out(returned);
      return loss_of(returned);
    };
    nn::value_and_grad(loss)(model);
  }
}

template <class Model, class Call, class... Args>
ActivationTable trace_of(Model model, const Call& call, std::tuple<Args...> args) {
  static_assert(is_tree<Model>,
                "tessera: activation_summary takes a model, or a function and its arguments, the model first.");
  std::vector<Array*> arrays, of_arguments;
  append_arrays(model, arrays);
  std::apply([&](auto&... arg) { (append_arrays(arg, of_arguments), ...); }, args);
  arrays.insert(arrays.end(), of_arguments.begin(), of_arguments.end());
  make_abstract(arrays);
  stamp_paths(leaves(model));
  TraceSubject subject{.modules = modules_of(model)};
  for (const Array* x : of_arguments) subject.arguments.push_back(*x);
  return traced(subject, [&](const HandOut& hand_out) {
    Model once = model;
    std::apply([&](auto... arg) { run_traced(hand_out, once, call, arg...); }, args);
  });
}

}  // namespace detail

// Traces one forward and backward pass of a model, or of a loss function of one:
//   std::cout << nn::activation_summary(model, x);             // forward, and back from the sum of what model(x)
//   returns std::cout << nn::activation_summary(loss, model, batch);   // nn::value_and_grad(loss)(model, batch)
//   std::cout << nn::activation_summary(nn::value_and_grad(loss, {.shard_gradients_over = {"data"}}), model, batch);
// The last form, a function that returns a pair of anything and gradients, or nothing, goes back by itself: it may be a
// whole training step. Like eval_shape it calls the function with arrays that have no data, on an abstract mesh with
// the axes of the arguments': nothing is computed, allocated or sent, the arguments are not changed, and the table is
// the same for a model on real devices, on an abstract mesh, or not placed at all (then of one device). The traffic is
// that of a step that knows what the one before it gathered. Modules are those that open a ModuleScope
// (nn/layers/module_scope.h), as all layers do, and those around them. Errors: those of the function and of
// value_and_grad; reading a value; an array that the function captures, on another mesh than the abstract one
// (device_mismatch): make it an argument.
template <class F, class... Args>
ActivationTable activation_summary(const F& f, const Args&... args) {
  static_assert(sizeof...(Args) > 0,
                "tessera: activation_summary calls what it is given: activation_summary(model, x), "
                "activation_summary(loss, model, batch).");
  if constexpr (detail::is_tree<F> && !std::is_empty_v<F>) {
    return detail::trace_of(f, [](auto& model, auto&... rest) { return model(rest...); }, std::tuple<Args...>(args...));
  } else {
    return [&]<class Model>(const Model& model, const auto&... rest) {
      return detail::trace_of(model, f, std::tuple<std::decay_t<decltype(rest)>...>(rest...));
    }(args...);
  }
}

}  // namespace tessera::nn
