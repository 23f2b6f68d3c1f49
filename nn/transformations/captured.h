// Captured: a step that an accelerator records once and repeats without the host.
#pragma once

#include <any>
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

// One call of a captured step, its types forgotten.
struct CapturedCall {
  std::vector<Array*> inputs;  // of copies of the arguments; the step sees what is put there
  std::string rest;            // all else that the arguments are made of, as text
  std::function<std::any()> step;
  std::function<std::vector<Array*>(std::any&)> arrays;  // of a result
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

  std::vector<std::unique_ptr<Recorded>> all_;  // the one used last stands first
  int64_t count_ = 0;
};

template <class Tree>
void add_to(CapturedCall& call, Tree& tree) {
  const BareArrays bare = bare_arrays(tree);
  call.inputs.insert(call.inputs.end(), bare.arrays.begin(), bare.arrays.end());
  for (const Part& part : parts_of(tree)) call.rest.append(part.path).append("=").append(part.text()).append(";");
}

}  // namespace detail

// A step whose host work is done once: on a GPU the second call with the same kinds of arguments is recorded as a CUDA
// graph, collectives included, and this and all later ones replay it.
//   nn::Captured step(nn::value_and_grad(loss_fn));
//   auto [loss, grads] = step(model, batch);
//   optimizer.update(model, grads);
// The arguments are trees; what of them stays where it is from call to call, as a model that an optimizer updates in
// place, is read there, other arrays are copied into those that were recorded. The results are copies, the caller's
// own. Arguments whose shapes, types, placements or static parts (numbers, keys, ...) differ are recorded anew; of
// several kinds the eight used last are kept. On devices without graphs (the CPU) the step runs as it is.
// What the step computes must follow from its arguments: captured arrays and numbers are those of the recording. A
// replay tells no ledger and no timeline, and a lost process is seen only where the next value is read. Arrays that an
// open value_and_grad records are not captured: such a call runs as it is.
// Errors, on every device (bad_argument): a value that the step reads, an Optimizer.update in it (it counts on the
// host). Those of the step; nothing is recorded then.
template <class F>
class Captured {
 public:
  explicit Captured(F step) : step_(std::move(step)) {}

  template <class... Args>
  auto operator()(const Args&... args) {
    using Result = std::decay_t<decltype(step_(args...))>;
    std::tuple<Args...> own(args...);
    detail::CapturedCall call;
    std::apply([&](auto&... tree) { (detail::add_to(call, tree), ...); }, own);
    call.step = [&] {
      return std::any(std::apply([&](const auto&... tree) -> Result { return step_(tree...); }, own));
    };
    call.arrays = [](std::any& result) { return bare_arrays(std::any_cast<Result&>(result)).arrays; };
    return std::any_cast<Result>(recordings_.run(call));
  }

  // How often the step has been recorded so far; 0 on devices without graphs.
  int64_t recordings() const { return recordings_.count(); }

 private:
  F step_;
  detail::Recordings recordings_;
};

}  // namespace tessera::nn
