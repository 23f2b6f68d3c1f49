// The ends of chains that one kernel computes in place: AdamW, Adam and SGD.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "optim/formulas/adaptive.h"
#include "optim/formulas/scaling.h"
#include "optim/transform/update_step.h"
#include "optim/wrappers/optional.h"

namespace tessera::optim::detail {

// References to a tuple's elements from `first` on.
template <size_t first, class Tuple>
auto references_from(Tuple& tuple) {
  return [&]<size_t... I>(std::index_sequence<I...>) { return std::tie(std::get<first + I>(tuple)...); }
  (std::make_index_sequence<std::tuple_size_v<std::remove_const_t<Tuple>> - first>());
}

// The last parts of a chain, with their states.
struct FusedRate {
  const ScaleByLearningRate& part;
  ScaleByScheduleState& state;
};
struct FusedDecay {
  const AddDecayedWeights& part;
  ScaleByScheduleState& state;
  std::shared_ptr<const MaskVectors> masks;  // one, of the parameters that decay
};
struct Moments {
  int64_t& count;
  Arrays mu, nu;
};
template <class Model>
Moments moments_of(AdamState<Model>& state) {
  return {state.count, nn::bare_arrays(state.mu).arrays, nn::bare_arrays(state.nu).arrays};
}

// Add a call of the kernel to step.in_place(), and make the updates absent. False, with nothing added, if the kernel
// cannot compute this update: it lacks a setting, or moments have another sharding than their parameters.
bool fuse_adam(const UpdateStep& step, const Arrays& updates, const ScaleByAdam& adam, Moments moments,
               const std::optional<FusedDecay>& decay, const FusedRate& rate);
bool fuse_sgd(const UpdateStep& step, const Arrays& updates, const std::optional<PerArray<Trace>>& momentum,
              bool has_trace, Arrays trace, const FusedRate& rate);

// For the parts at the end of a chain and their states, if there is a kernel for them.
template <class Model>
bool fuse(const UpdateStep& step, Model& updates, const Model& params,
          const std::tuple<const PerArray<ScaleByAdam>&, const AddDecayedWeights&, const ScaleByLearningRate&>& parts,
          const std::tuple<AdamState<Model>&, ScaleByScheduleState&, ScaleByScheduleState&>& states) {
  const auto& [adam, decay, rate] = parts;
  const auto& [moments, decay_state, rate_state] = states;
  const auto masks =
      step.masks(&decay.mask, [&, &mask = decay.mask] { return MaskVectors{mask_vector(mask, nn::leaves(params))}; });
  return fuse_adam(step, nn::bare_arrays(updates).arrays, adam, moments_of(moments),
                   FusedDecay{decay, decay_state, masks}, {rate, rate_state});
}
template <class Model>
bool fuse(const UpdateStep& step, Model& updates, const Model&,
          const std::tuple<const PerArray<ScaleByAdam>&, const ScaleByLearningRate&>& parts,
          const std::tuple<AdamState<Model>&, ScaleByScheduleState&>& states) {
  return fuse_adam(step, nn::bare_arrays(updates).arrays, std::get<0>(parts), moments_of(std::get<0>(states)), {},
                   {std::get<1>(parts), std::get<1>(states)});
}
template <class Model>
bool fuse(const UpdateStep& step, Model& updates, const Model&,
          const std::tuple<const Optional<PerArray<Trace>>&, const ScaleByLearningRate&>& parts,
          const std::tuple<std::optional<Trace::State<Model>>&, ScaleByScheduleState&>& states) {
  auto& trace = std::get<0>(states);
  return fuse_sgd(step, nn::bare_arrays(updates).arrays, std::get<0>(parts).inner, trace.has_value(),
                  trace ? nn::bare_arrays(trace->trace).arrays : Arrays(), {std::get<1>(parts), std::get<1>(states)});
}

}  // namespace tessera::optim::detail
