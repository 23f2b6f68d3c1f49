// Newton-Schulz iterations on complete matrices, and their distribution over devices.
#include "optim/formulas/muon.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linalg_matrix_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <cmath>

#include "optim/schedules/check_options.h"
#include "optim/transform/internal.h"
#include "sharding/array/padding.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/joining.h"
#include "sharding/redistribution/convert.h"

namespace tessera::optim {

namespace detail {

using namespace tessera::detail;

namespace {

// The dimensions of an array of matrices, counted from the front.
struct MatrixDims {
  std::vector<int> batch, rows, columns;
  bool operator==(const MatrixDims&) const = default;
};

MatrixDims matrix_dims(const char* verb, const nn::Leaf& parameter, const WeightDimensionNumbers& numbers) {
  const std::string type = parameter.value->type_string();
  const auto given = numbers_of(numbers, parameter);
  if (!given)
    fail(ErrorKind::shape_mismatch, verb,
         "{}: {} given, expected two dims, or weight_dimension_numbers for it. Give other parameters to another "
         "optimizer, with partition.",
         parameter.path, type);
  const int n = parameter.value->ndim();
  std::vector<bool> used(static_cast<size_t>(n));
  const auto take = [&](std::vector<int> dims) {
    for (int& dim : dims) {
      const int d = dim < 0 ? dim + n : dim;
      if (d < 0 || d >= n || used[d])
        fail(ErrorKind::invalid_argument, verb,
             "{}: dimension {} in its dimension numbers, expected each of {} to {} of {} at most once.", parameter.path,
             dim, -n, n - 1, type);
      used[d] = true, dim = d;
    }
    return dims;
  };
  MatrixDims result{.batch = {}, .rows = take(given->reduction_axis), .columns = take(given->output_axis)};
  for (int d = 0; d < n; ++d)
    if (!used[d]) result.batch.push_back(d);
  return result;
}

int64_t product(const Shape& shape, const std::vector<int>& dims) {
  int64_t result = 1;
  for (const int d : dims) result *= shape[static_cast<size_t>(d)];
  return result;
}

// The functions below take matrices in the last two dimensions of a tensor.

at::Tensor frobenius_norm(const at::Tensor& x) { return at::linalg_vector_norm(x, 2, {-2, -1}, true); }

at::Tensor iterate(const at::Tensor& x, const at::Tensor& a, const NewtonSchulzCoefficients& c) {
  return c[0] * x + at::matmul(c[1] * a + c[2] * at::matmul(a, a), x);
}

// Runs the first iteration of preconditionings that divide by a number computed from X X^T.
at::Tensor first_iteration(const at::Tensor& x, Preconditioning by, const NewtonSchulzCoefficients& c) {
  const at::Tensor a = at::matmul(x, x.mT());
  if (by == Preconditioning::aol) {
    const at::Tensor s = a.abs().sum(-1, true).clamp_min(1e-8).rsqrt();
    return iterate(x * s, a * s * s.mT(), c);
  }
  const at::Tensor s = frobenius_norm(a).clamp_min(1e-8).rsqrt();
  return iterate(x * s, a * s * s, c);
}

// Returns the largest singular value; NaN for a matrix that is not finite, for which LAPACK would fail.
at::Tensor spectral_norm(const at::Tensor& x) {
  if (x.numel() == 0) return at::zeros({}, x.options());
  return at::linalg_matrix_norm(at::nan_to_num(x, 0, 0, 0), at::Scalar(2), {-2, -1}, true) +
         (0 * x).sum({-2, -1}, true);
}

at::Tensor orthogonal(const ScaleByMuonOptions& o, const at::Tensor& matrices) {
  const bool tall = matrices.size(-2) > matrices.size(-1);
  at::Tensor x = tall ? matrices.mT() : matrices;
  if (o.preconditioning == Preconditioning::frobenius) x = x / (frobenius_norm(x) + o.eps);
  if (o.preconditioning == Preconditioning::spectral) x = x / (spectral_norm(x) + o.eps);
  const bool later = o.preconditioning == Preconditioning::aol || o.preconditioning == Preconditioning::schatten;
  const size_t n = o.ns_coeffs.size(), steps = static_cast<size_t>(o.ns_steps);
  for (size_t i = 0; i < steps; ++i) {
    const NewtonSchulzCoefficients& c = o.ns_coeffs[n == 1 ? 0 : n - steps + i];
    x = later && i == 0 ? first_iteration(x, o.preconditioning, c) : iterate(x, at::matmul(x, x.mT()), c);
  }
  return tall ? x.mT() : x;
}

// Moves the dimensions of a tensor to batch, rows, columns, merges rows and columns, and moves them back.
at::Tensor orthogonal(const ScaleByMuonOptions& o, const at::Tensor& array, const MatrixDims& dims) {
  Shape order(dims.batch.begin(), dims.batch.end()), inverse(static_cast<size_t>(array.dim()));
  order.insert(order.end(), dims.rows.begin(), dims.rows.end());
  order.insert(order.end(), dims.columns.begin(), dims.columns.end());
  for (size_t i = 0; i < order.size(); ++i) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  const at::Tensor moved = array.permute(order);
  const Shape shape = array.sizes().vec();
  Shape merged(moved.sizes().begin(), moved.sizes().begin() + static_cast<int64_t>(dims.batch.size()));
  merged.insert(merged.end(), {product(shape, dims.rows), product(shape, dims.columns)});
  return orthogonal(o, moved.reshape(merged)).reshape(moved.sizes()).permute(inverse);
}

// Returns the first axes that together have as many devices as there are matrices, or all axes.
DimAxes axes_for(const MeshImpl* mesh, int64_t matrices) {
  DimAxes axes;
  int64_t devices = 1;
  for (int axis = 0; axis < static_cast<int>(mesh->axes.size()) && devices < matrices; ++axis) {
    if (mesh->axes[axis].size == 1) continue;
    axes.push_back(axis);
    devices *= mesh->axes[axis].size;
  }
  return axes;
}

Provenance cause_of(const char* words) {
  return {.operation = "scale_by_muon", .where = {}, .reason = tessera::detail::as_text(words), .path = {}};
}

// Computes every device's own part of a stack whose first dimension is sharded.
ArrayPtr orthogonal_parts(const ScaleByMuonOptions& o, const ArrayImpl& stack, const MatrixDims& dims,
                          int64_t matrices) {
  const Type* type = stack.type;
  const int64_t each = type->local[0];
  Tensors local;
  for (int s = 0; s < static_cast<int>(stack.local.size()); ++s) {
    Coordinates coordinates(type->mesh);
    unravel(type->mesh, stack.slots, s, coordinates);
    const int64_t first = type->mesh->abstract ? 0 : each * block_number(type->mesh, type->dims[0], coordinates);
    std::vector<at::Tensor> done;
    for (int64_t k = 0; k < each; ++k) {
      const at::Tensor x = stack.local[s].select(0, k);
      done.push_back(first + k < matrices ? orthogonal(o, x, dims) : at::zeros_like(x));
    }
    local.push_back(at::stack(done));
  }
  return make_array(type, stack.slots, std::move(local));
}

// Parameters of one type and the same dimension numbers.
struct MatrixGroup {
  const Type* home;
  MatrixDims dims;
  std::vector<Array*> arrays;
};

// Distributes matrices of one type over the devices, orthogonalizes them, and returns their blocks to the original
// devices.
void distribute(const ScaleByMuonOptions& o, const MatrixGroup& group) {
  const Type* home = group.home;
  const std::vector<Array*>& matrices = group.arrays;
  const auto n = static_cast<int64_t>(matrices.size());
  const DimAxes axes = axes_for(home->mesh, n);
  const int64_t devices = home->mesh->count(axes.axis_set());
  std::vector<Array> all;
  for (Array* m : matrices) all.push_back(*m);
  while (static_cast<int64_t>(all.size()) % devices) all.push_back(zeros_for(*matrices[0]));
  const Array stacked = stack(all);
  TypeKey key{.dtype = home->dtype, .shape = stacked.shape(), .mesh = home->mesh, .dims = {axes}};
  key.dims.resize(key.shape.size());
  const ArrayPtr distributed =
      convert(*stacked.impl(), stacked.impl(), intern(key), cause_of("full matrices, distributed over the devices"));
  const ArrayPtr done = orthogonal_parts(o, *distributed, group.dims, n);
  key.dims = home->dims;
  key.dims.insert(key.dims.begin(), DimAxes());
  key.padded = any_dim;
  const ArrayPtr back = convert(*done, done, intern(key), cause_of("blocks, resharded like their parameters"));
  for (int64_t i = 0; i < n; ++i) {
    Tensors local;
    for (const at::Tensor& t : back->local) local.push_back(t.select(0, i));
    *matrices[static_cast<size_t>(i)] = Array(make_array(home, back->slots, std::move(local)));
  }
}

// Returns the type of a stack whose matrices are complete: the mesh axes of rows and columns move to the first batch
// dimension that they divide.
const Type* with_complete_matrices(const Type* home, const MatrixDims& dims) {
  TypeKey key{.dtype = home->dtype, .shape = home->shape, .mesh = home->mesh, .dims = home->dims, .padded = any_dim};
  DimAxes moved;
  for (const auto& of_matrix : {dims.rows, dims.columns})
    for (const int d : of_matrix)
      for (const int axis : std::exchange(key.dims[d], {})) moved.push_back(axis);
  const auto divided = std::find_if(dims.batch.begin(), dims.batch.end(), [&](int d) {
    return key.shape[d] % home->mesh->count(key.dims[d].axis_set() | moved.axis_set()) == 0;
  });
  if (divided != dims.batch.end())
    for (const int axis : moved) key.dims[*divided].push_back(axis);
  return intern(std::move(key));
}

// Orthogonalizes the matrices of a stack, each on the devices that have its batch index.
void orthogonalize_stack(const ScaleByMuonOptions& o, Array& stack, const MatrixDims& dims) {
  const Type *home = stack.impl()->type, *complete = with_complete_matrices(home, dims);
  const ArrayPtr distributed =
      convert(*stack.impl(), stack.impl(), complete, cause_of("full matrices, distributed over the devices"));
  Tensors local;
  for (const at::Tensor& t : distributed->local) local.push_back(orthogonal(o, t, dims).contiguous());
  clear_padding(complete, distributed->slots, local);
  const ArrayPtr done = make_array(complete, distributed->slots, std::move(local));
  stack = Array(convert(*done, done, home, cause_of("blocks, resharded like their parameters")));
}

void orthogonalize(const ScaleByMuonOptions& o, const MatrixGroup& group) {
  if (group.home->mesh && group.dims.batch.empty()) return distribute(o, group);
  for (Array* x : group.arrays)
    if (group.home->mesh)
      orthogonalize_stack(o, *x, group.dims);
    else
      *x = from_tensor(orthogonal(o, materialized(*x, "scale_by_muon").local[0], group.dims));
}

std::vector<MatrixGroup> groups_of(const std::vector<Array*>& arrays, const std::vector<MatrixDims>& dims) {
  std::vector<MatrixGroup> groups;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Type* home = arrays[i]->impl()->type;
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const MatrixGroup& g) { return g.home == home && g.dims == dims[i]; });
    if (group == groups.end()) group = groups.insert(group, {home, dims[i], {}});
    group->arrays.push_back(arrays[i]);
  }
  return groups;
}

}  // namespace

std::optional<MuonDimensionNumbers> numbers_of(const WeightDimensionNumbers& numbers, const nn::Leaf& parameter) {
  if (numbers) return numbers(parameter.path, parameter);
  return parameter.value->ndim() == 2 ? std::optional(MuonDimensionNumbers()) : std::nullopt;
}

void muon(const ScaleByMuonOptions& o, int64_t count, const nn::Leaves& updates, const nn::Leaves& mu,
          const nn::Leaves& params) {
  at::AutoGradMode off(false);
  check_same_tree("scale_by_muon", "the gradient", updates, params);
  std::vector<Array*> arrays;
  std::vector<MatrixDims> dims;
  for (size_t i = 0; i < updates.size(); ++i) {
    if (updates[i].value->is_absent()) continue;
    dims.push_back(matrix_dims("scale_by_muon", params[i], o.weight_dimension_numbers));
    arrays.push_back(updates[i].value);
  }
  per_array("scale_by_muon", updates, mu, 1, params, count, [&](const ArrayStep& step) {
    Array& m = step.state[0];
    // Updates have the sharding of the moments, so that matrices of one type are distributed together.
    const Array home = o.mu_dtype ? zeros_for(step.p()) : m;
    m = moment(m, step.gradient, o.beta);
    return kept(first_moment(m, step.gradient, o.beta, step.count, o.nesterov), home, "scale_by_muon");
  });
  std::vector<Array> before;
  for (Array* m : arrays) before.push_back(*m);
  for (const MatrixGroup& group : groups_of(arrays, dims)) orthogonalize(o, group);
  for (size_t i = 0; o.adaptive && i < arrays.size(); ++i) {
    const Array& x = *arrays[i];
    *arrays[i] = sum(before[i] * x) * x;
  }
}

}  // namespace detail

std::vector<NewtonSchulzCoefficients> dion_coefficients() {
  return {{4.0848, -6.8946, 2.9270},
          {3.9505, -6.3029, 2.6377},
          {3.7418, -5.5913, 2.3037},
          {2.8769, -3.1427, 1.2046},
          {2.8366, -3.0525, 1.2012}};
}

ScaleByMuon scale_by_muon(const ScaleByMuonOptions& o) {
  constexpr const char* verb = "scale_by_muon";
  detail::check_options(verb, {{"beta", o.beta}}, {{"eps", o.eps}});
  detail::check_positive(verb, "ns_steps", static_cast<double>(o.ns_steps));
  const auto n = static_cast<int64_t>(o.ns_coeffs.size());
  if (n == 0 || (n > 1 && n < o.ns_steps))
    fail(ErrorKind::invalid_argument, detail::SettingNames::verb_for(verb),
         "ns_coeffs: {} triples given, expected one, or at least ns_steps = {}.", n, o.ns_steps);
  return {{}, o};
}

Array ScaleByShape::operator()(const ArrayStep& step) const {
  const detail::MatrixDims dims = detail::matrix_dims(name, step.parameter, weight_dimension_numbers);
  const auto fan_in = static_cast<double>(detail::product(step.p().shape(), dims.rows));
  const auto fan_out = static_cast<double>(detail::product(step.p().shape(), dims.columns));
  const double factor = consistent_rms ? std::sqrt(std::max(fan_in, fan_out)) * *consistent_rms
                                       : std::sqrt(std::max(1.0, fan_out / fan_in));
  return factor * step.gradient;
}

PerArray<ScaleByShape> scale_by_shape(std::optional<double> consistent_rms,
                                      WeightDimensionNumbers weight_dimension_numbers) {
  detail::check_finite("scale_by_shape", "consistent_rms", consistent_rms.value_or(0));
  return {ScaleByShape{consistent_rms, std::move(weight_dimension_numbers)}};
}

}  // namespace tessera::optim
