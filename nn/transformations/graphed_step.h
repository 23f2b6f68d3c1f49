// GraphedStep: a step that an accelerator records once and repeats without the host.
#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "nn/tree/tree_parts.h"

namespace tessera::nn {

namespace detail {

// One call of a captured step, its types forgotten.
struct CapturedCall {
  std::vector<Array*> inputs;  // of copies of the arguments; the step sees what is put there
  std::string rest;            // all else that the arguments are made of, as text

  // Of what the step is given to change: the objects themselves, their arrays, and the texts of all else.
  struct Object {
    const void* at;
    size_t size;
  };
  std::vector<Object> objects;
  std::vector<Array*> changed;
  std::vector<std::string> numbers;
  std::vector<std::shared_ptr<const void>> identities;  // of parts with numbers that no tree shows

  std::function<std::any()> step;
  std::function<std::vector<Array*>(std::any&)> arrays;  // of a result
  std::function<std::vector<std::string>()> numbers_now;
};

// What has been recorded, by arguments.
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

  std::vector<std::unique_ptr<Recorded>> all_;  // the one used last stands first
  int64_t count_ = 0;
};

// The static values of a tree as text, but for those that are not known yet.
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

// An argument that the step is given as it is, and one that it may only read.
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

// Of an argument passed as Arg&&: whether the step may change it, what holds it during a call, what the step sees.
template <class Arg, bool reads>
constexpr bool changes = !reads && std::is_lvalue_reference_v<Arg> && !std::is_const_v<std::remove_reference_t<Arg>>;
template <class Arg, bool reads>
using Held = std::conditional_t<changes<Arg, reads>, Arg, std::remove_cvref_t<Arg>>;
template <class Arg, bool reads>
using Seen = std::conditional_t<changes<Arg, reads>, Arg, const std::remove_cvref_t<Arg>&>;

}  // namespace detail

// A step whose host work is done once: on a GPU the second call with the same kinds of arguments is recorded as a CUDA
// graph, collectives included, and this and all later ones replay it.
//   nn::GraphedStep step([&](Model& model, Optimizer& optimizer, const Batch& batch) {
//     auto [loss, grads] = nn::value_and_grad(loss_fn)(model, batch);
//     optimizer.update(model, std::move(grads));
//     return loss;
//   });
//   const Array loss = step(model, optimizer, batch);
// The arguments are trees. What the step takes by a reference that is not const it may change in place: arrays that
// come to lie elsewhere are copied back, the count of updates and the learning rate follow on the host without a wait;
// one whose memory another copy shares (`auto best = model;`) is copied first, and the step recorded anew. Of the
// others what stays where it is from call to call is read there, other arrays are copied into those that were recorded.
// The results are copies, the caller's own. Arguments whose shapes, types, placements or static parts (numbers, keys,
// ...) differ are recorded anew; of several kinds the eight used last are kept. On devices without graphs (the CPU) the
// step runs as it is. What the step computes must follow from its arguments: captured arrays and numbers are those of
// the recording. A replay tells no ledger and no timeline, and a lost process is seen only where the next value is
// read. Arrays that an open value_and_grad records are not captured: such a call runs as it is. Errors, on every device
// (invalid_argument): a value that the step reads, an Optimizer.update of what it was not given to change, or by a
// transform that counts or decides on the host (optim/optimizer.h); where it is recorded, a number of what it was given
// that the step changes. Those of the step; nothing is recorded then.
template <class F>
class GraphedStep {
 public:
  explicit GraphedStep(F step) : step_(std::move(step)) {}

  template <class... Args>
  auto operator()(Args&&... args) {
    constexpr bool reads = std::is_invocable_v<F&, const std::remove_cvref_t<Args>&...>;
    static_assert(std::is_invocable_v<F&, detail::Seen<Args, reads>...>,
                  "tessera: the captured step cannot be called with these arguments; what it takes as Model& must be "
                  "neither const nor a temporary.");
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

  // How often the step has been recorded so far; 0 on devices without graphs.
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
