// GraphedStep: a step that an accelerator records once and replays with little host work.
#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/tree/tree_parts.h"

namespace tessera::nn {

namespace detail {

// One call of a captured step, with types erased.
struct CapturedCall {
  std::vector<Array*> inputs;  // arrays of copies of the arguments; the step reads what is assigned to them
  std::string rest;            // everything else in the arguments, as text

  // The arguments that the step may change: the objects, their arrays, and the text of everything else.
  struct Object {
    const void* at;
    size_t size;
  };
  std::vector<Object> objects;
  std::vector<Array*> changed;
  std::vector<std::string> numbers;
  std::vector<std::shared_ptr<const void>> identities;  // identities of parts with numbers that no tree contains

  std::function<std::any()> step;
  std::function<std::vector<Array*>(std::any&)> arrays;  // returns the arrays of a result
  std::function<std::vector<std::string>()> numbers_now;
};

// Recorded graphs, looked up by arguments.
class Recordings {
 public:
  Recordings();
  ~Recordings();
  std::any run(const CapturedCall& call);
  int64_t count() const { return count_; }

 private:
  struct Recorded;
  Recorded* find(const CapturedCall& call);
  std::any run_first(const CapturedCall& call);

  std::vector<std::unique_ptr<Recorded>> all_;  // most recently used first
  int64_t count_ = 0;
};

// Collects the static values of a tree as text, except values that are not known yet.
struct NumberCollector {
  CapturedCall& call;
  std::string late = {};
  template <class T>
  void operator()(T& part, const Place& place) {
    const std::string path = place.path();
    if constexpr (requires { part.settle(); }) late = path + ".";
    if constexpr (requires { std::shared_ptr<const void>(part.identity()); })
      call.identities.push_back(part.identity());
    if (late.empty() || !path.starts_with(late)) call.numbers.push_back(path + "=" + text_of_part(part));
  }
};

// Adds an argument that the step receives itself (true_type), or one that it may only read (false_type).
template <class Tree>
void add_to(CapturedCall& call, Tree& tree, std::true_type /*changes*/) {
  const BareArrays bare = bare_arrays(tree);
  call.changed.insert(call.changed.end(), bare.arrays.begin(), bare.arrays.end());
  call.objects.push_back({&tree, sizeof(tree)});
  call.numbers.push_back(std::to_string(bare.structure));
  walk_all(tree, NumberCollector{call});
}
template <class Tree>
void add_to(CapturedCall& call, Tree& tree, std::false_type) {
  const BareArrays bare = bare_arrays(tree);
  call.inputs.insert(call.inputs.end(), bare.arrays.begin(), bare.arrays.end());
  for (const Part& part : parts_of(tree)) call.rest.append(part.path).append("=").append(part.text()).append(";");
}

// For an argument passed as Arg&&: whether the step may change it (changes), the type that holds it during a call
// (Held), and the type that the step receives (Seen).
template <class Arg, bool reads>
constexpr bool changes = !reads && std::is_lvalue_reference_v<Arg> && !std::is_const_v<std::remove_reference_t<Arg>>;
template <class Arg, bool reads>
using Held = std::conditional_t<changes<Arg, reads>, Arg, std::remove_cvref_t<Arg>>;
template <class Arg, bool reads>
using Seen = std::conditional_t<changes<Arg, reads>, Arg, const std::remove_cvref_t<Arg>&>;

}  // namespace detail

// Runs the host work of a step once. On a GPU, the second call with the same kinds of arguments is recorded as a CUDA
// graph, collectives included. That call and all later ones replay the graph.
//   nn::GraphedStep step([&](Model& model, Optimizer& optimizer, const Batch& batch) {
//     auto [loss, grads] = nn::value_and_grad(loss_fn)(model, batch);
//     optimizer.update(model, std::move(grads));
//     return loss;
//   });
//   const Array loss = step(model, optimizer, batch);
// The arguments are trees. The result must depend on the arguments only: captured arrays and numbers keep the values
// that they had at the recording. Results are copies that the caller owns.
// The step may change arguments that it takes by non-const reference. Arrays with new memory are copied back. Update
// counts and learning rates are updated on the host without waiting for the device. An array whose memory another copy
// shares (`auto best = model;`) is copied first, and the step is recorded again. Other arguments are read in place if
// their memory stays the same from call to call; otherwise they are copied.
// Arguments with different shapes, types, shardings or static parts (numbers, keys, ...) cause another recording. The
// eight most recently used recordings are kept. On devices without graphs (the CPU) the step runs without recording. So
// does a call with arrays that an open value_and_grad records. Ledgers and timelines record no replays, and a lost
// process is detected only when the next value is read.
// Errors, on every device, in addition to those of the step (nothing is recorded then)
//   invalid_argument: the step reads a value
//   invalid_argument: Optimizer.update of an argument that the step may not change
//   invalid_argument: Optimizer.update by a transform that counts or decides on the host (optim/optimizer.h)
//   invalid_argument, only when recording: the step changes a number of its arguments
template <class F>
class GraphedStep {
 public:
  explicit GraphedStep(F step) : step_(std::move(step)) {}

  template <class... Args>
  auto operator()(Args&&... args) {
    constexpr bool reads = std::is_invocable_v<F&, const std::remove_cvref_t<Args>&...>;
    static_assert(std::is_invocable_v<F&, detail::Seen<Args, reads>...>,
                  "tessera: the step cannot be called with these arguments. An argument that it takes as Model& must "
                  "be neither const nor a temporary.");
    using Result = std::decay_t<std::invoke_result_t<F&, detail::Seen<Args, reads>...>>;
    std::tuple<detail::Held<Args, reads>...> own(args...);
    detail::CapturedCall call;
    std::apply([&](auto&... tree) { (detail::add_to(call, tree, Changes<Args, reads>()), ...); }, own);
    call.step = [&] {
      return std::any(std::apply([&](detail::Seen<Args, reads>... tree) -> Result { return step_(tree...); }, own));
    };
    call.arrays = [](std::any& result) { return bare_arrays(std::any_cast<Result&>(result)).arrays; };
    call.numbers_now = [&] {
      detail::CapturedCall now;
      std::apply([&](auto&... tree) { (add_changed(now, tree, Changes<Args, reads>()), ...); }, own);
      return now.numbers;
    };
    return std::any_cast<Result>(recordings_.run(call));
  }

  // Returns the number of recordings so far; 0 on devices without graphs.
  int64_t recordings() const { return recordings_.count(); }

 private:
  template <class Arg, bool reads>
  using Changes = std::bool_constant<detail::changes<Arg, reads>>;

  template <class Tree, class Given>
  static void add_changed(detail::CapturedCall& call, Tree& tree, Given given) {
    if constexpr (Given::value) detail::add_to(call, tree, given);
  }

  F step_;
  detail::Recordings recordings_;
};

}  // namespace tessera::nn
