// value_and_grad: a loss and its gradient, a model of the same type and sharding as the original.
#pragma once

#include <algorithm>
#include <concepts>
#include <iterator>
#include <source_location>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/placement/memory_errors.h"
#include "nn/transformations/buffers.h"
#include "nn/transformations/gradient_call.h"
#include "nn/tree/filter.h"
#include "nn/tree/tree.h"
#include "nn/tree/tree_of_arrays.h"
#include "sharding/autodiff/tape.h"
#include "sharding/base/caller.h"
#include "sharding/base/error.h"
#include "sharding/operations/linalg/linear_algebra.h"

namespace tessera::nn {

namespace detail {

template <class Aux>
Aux finalize_tree(Aux aux) {
  for (Array* x : bare_arrays(aux).arrays) *x = tessera::detail::finalize_result(*x);
  return aux;
}

template <class Result>
inline constexpr bool is_loss = std::is_convertible_v<Result, Array> || std::is_same_v<Result, WeightedSum>;
template <class Aux>
inline constexpr bool is_loss<std::pair<Array, Aux>> = true;
template <class Aux>
inline constexpr bool is_loss<std::pair<WeightedSum, Aux>> = true;

template <class Result>
inline constexpr bool has_aux = false;
template <class Loss, class Aux>
inline constexpr bool has_aux<std::pair<Loss, Aux>> = true;

// Several arguments instead of a model, each with its own gradients.
template <class Tree>
inline constexpr bool is_arguments = false;
template <class... T>
inline constexpr bool is_arguments<std::tuple<T...>> = true;

inline Array scalar_loss(Array loss) { return loss; }
// Throws Error (invalid_argument) if the weight depends on a trained array.
void check_weight(const Array& weight);
Array scalar_loss(const WeightedSum& loss);

// The trained arrays of a model, on their own tape.
class Training {
 public:
  // Puts the trained arrays on a tape.
  // Errors (invalid_argument)
  //   one array in two leaves of the model, or of one argument
  //   a filter that selects no trainable array
  Training(Leaves model, const Filter& trained, const GradientOptions& options, bool is_arguments = false);

  const Leaves& model() const { return model_; }
  // Returns the arrays of the model's shadow copy: shadows on the tape for trained arrays, the others unchanged.
  std::vector<Array> shadows() const;
  // Pauses the tape between the forward and the backward pass, while other Trainings run.
  void pause() { tape_.pause(); }
  void resume() { tape_.resume(); }
  // Returns one gradient for each array of the model, absent if the array is not trained.
  std::vector<Array> gradients(const Array& loss);

 private:
  Leaves model_;
  std::vector<size_t> trained_;
  Tape tape_;
};

// The arrays of an argument (none if its type is not a tree), and its type's name if it is a struct.
struct Argument {
  std::string_view type;
  Leaves arrays;
};
template <class T>
Argument argument_of(const T& x) {
  if constexpr (is_tree_of_arrays<T>())
    return {is_module<T> ? type_name<T>() : "", leaves(x)};
  else
    return {};
}
// Notifies ledgers of uncommitted arrays that are used together with arrays on a mesh of several devices.
bool has_ledger();
void notify_unplaced(const std::vector<Argument>& arguments);

// A model that is not const belongs to the caller: the Buffers that the call changes are written to it.
template <class F, class Model, class... Args>
auto value_and_grad_of_checked(const F& f, const Filter& trained, const GradientOptions& options, Model& model,
                               const Args&... args) {
  using Tree = std::remove_const_t<Model>;
  Training training(leaves(model), trained, options, is_arguments<Tree>);
  if (has_ledger()) notify_unplaced({argument_of<Tree>(model), argument_of<Args>(args)...});
  Tree shadow = model;
  const std::vector<Array> given = training.shadows();
  const BareArrays bare = bare_arrays(shadow);
  set_values(bare.arrays, given);
  auto result = f(static_cast<Model&>(shadow), args...);
  constexpr bool gives_aux = has_aux<decltype(result)>;
  const Array loss = [&] {
    if constexpr (gives_aux)
      return scalar_loss(std::move(result.first));
    else
      return scalar_loss(std::move(result));
  }();
  Tree gradient = model;
  set_values(bare_arrays(gradient).arrays, training.gradients(loss));
  std::vector<Array> kept;
  if constexpr (!std::is_const_v<Model>)
    kept = kept_after_call(training.model(), bare.structure, given, bare_arrays(shadow), "value_and_grad",
                           /*settle=*/true);
  auto value = [&] {
    if constexpr (gives_aux)
      return std::pair(tessera::detail::finalize_result(loss), finalize_tree(std::move(result.second)));
    else
      return tessera::detail::finalize_result(loss);
  }();
  if constexpr (!std::is_const_v<Model>)
    write_back(model, training.model(), std::move(kept), shadow, "value_and_grad");
  return std::pair(std::move(value), std::move(gradient));
}

// Describes the call for the Error of a failed allocation.
template <class F, class Model, class... Args>
GradientCall gradient_call(const F& f, const Filter& trained, const GradientOptions& options, Model& model,
                           const Args&... args) {
  GradientCall call{
      .model = leaves(model), .arguments = {argument_of<Args>(args).arrays...}, .options = options, .repeat = {}};
  if constexpr (captures_nothing<F> && (std::is_copy_constructible_v<Args> && ...))
    call.repeat = [&](const GradientCall::Replace& replace, const GradientOptions& changed) {
      std::remove_const_t<Model> copy = model;
      std::tuple<Args...> copies(args...);
      return std::apply(
          [&](const Args&... arg) {
            replace(leaves(copy), {argument_of<Args>(arg).arrays...});
            auto result = value_and_grad_of_checked(f, trained, changed, static_cast<Model&>(copy), arg...);
            return values_of(bare_arrays(result.second).arrays);
          },
          copies);
    };
  return call;
}

// After a diagnosed mistake, nothing else is compiled, so that the compiler prints a single sentence.
template <class F, class Model, class... Args>
auto value_and_grad_of(const F& f, const Filter& trained, const GradientOptions& options, Model& model,
                       const Args&... args) {
  constexpr bool is_callable = requires { f(model, args...); };
  static_assert(is_callable,
                "tessera: the loss function cannot be called with this model and these arguments. If it takes Model&, "
                "the model must be neither const nor a temporary.");
  if constexpr (is_callable && check_tree<std::remove_const_t<Model>>()) {
    constexpr bool returns_loss = is_loss<decltype(f(model, args...))>;
    static_assert(returns_loss,
                  "tessera: a loss function must return an Array or a WeightedSum, or a std::pair of either and aux.");
    if constexpr (returns_loss) {
      try {
        return value_and_grad_of_checked(f, trained, options, model, args...);
      } catch (...) {
        if (!is_out_of_memory()) throw;
        rethrow_explained(gradient_call(f, trained, options, model, args...));
      }
    }
  }
}

}  // namespace detail

// Returns a function that calls loss_fn(model, args...) and returns the loss and its gradients. loss_fn returns a
// floating scalar, or a pair of one and any other value (aux).
//   const auto [loss, grads] = nn::value_and_grad(mse)(model, batch);
//   auto [value, grads] = nn::value_and_grad(mse_with_aux)(model, batch);   // value = {loss, aux}
// `grads` has the type of the model. It holds the gradient of each floating array with that array's sharding, or zeros
// if the loss does not use the array. Arrays that are not floating are absent. All gradients are reduced once, in one
// collective per set of mesh axes and element type. Loss and aux are returned as plain values.
// The loss must be computed from the model that the function receives: a captured model gets no gradient, which is an
// Error (no_gradient). Calls may be nested, as in JAX: the outer call differentiates the inner call's gradients, unless
// the inner call has {.differentiable = false}.
// Instead of the scalar, a loss function may return a WeightedSum (sharding/operations/linalg/linear_algebra.h); the
// loss is its mean. nn::accumulate_gradients adds up the sums and weights of its micro-batches.
//   WeightedSum loss(const Model& model, const Batch& batch) {
//     return cross_entropy_sum(model(batch.ids), batch.labels, {.ignore_label = -100});
//   }
// A loss function that takes Model& may change a model that is neither const nor a temporary. Its new running
// statistics are written to the model (nn/transformations/buffers.h) once, after everything else has succeeded. Buffers
// have no gradient: their gradients are absent.
//   Array loss(Model& model, const Batch& batch);     // model(batch.x) updates model.norm.mean
//   auto [loss_now, grads] = nn::value_and_grad(loss)(model, batch);
// With a filter, only the arrays that it selects are trained. The gradients of other arrays are absent: optimizers do
// not update these arrays, and no backward work is done for them:
//   const auto [loss, grads] = nn::value_and_grad(mse, nn::by_path("head.**"))(model, batch);
// The options (sharding/autodiff/tape.h) control whether gathered weights are kept, and whether and how gradients are
// reduced:
//   nn::value_and_grad(loss_fn, {.reshard_after_forward = false})(model, batch);
// In ledgers, the reduction of the gradients has the source line that calls value_and_grad; communication inside the
// function has its own lines. After an error the model is unchanged.
// Errors
//   out_of_memory: an allocation failed. The message has the operation, the largest arrays, the activations by module,
//     and changes that fit with their forecast bytes. For the last two, a loss function that captures nothing is called
//     again with arrays without data.
//   invalid_argument: one array in two leaves (the message names both)
//   invalid_argument: a filter that selects no trainable array
//   invalid_argument: a weight that depends on a trained array
//   invalid_argument: a call that assigns to an array that is not a Buffer
//   shape_mismatch, dtype_mismatch: a Buffer that changes its shape or element type
template <class F>
auto value_and_grad(F f, Filter trained, GradientOptions options = {},
                    std::source_location where = std::source_location::current()) {
  return [f, trained, options, where](auto&& model, const auto&... args) {
    const CallerScope caller(where);
    detail::AsModel<decltype(model)>& as_given = model;
    return detail::value_and_grad_of(f, trained, options, as_given, args...);
  };
}
template <class F>
auto value_and_grad(F f, GradientOptions options = {}, std::source_location where = std::source_location::current()) {
  static_assert(!std::convertible_to<F, Array>,
                "tessera: value_and_grad takes the loss function, not a loss: value_and_grad(loss)(model, batch).");
  return value_and_grad(std::move(f), is_trainable, options, where);
}
// Diagnoses all arguments in one call.
template <class F, class Model, class... Args>
requires(!std::convertible_to<Model, Filter> &&
         !std::convertible_to<Model, GradientOptions>) auto value_and_grad(const F&, const Model&, const Args&...) {
  static_assert(
      tessera::detail::dependent_false<Model>,
      "tessera: value_and_grad returns a function. Call that with the model: value_and_grad(loss)(model, batch).");
}

// Returns the gradients of the numbered arguments instead of the first argument's: a single gradient for one number, a
// std::tuple in the order of the numbers for several (jax's argnums). Each argument can be any tree. If one array is in
// several arguments, each argument gets the gradient of its own use.
//   const auto [loss, grads] = nn::value_and_grad<0, 2>(loss_fn)(x, w, b);
//   auto [dx, db] = grads;
template <size_t First, size_t... Rest, class F>
auto value_and_grad(F f, GradientOptions options = {}, std::source_location where = std::source_location::current()) {
  return [f, options, where](const auto&... args) {
    constexpr size_t numbers[] = {First, Rest...};
    static_assert(((First < sizeof...(args)) && ... && (Rest < sizeof...(args))),
                  "tessera: value_and_grad got the number of an argument that the call does not have.");
    const auto all = std::forward_as_tuple(args...);
    const auto pick = [&]<size_t Argument>(const auto& chosen) -> decltype(auto) {
      constexpr size_t place = std::find(std::begin(numbers), std::end(numbers), Argument) - std::begin(numbers);
      if constexpr (place < std::size(numbers))
        return std::get<place>(chosen);
      else
        return std::get<Argument>(all);
    };
    const auto loss = [&](const auto& chosen) {
      return [&]<size_t... Argument>(std::index_sequence<Argument...>) {
        return f(pick.template operator()<Argument>(chosen)...);
      }
      (std::index_sequence_for<decltype(args)...>());
    };
    const std::tuple<std::decay_t<decltype(std::get<First>(all))>, std::decay_t<decltype(std::get<Rest>(all))>...>
        chosen(std::get<First>(all), std::get<Rest>(all)...);
    auto [value, gradients] = value_and_grad(loss, options, where)(chosen);
    if constexpr (sizeof...(Rest) == 0)
      return std::pair(std::move(value), std::get<0>(std::move(gradients)));
    else
      return std::pair(std::move(value), std::move(gradients));
  };
}

namespace detail {
template <class ValueAndGrad>
auto without_loss(ValueAndGrad call) {
  return [call = std::move(call)](auto&&... args) {
    auto [value, gradient] = call(std::forward<decltype(args)>(args)...);
    if constexpr (std::is_same_v<decltype(value), Array>)
      return std::move(gradient);
    else
      return std::pair(std::move(gradient), std::move(value.second));
  };
}
}  // namespace detail

// Returns the gradients alone, or with aux a pair of gradients and aux (jax.grad). Otherwise like value_and_grad.
template <class F>
auto grad(F f, Filter trained, GradientOptions options = {},
          std::source_location where = std::source_location::current()) {
  return detail::without_loss(value_and_grad(std::move(f), std::move(trained), options, where));
}
template <class F>
auto grad(F f, GradientOptions options = {}, std::source_location where = std::source_location::current()) {
  return grad(std::move(f), is_trainable, options, where);
}
template <size_t First, size_t... Rest, class F>
auto grad(F f, GradientOptions options = {}, std::source_location where = std::source_location::current()) {
  return detail::without_loss(value_and_grad<First, Rest...>(std::move(f), options, where));
}

}  // namespace tessera::nn
