// Transforms that bound gradients by element, by array or by the norm of all arrays; zero_nans.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "optim/formulas/per_array.h"
#include "optim/transform/update_step.h"
#include "sharding/operations/operand.h"

namespace tessera::optim {

namespace detail {
// Clips the updates and returns their norm. On an accelerator, the factor is also computed and stored there, and the
// host reads nothing.
DeviceScalar clip_by_global_norm(const Arrays& updates, double max_norm);
}  // namespace detail

// Clamps every element to [-max_delta, max_delta].
struct Clip {
  double max_delta;

  static constexpr const char* name = "clip";
  Array operator()(const ArrayStep& step) const;
};
PerArray<Clip> clip(double max_delta);

// Clips each array by its root mean square: g / max(1, sqrt(mean(g^2)) / threshold).
struct ClipByBlockRms {
  double threshold;

  static constexpr const char* name = "clip_by_block_rms";
  Array operator()(const ArrayStep& step) const;
};
PerArray<ClipByBlockRms> clip_by_block_rms(double threshold);

struct ClipByGlobalNormState {
  detail::DeviceScalar norm;  // norm of the last gradients, before clipping

  // Reads the norm. Walks over scalars call this first; walks over arrays do not read the norm.
  void settle() const { norm.value(); }
  template <class Visit>
  void visit_fields(Visit&& visit) {
    visit(std::string_view("norm"), norm.known());
  }
};

// Scales all gradients to a global norm of at most max_norm. With n = global_norm(all g), the update is g if
// n < max_norm, else g / n * max_norm. (PyTorch divides by n + 1e-6.)
// Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks" (2012).
struct ClipByGlobalNorm : detail::InPlaceTransform<ClipByGlobalNorm, ClipByGlobalNormState> {
  double max_norm;

  void run(auto& updates, ClipByGlobalNormState& state, const auto&, const detail::UpdateStep& step) const {
    detail::DeviceScalar norm = detail::clip_by_global_norm(nn::bare_arrays(updates).arrays, max_norm);
    if (step.gate) norm = step.gate->select(norm, state.norm);
    step.report_norm(norm);
    step.commit([norm, &state] { state.norm = norm.now(); });
  }
};
// Returns the transform. Error (invalid_argument) unless max_norm > 0.
ClipByGlobalNorm clip_by_global_norm(double max_norm);

// Clips the gradient of each unit relative to the norm of its parameters: g * m / max(|g|, 1e-6) where |g| >= m =
// clipping * max(|p|, eps), else g. The norms |.| of a unit are taken along `dims`. Without `dims`, the norms are taken
//   along dimension 0 of arrays of two or three dimensions
//   along all dimensions except the last of arrays of four or five dimensions
//   over all elements of arrays with at most one dimension larger than 1
// Errors (invalid_argument)
//   an array of more than five dimensions without `dims`
//   empty `dims`
//   a dimension that an array does not have
// Brock et al., "High-performance large-scale image recognition without normalization" (2021).
struct AdaptiveGradClip {
  double clipping;
  double eps = 1e-3;
  std::optional<Dims> dims = std::nullopt;

  static constexpr const char* name = "adaptive_grad_clip";
  Array operator()(const ArrayStep& step) const;
};
PerArray<AdaptiveGradClip> adaptive_grad_clip(double clipping, double eps = 1e-3,
                                              std::optional<Dims> dims = std::nullopt);

// State of zero_nans: for the path of each array, whether the last gradient had a NaN.
struct ZeroNansState {
  std::map<std::string, Array> found_nan;
};

namespace detail {
void make_flags(const nn::Leaves& params, std::map<std::string, Array>& found);
void zero_nans(const nn::Leaves& updates, std::map<std::string, Array>& found);
}  // namespace detail

struct ZeroNans : detail::CopyingTransform<ZeroNans> {  // replaces each NaN by 0
  ZeroNansState init(const auto& params) const {
    ZeroNansState state;
    detail::make_flags(nn::leaves(params), state.found_nan);
    return state;
  }
  void run(auto& updates, ZeroNansState& state, const auto&, const detail::UpdateStep&) const {
    detail::zero_nans(nn::leaves(updates), state.found_nan);
  }
};
inline ZeroNans zero_nans() { return {}; }

}  // namespace tessera::optim
