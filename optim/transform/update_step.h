// UpdateStep: the state of one update while it passes through a transform. PendingUpdate: its deferred writes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "optim/transform/finite_gate.h"
#include "optim/transform/transform.h"
#include "sharding/base/caller.h"
#include "sharding/base/error.h"

namespace tessera::detail {
class ScopedIntraOpThreads;
}

namespace tessera::optim::detail {

// True if a transform can be part of an update that a FiniteGate decides on.
template <class Transform>
inline constexpr bool can_be_gated = requires {
  requires Transform::can_be_gated;
};

// MaskVector: for each parameter, whether a mask selects it. MaskVectors: one for each of several parts.
using MaskVector = std::vector<bool>;
using MaskVectors = std::vector<MaskVector>;
MaskVector mask_vector(const Mask& mask, const nn::Leaves& params);

// Caches results of masks and labels by the address of the mask, which is called only at the first update. A copy
// starts empty, because its transform has other addresses.
struct MaskCache {
  MaskCache() = default;
  MaskCache(const MaskCache&) {}
  MaskCache& operator=(const MaskCache&) {
    all.clear();
    return *this;
  }

  std::map<const void*, std::shared_ptr<const MaskVectors>> all;
};

// Numbers that parts of a transform report, by the labels of these parts. The first number of a label counts.
using LabeledScalars = std::vector<std::pair<std::string, DeviceScalar>>;

// Returns the number of this label. For an empty label, returns the number that all parts have, or std::nullopt without
// parts. Error (invalid_argument): an empty label although the numbers differ; a label without a number.
std::optional<double> value_of_label(const char* verb, const LabeledScalars& numbers, const std::string& label);

struct Metrics {
  LabeledScalars learning_rates, norms;
  void take(const Metrics& newer);
};

// A number of an update; `at` computes it again before each replay of a graphed step.
struct ScalarSource {
  double now;
  std::function<double(int64_t back)> at;  // its value `back` updates earlier; empty: constant
};

// Throws Error (invalid_argument) if a graphed step updates a model or an optimizer that it may not change.
void check_captured(const void* model, const void* optimizer);
// Calls f now; while a graph is recorded, after each replay instead.
void at_each_update(std::function<void()> f);

// Collects all writes of an in-place update. Nothing is written before carry_out(), so that an error leaves model and
// state unchanged. The functions are not inline, because every program that trains would compile them.
struct PendingUpdate {
  PendingUpdate(Arrays params, MaskCache& mask_cache);
  PendingUpdate(const PendingUpdate&) = delete;
  ~PendingUpdate();

  // Returns a copy of the state, which replaces it later.
  template <class State>
  State& changed(State& state) {
    auto next = std::make_shared<State>(state);
    writes.push_back([&state, next] { state = std::move(*next); });
    return *next;
  }
  // Adds the updates to the parameters. An absent update changes nothing.
  void add(const nn::Leaves& parameters, const nn::Leaves& updates);
  void carry_out();

  Arrays params;  // parameters of the model
  MaskCache& mask_cache;
  std::shared_ptr<Metrics> metrics;
  std::vector<std::function<void()>> preparations;  // run before the writes, because they may fail
  std::vector<std::function<void()>> writes;
  std::vector<std::function<void()>> commits;  // run after the writes, and after each replay of a graphed step

 private:
  std::unique_ptr<tessera::detail::ScopedIntraOpThreads> alone_;  // if parameters are stored in several local shards
};

// Passes one update through a transform. Most of the library's transforms implement their arithmetic once, in
//   void run(auto& updates, auto& state, const auto& params, const UpdateStep& step) const
// `run` replaces `updates`, which are the gradients at first. To run an inner transform, `run` calls
// step(part, updates, state, params). There are two base classes; both derive the pure `update` from `run`:
//   InPlaceTransform: the base of all transforms that contain others. `run` passes changes of the state to `commit`.
//   CopyingTransform: `run` writes to the state directly. In an Optimizer, this state is a copy.
struct UpdateStep {
  const ExtraArgs& extra;
  PendingUpdate* pending = nullptr;  // nullptr in a pure update, which writes at once
  bool is_last = true;               // whether no later part changes the updates of this part
  bool caches_masks = true;
  FiniteGate* gate = nullptr;  // decides on an accelerator whether the update is applied
  std::string label = {};

  template <class T, class Model, class State>
  void operator()(const T& part, Model& updates, State& state, const Model& params) const;

  // Return the step of a part that is followed by others, and of a part with a label (joined by dots).
  UpdateStep before() const;
  UpdateStep labeled(const std::string& name) const;

  // Returns the pending writes if this part may add its updates to the parameters and make the updates absent;
  // otherwise nullptr.
  PendingUpdate* in_place() const { return is_last ? pending : nullptr; }
  // Calls f after all parts of the update have been computed, and after each replay of a graphed step. A part whose f
  // cannot be repeated calls requires_host() first.
  void commit(std::function<void()> f) const;
  // Adds 1 to a count of updates.
  void count(int64_t& counted) const;
  // Makes counts exact before their use, by reading from the accelerator which updates were rejected.
  void read_counts() const;
  // Throws Error (invalid_argument) in a graphed step, because this part counts or decides on the host.
  void requires_host() const;
  // Returns make(), or the cached result of `key`, the address of a mask or of labels.
  std::shared_ptr<const MaskVectors> masks(const void* key, const std::function<MaskVectors()>& make) const;
  // Sets updates to zero; in an in-place update, makes them absent.
  void set_to_zero(const Arrays& updates) const;

  void report_learning_rate(const std::function<double()>& rate) const;
  void report_learning_rate(const DeviceScalar& rate) const;  // replaces the rate reported before
  void report_norm(const DeviceScalar& norm) const;
};

// Calls transform.update, with `extra` if it accepts it.
template <class T, class Model, class State>
std::pair<Model, State> updated(const T& transform, Model updates, State state, const Model& params,
                                const ExtraArgs& extra) {
  if constexpr (requires { transform.update(std::move(updates), std::move(state), params, extra); })
    return transform.update(std::move(updates), std::move(state), params, extra);
  else
    return transform.update(std::move(updates), std::move(state), params);
}

template <class T, class Model, class State>
void UpdateStep::operator()(const T& part, Model& updates, State& state, const Model& params) const {
  if constexpr (
      requires { part.run(updates, state, params, *this); } && !requires { T::changes_copies; }) {
    part.run(updates, state, params, *this);
  } else {
    constexpr bool counts = requires { state.count; };
    if (counts && pending) requires_host(), read_counts();
    State& next = pending ? pending->changed(state) : state;
    std::tie(updates, next) = updated(part, std::move(updates), std::move(next), params, extra);
    if (gate) gate->select(nn::bare_arrays(next).arrays, nn::bare_arrays(state).arrays);
  }
}

// Provides the pure `update` to a transform that has `run`, and `init` if the state is OneState for every model.
template <class Self, class OneState = void>
struct InPlaceTransform {
  static constexpr bool can_be_gated = !std::is_void_v<OneState>;

  OneState init(const auto&) const { return OneState(); }
  template <class Model, class State = OneState>
  std::pair<Model, State> update(Model grads, State state, const Model& params, const ExtraArgs& extra = {},
                                 std::source_location where = std::source_location::current()) const {
    const CallerScope caller(where);
    static_cast<const Self&>(*this).run(grads, state, params, UpdateStep{extra});
    return {std::move(grads), std::move(state)};
  }
  // Diagnoses a common mistake: calling a transform like an Optimizer.
  template <class Model>
  auto update(Model&, const Model&) const {
    static_assert(tessera::detail::dependent_false<Model>,
                  "tessera: a transform's update takes (grads, state, params) and returns {updates, state}. To update "
                  "a model, make an optim::Optimizer(model, transform) and call update(model, grads).");
  }
};

// Base of a transform whose `run` writes to its state directly. An Optimizer passes it a copy, which replaces the state
// after the complete update has been computed.
template <class Self, class OneState = void>
struct CopyingTransform : InPlaceTransform<Self, OneState> {
  static constexpr bool can_be_gated = false, changes_copies = true;
};

}  // namespace tessera::optim::detail
