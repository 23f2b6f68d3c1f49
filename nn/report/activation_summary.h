// activation_summary: per module, the arrays, memory, operations and communication of one forward and backward pass.
#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/report/activations.h"
#include "nn/transformations/eval_shape.h"
#include "nn/transformations/value_and_grad.h"
#include "nn/tree/tree_parts.h"

namespace tessera::nn {

namespace detail {

// Modules and arguments of the program, collected before it runs.
struct TraceSubject {
  std::vector<std::pair<std::string, std::string>> modules = {};  // paths and types, in the order of the tree
  std::vector<Array> arguments = {};                              // without the model
};

using OnReturn = std::function<void(const std::vector<Array>& returned)>;
// Runs the program and returns its table. The program receives a function, which it calls with its results. The program
// runs a second time if it gathered weights in an order that was not known.
ActivationTable traced(const TraceSubject& subject, const std::function<void(const OnReturn&)>& program);

// Gives parameters without a path their own, as filter_shard does.
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

// Returns the loss whose backward pass is traced: the program's result, or the sum of its floating arrays.
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

// True if a function with this result runs its own backward pass: nn::value_and_grad(loss), or a complete step.
template <class Result, class Model>
inline constexpr bool differentiates_itself = std::is_void_v<Result>;
template <class Value, class Model>
inline constexpr bool differentiates_itself<std::pair<Value, Model>, Model> = !std::is_convertible_v<Model, Array>;

template <class Model, class F, class... Args>
void run_traced(const OnReturn& on_return, Model& model, F&& f, Args&... args) {
  using Result = std::decay_t<decltype(f(model, args...))>;
  if constexpr (differentiates_itself<Result, Model>) {
    f(model, args...);
  } else {
    const auto loss = [&](Model& shadow, auto&...) {
      const std::vector<Array> returned = returned_arrays(f(shadow, args...));
      on_return(returned);
      return loss_of(returned);
    };
    nn::value_and_grad(loss)(model);
  }
}

template <class Model, class Call, class... Args>
ActivationTable trace_of(Model model, const Call& call, std::tuple<Args...> args) {
  static_assert(
      is_tree<Model>,
      "tessera: activation_summary takes a model, or a function and its arguments, of which the model is the first.");
  std::vector<Array*> arrays, of_arguments;
  append_arrays(model, arrays);
  std::apply([&](auto&... arg) { (append_arrays(arg, of_arguments), ...); }, args);
  arrays.insert(arrays.end(), of_arguments.begin(), of_arguments.end());
  make_abstract(arrays);
  stamp_paths(leaves(model));
  TraceSubject subject{.modules = modules_of(model)};
  for (const Array* x : of_arguments) subject.arguments.push_back(*x);
  return traced(subject, [&](const OnReturn& on_return) {
    Model once = model;
    std::apply([&](auto... arg) { run_traced(on_return, once, call, arg...); }, args);
  });
}

}  // namespace detail

// Returns a table of one forward and backward pass of a model, or of a loss function:
//   std::cout << nn::activation_summary(model, x);                     // backward from the sum of the results
//   std::cout << nn::activation_summary(loss, model, batch);           // nn::value_and_grad(loss)(model, batch)
//   std::cout << nn::activation_summary(nn::value_and_grad(loss, {.shard_gradients_over = {"data"}}), model, batch);
// A function that returns nothing, or a pair of anything and gradients, as in the last line, runs its own backward
// pass. It may be a complete training step.
// Like eval_shape, this calls the function with arrays that have no data, on an abstract mesh with the axes of the
// arguments' mesh. Nothing is computed, allocated or sent, and the arguments are not changed. The table is the same for
// a model on real devices and on an abstract mesh; for a model that is not placed, it is the table of one device. The
// table shows the communication of a second step, which gathers weights in the order of the first step. Modules are
// those that open a ModuleScope (nn/layers/module_scope.h), as all layers do, and the modules that contain them.
// Errors, in addition to those of the function and of value_and_grad
//   invalid_argument: the function reads a value of an array, for example with item()
//   device_mismatch: a captured array that is not on the abstract mesh; make it an argument
template <class F, class... Args>
ActivationTable activation_summary(const F& f, const Args&... args) {
  static_assert(sizeof...(Args) > 0,
                "tessera: activation_summary cannot call its first argument with the others: activation_summary(model, "
                "x), activation_summary(loss, model, batch).");
  if constexpr (detail::is_tree<F> && !std::is_empty_v<F>) {
    return detail::trace_of(f, [](auto& model, auto&... rest) { return model(rest...); }, std::tuple<Args...>(args...));
  } else {
    return [&]<class Model>(const Model& model, const auto&... rest) {
      return detail::trace_of(model, f, std::tuple<std::decay_t<decltype(rest)>...>(rest...));
    }(args...);
  }
}

}  // namespace tessera::nn
