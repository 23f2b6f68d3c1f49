// Muon: momentum whose matrices are orthogonalized; each device processes complete matrices.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "optim/formulas/per_array.h"
#include "sharding/operations/operand.h"

namespace tessera::optim {

// The divisor of the matrix X before the first iteration. It bounds the singular values of X by 1.
//   frobenius: the Frobenius norm of X
//   spectral: the largest singular value of X
//   aol: for each row, the square root of the row sum of |X X^T|
//   schatten: the square root of the Frobenius norm of X X^T
enum class Preconditioning { frobenius, spectral, aol, schatten };

using NewtonSchulzCoefficients = std::array<double, 3>;

// Which dimensions of a parameter form a matrix, as optax.contrib.MuonDimensionNumbers. Negative ones count from the
// end. Several dimensions are merged in the given order: {{0}, {1, 2}} makes a matrix of a kernel (embed, heads,
// head_dim). All other dimensions are batch dimensions: {-2, -1} makes one matrix for each expert of a kernel (experts,
// in, out).
struct MuonDimensionNumbers {
  Dims reduction_axis = 0;  // the rows, fan_in
  Dims output_axis = 1;     // the columns, fan_out
};

// Returns the dimension numbers of a parameter; std::nullopt if Muon does not update it. An empty function selects the
// parameters with two dimensions.
using WeightDimensionNumbers =
    std::function<std::optional<MuonDimensionNumbers>(const std::string& path, const nn::Leaf& parameter)>;

// Selects matrices, and parameters with three dimensions as stacks of matrices, such as the kernels of MoeMlp. Do not
// use it for models whose convolutions have kernels with three dimensions.
inline std::optional<MuonDimensionNumbers> stacked_matrices(const std::string&, const nn::Leaf& parameter) {
  const int n = parameter.value->ndim();
  return n == 2 || n == 3 ? std::optional(MuonDimensionNumbers{-2, -1}) : std::nullopt;
}

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
  WeightDimensionNumbers weight_dimension_numbers = {};
};

// Returns Optax's preset "dion".
std::vector<NewtonSchulzCoefficients> dion_coefficients();

namespace detail {
// Returns the numbers of a parameter that Muon updates, or std::nullopt.
std::optional<MuonDimensionNumbers> numbers_of(const WeightDimensionNumbers& numbers, const nn::Leaf& parameter);
// Replaces the arrays of `updates` by the orthogonalized momentum.
void muon(const ScaleByMuonOptions& o, int64_t count, const nn::Leaves& updates, const nn::Leaves& mu,
          const nn::Leaves& params);
}  // namespace detail

// Orthogonalizes the momentum of matrices by Newton-Schulz iterations.
//   mu = beta mu + (1 - beta) g;  m = mu / (1 - beta^t)
//   with nesterov: m = beta mu / (1 - beta^(t+1)) + (1 - beta) g / (1 - beta^t)
//   X = m / (|m| + eps) (frobenius), transposed if it has more rows than columns; then ns_steps iterations with
//   (a, b, c) of ns_coeffs:
//     A = X X^T;  X = a X + (b A + c A A) X
// X is the update of each matrix; with adaptive, the update of a parameter is multiplied by sum(m X).
// Errors
//   shape_mismatch: a parameter without dimension numbers
//   invalid_argument: dimension numbers of dimensions that the parameter does not have, or given twice
//
// The iteration needs complete matrices. Matrices of one shape and sharding are distributed: each device receives some
// complete matrices (one all_to_all or slice, in the communication ledger) and computes them. Their blocks are then
// sent back. So n matrices on d devices take ceil(n / d) times as long as one matrix, with any sharding. If there are
// fewer matrices than devices, not all mesh axes are used.
// A parameter with batch dimensions is a stack of matrices. Its batch dimensions stay sharded: expert parallelism needs
// no communication. Mesh axes that shard rows or columns are moved to a batch dimension, and back afterwards: to the
// first batch dimension whose size is divisible by these axes and its own. If there is none, the matrices are gathered.
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

// Scales matrices with the dimensions fan_in and fan_out: g * sqrt(max(1, fan_out / fan_in)). With consistent_rms, the
// update is g * sqrt(max(fan_in, fan_out)) * consistent_rms. Errors: as scale_by_muon.
struct ScaleByShape {
  std::optional<double> consistent_rms = std::nullopt;
  WeightDimensionNumbers weight_dimension_numbers = {};

  static constexpr const char* name = "scale_by_shape";
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByShape> scale_by_shape(std::optional<double> consistent_rms = std::nullopt,
                                      WeightDimensionNumbers weight_dimension_numbers = {});

}  // namespace tessera::optim
