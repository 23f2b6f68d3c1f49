// Muon: momentum whose matrices are orthogonalized; each device processes complete matrices.
#pragma once

#include <array>
#include <vector>

#include "optim/formulas/per_array.h"

namespace tessera::optim {

// The divisor of the matrix X before the first iteration, which bounds its singular values by 1. frobenius: the
// Frobenius norm. spectral: the largest singular value. aol: the roots of the row sums of |X X^T|. schatten: the root
// of the norm of X X^T.
enum class Preconditioning { frobenius, spectral, aol, schatten };

using NewtonSchulzCoefficients = std::array<double, 3>;

struct ScaleByMuonOptions {
  // One triple for all iterations, or one per iteration. If there are more than ns_steps, the last ns_steps are used.
  std::vector<NewtonSchulzCoefficients> ns_coeffs = {{3.4445, -4.7750, 2.0315}};
  int64_t ns_steps = 5;
  double beta = 0.95;
  double eps = 1e-8;
  std::optional<DType> mu_dtype = std::nullopt;
  bool nesterov = true;
  bool adaptive = false;
  Preconditioning preconditioning = Preconditioning::frobenius;
};

// Returns Optax's preset "dion".
std::vector<NewtonSchulzCoefficients> dion_coefficients();

namespace detail {
// Replaces the arrays of `updates` by the orthogonalized momentum.
void muon(const ScaleByMuonOptions& o, int64_t count, const nn::Leaves& updates, const nn::Leaves& mu,
          const nn::Leaves& params);
}  // namespace detail

// Orthogonalizes the momentum of matrices by Newton-Schulz iterations.
//   mu = beta mu + (1 - beta) g;  m = mu / (1 - beta^t)
//   with nesterov: m = beta mu / (1 - beta^(t+1)) + (1 - beta) g / (1 - beta^t)
//   X = m / (|m| + eps), transposed if it has more rows than columns; ns_steps times with (a, b, c) of ns_coeffs:
//     A = X X^T;  X = a X + (b A + c A A) X
// X is the update; with adaptive, it is multiplied by sum(m X). Error (shape_mismatch): an array that does not have two
// dimensions.
//
// The iteration needs complete matrices. Matrices of one shape and sharding are distributed: each device receives some
// complete matrices (one all_to_all or slice, in the communication ledger) and computes them. Their blocks are then
// sent back. So n matrices on d devices take ceil(n / d) times as long as one matrix, with any sharding. If there are
// fewer matrices than devices, not all mesh axes are used.
// Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024).
struct ScaleByMuon : detail::CopyingTransform<ScaleByMuon> {
  ScaleByMuonOptions options;

  template <class Model>
  MomentumState<Model> init(const Model& params) const {
    MomentumState<Model> state{0, params};
    detail::make_initial(nn::leaves(state), nn::bare_arrays(params).arrays.size(),
                         [this](size_t, const Array& p) { return zeros_for(p, options.mu_dtype); });
    return state;
  }
  void run(auto& updates, auto& state, const auto& params, const detail::UpdateStep&) const {
    state.count += 1;
    detail::muon(options, state.count, nn::leaves(updates), nn::leaves(state.mu), nn::leaves(params));
  }
};
// Returns the transform.
// Errors (invalid_argument)
//   beta outside [0, 1); eps negative; ns_steps below 1
//   no coefficients, or several but fewer than ns_steps
ScaleByMuon scale_by_muon(const ScaleByMuonOptions& options = {});

// Scales a matrix with the dimensions fan_in and fan_out: g * sqrt(max(1, fan_out / fan_in)). With consistent_rms, the
// update is g * sqrt(max(fan_in, fan_out)) * consistent_rms.
struct ScaleByShape {
  std::optional<double> consistent_rms = std::nullopt;

  static constexpr const char* name = "scale_by_shape";
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByShape> scale_by_shape(std::optional<double> consistent_rms = std::nullopt);

}  // namespace tessera::optim
