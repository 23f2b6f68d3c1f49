// Transforms that bound gradients: by element, by array, by the whole tree; and zero_nans.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "optim/formulas/per_array.h"
#include "optim/transform/device_scalar.h"
#include "optim/transform/update_step.h"
#include "sharding/operations/operand.h"

namespace tessera::optim {

namespace detail {
// The norm. On an accelerator nothing is read: the factor lies there too.
DeviceScalar clip_by_global_norm(const Arrays& updates, double max_norm);
}  // namespace detail

// Every element clamped to [-max_delta, max_delta].
struct Clip {
  double max_delta;

  static constexpr const char* name = "clip";
  Array operator()(const ArrayStep& step) const;
};
PerArray<Clip> clip(double max_delta);

// g / max(1, sqrt(mean(g^2)) / threshold), array by array.
struct ClipByBlockRms {
  double threshold;

  static constexpr const char* name = "clip_by_block_rms";
  Array operator()(const ArrayStep& step) const;
};
PerArray<ClipByBlockRms> clip_by_block_rms(double threshold);

struct ClipByGlobalNormState {
  detail::DeviceScalar norm;  // of the last gradients, before they were clipped

  // Walks over arrays alone do not read it; those over scalars do first.
  void settle() const { norm.value(); }
  template <class Visit>
  void visit_fields(Visit&& visit) {
    visit(std::string_view("norm"), norm.known());
  }
};

// n = global_norm(all g): g if n < max_norm, else g / n * max_norm (without PyTorch's n + 1e-6).
// Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks" (2012).
struct ClipByGlobalNorm : detail::InPlaceTransform<ClipByGlobalNorm, ClipByGlobalNormState> {
  double max_norm;

  template <class Model>
  void run(Model& updates, ClipByGlobalNormState& state, const Model&, const detail::UpdateStep& step) const {
    detail::DeviceScalar norm = detail::clip_by_global_norm(nn::bare_arrays(updates).arrays, max_norm);
    if (step.gate) norm = step.gate->select(norm, state.norm);
    step.report_norm(norm);
    step.commit([norm, &state] { state.norm = norm.now(); });
  }
};
// Error (invalid_argument) unless max_norm > 0.
ClipByGlobalNorm clip_by_global_norm(double max_norm);

// By unit: g * m / max(|g|, 1e-6) where |g| >= m = clipping * max(|p|, eps), else g. The norms |.| of a unit are taken
// along `dims`; by default along dim 0 of arrays of two or three dims, along all dims but the last of arrays
// of four or five, and over the whole of arrays with at most one dim larger than 1. Errors (invalid_argument): an array
// of more than five dims without `dims`, empty `dims`, a dim that an array does not have. Brock et al.,
// "High-performance large-scale image recognition without normalization" (2021).
struct AdaptiveGradClip {
  double clipping;
  double eps = 1e-3;
  std::optional<Dims> dims = std::nullopt;

  static constexpr const char* name = "adaptive_grad_clip";
  Array operator()(const ArrayStep& step) const;
};
PerArray<AdaptiveGradClip> adaptive_grad_clip(double clipping, double eps = 1e-3,
                                              std::optional<Dims> dims = std::nullopt);

// 0 for every NaN. The state says, under the path of each array, whether the last gradient had one.
struct ZeroNansState {
  std::map<std::string, Array> found_nan;
};

namespace detail {
void make_flags(const nn::Leaves& params, std::map<std::string, Array>& found);
void zero_nans(const nn::Leaves& updates, std::map<std::string, Array>& found);
}  // namespace detail

struct ZeroNans {  // g, with 0 for NaN
  template <class Model>
  ZeroNansState init(const Model& params) const {
    ZeroNansState state;
    detail::make_flags(nn::leaves(params), state.found_nan);
    return state;
  }
  template <class Model>
  std::pair<Model, ZeroNansState> update(Model grads, ZeroNansState state, const Model&) const {
    detail::zero_nans(nn::leaves(grads), state.found_nan);
    return {std::move(grads), std::move(state)};
  }
};
inline ZeroNans zero_nans() { return {}; }

}  // namespace tessera::optim
