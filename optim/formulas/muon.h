// Muon: momentum whose matrices are orthogonalized, different whole matrices on different devices.
#pragma once

#include <array>
#include <vector>

#include "optim/formulas/per_array.h"

namespace tessera::optim {

// What the matrix X is divided by before the first iteration, so that its singular values are at most 1: its Frobenius
// norm; its largest singular value; the roots of the row sums of |X X^T|; the root of the norm of X X^T.
enum class Preconditioning { frobenius, spectral, aol, schatten };

using NewtonSchulzCoefficients = std::array<double, 3>;

struct ScaleByMuonOptions {
  // One triple for all iterations, or one per iteration; of more than ns_steps triples, the last ns_steps.
  std::vector<NewtonSchulzCoefficients> ns_coeffs = {{3.4445, -4.7750, 2.0315}};
  int64_t ns_steps = 5;
  double beta = 0.95;
  double eps = 1e-8;
  std::optional<DType> mu_dtype = std::nullopt;
  bool nesterov = true;
  bool adaptive = false;
  Preconditioning preconditioning = Preconditioning::frobenius;
};

// Optax's preset "dion".
std::vector<NewtonSchulzCoefficients> dion_coefficients();

namespace detail {
// Replaces the arrays of `updates` by the orthogonalized momentum.
void muon(const ScaleByMuonOptions& o, int64_t count, const nn::Leaves& updates, const nn::Leaves& mu,
          const nn::Leaves& params);
}  // namespace detail

// mu = beta mu + (1 - beta) g;  m = mu / (1 - beta^t), or with nesterov beta mu / (1 - beta^(t+1)) + (1 - beta) g /
// (1 - beta^t)
// X = m / (|m| + eps), transposed where it has more rows than columns; ns_steps times with (a, b, c) of ns_coeffs:
//   A = X X^T;  X = a X + (b A + c A A) X
// X is the update; with adaptive, it is multiplied by sum(m X). Error (shape_mismatch): an array that has not two dims.
//
// The iteration needs whole matrices. Matrices of one shape and placement are distributed: each device receives some
// whole ones (one all_to_all or slice, in the ledger), computes them, and their blocks are sent back. So n matrices on
// d devices take ceil(n / d) times as long as one, however they are sharded; if there are fewer matrices than devices,
// not all mesh axes are used. Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024).
struct ScaleByMuon {
  ScaleByMuonOptions options;

  template <class Model>
  MomentumState<Model> init(const Model& params) const {
    MomentumState<Model> state{0, params};
    detail::make_initial(nn::leaves(state), nn::bare_arrays(params).arrays.size(),
                         [this](size_t, const Array& p) { return zeros_for(p, options.mu_dtype); });
    return state;
  }
  template <class Model>
  std::pair<Model, MomentumState<Model>> update(Model grads, MomentumState<Model> state, const Model& params,
                                                std::source_location where = std::source_location::current()) const {
    const CallerScope caller(where);
    state.count += 1;
    detail::muon(options, state.count, nn::leaves(grads), nn::leaves(state.mu), nn::leaves(params));
    return {std::move(grads), std::move(state)};
  }
};
// Errors (invalid_argument): beta outside [0, 1), eps negative, ns_steps below 1, no coefficients, or several but fewer
// than ns_steps.
ScaleByMuon scale_by_muon(const ScaleByMuonOptions& options = {});

// By the matrix's dims, fan_in and fan_out: g * sqrt(max(1, fan_out / fan_in)), or if consistent_rms is given,
// g * sqrt(max(fan_in, fan_out)) * consistent_rms.
struct ScaleByShape {
  std::optional<double> consistent_rms = std::nullopt;

  static constexpr const char* name = "scale_by_shape";
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByShape> scale_by_shape(std::optional<double> consistent_rms = std::nullopt);

}  // namespace tessera::optim
