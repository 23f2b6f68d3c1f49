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
#include <map>

#include "optim/schedules/check_options.h"
#include "optim/transform/internal.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/joining.h"
#include "sharding/redistribution/convert.h"

namespace tessera::optim {

namespace detail {

using namespace tessera::detail;

namespace {

at::Tensor iterate(const at::Tensor& x, const at::Tensor& a, const NewtonSchulzCoefficients& c) {
  return c[0] * x + at::matmul(c[1] * a + c[2] * at::matmul(a, a), x);
}

// Runs the first iteration of preconditionings that divide by a number computed from X X^T.
at::Tensor first_iteration(const at::Tensor& x, Preconditioning by, const NewtonSchulzCoefficients& c) {
  const at::Tensor a = at::matmul(x, x.t());
  if (by == Preconditioning::aol) {
    const at::Tensor s = a.abs().sum(-1).clamp_min(1e-8).rsqrt().unsqueeze(-1);
    return iterate(x * s, a * s * s.t(), c);
  }
  const at::Tensor s = at::linalg_vector_norm(a).clamp_min(1e-8).rsqrt();
  return iterate(x * s, a * s * s, c);
}

// Returns the largest singular value; NaN for a matrix that is not finite, for which LAPACK would fail.
at::Tensor spectral_norm(const at::Tensor& x) {
  if (x.numel() == 0) return at::zeros({}, x.options());
  return at::linalg_matrix_norm(at::nan_to_num(x, 0, 0, 0), at::Scalar(2)) + (0 * x).sum();
}

at::Tensor orthogonal(const ScaleByMuonOptions& o, const at::Tensor& matrix) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = tall ? matrix.t() : matrix;
  if (o.preconditioning == Preconditioning::frobenius) x = x / (at::linalg_vector_norm(x) + o.eps);
  if (o.preconditioning == Preconditioning::spectral) x = x / (spectral_norm(x) + o.eps);
  const bool later = o.preconditioning == Preconditioning::aol || o.preconditioning == Preconditioning::schatten;
  const size_t n = o.ns_coeffs.size(), steps = static_cast<size_t>(o.ns_steps);
  for (size_t i = 0; i < steps; ++i) {
    const NewtonSchulzCoefficients& c = o.ns_coeffs[n == 1 ? 0 : n - steps + i];
    x = later && i == 0 ? first_iteration(x, o.preconditioning, c) : iterate(x, at::matmul(x, x.t()), c);
  }
  return tall ? x.t() : x;
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
ArrayPtr orthogonal_parts(const ScaleByMuonOptions& o, const ArrayImpl& stack, int64_t matrices) {
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
      done.push_back(first + k < matrices ? orthogonal(o, x) : at::zeros_like(x));
    }
    local.push_back(at::stack(done));
  }
  return make_array(type, stack.slots, std::move(local));
}

// Distributes matrices of one type over the devices, orthogonalizes them, and returns their blocks to the original
// devices.
void distribute(const ScaleByMuonOptions& o, const std::vector<Array*>& matrices) {
  const Type* home = matrices[0]->impl()->type;
  if (!home->mesh) {
    for (Array* m : matrices) *m = from_tensor(orthogonal(o, materialized(*m, "scale_by_muon").local[0]));
    return;
  }
  const auto n = static_cast<int64_t>(matrices.size());
  const DimAxes axes = axes_for(home->mesh, n);
  const int64_t devices = home->mesh->count(axes.axis_set());
  std::vector<Array> all;
  for (Array* m : matrices) all.push_back(*m);
  while (static_cast<int64_t>(all.size()) % devices) all.push_back(zeros_for(*matrices[0]));
  const Array stacked = stack(all);
  TypeKey key{.dtype = home->dtype, .shape = stacked.shape(), .mesh = home->mesh, .dims = {axes, {}, {}}};
  const ArrayPtr distributed =
      convert(*stacked.impl(), stacked.impl(), intern(key), cause_of("full matrices, distributed over the devices"));
  const ArrayPtr done = orthogonal_parts(o, *distributed, n);
  key.dims = {{}, home->dims[0], home->dims[1]};
  key.padded = any_dim;
  const ArrayPtr back = convert(*done, done, intern(key), cause_of("blocks, resharded like their parameters"));
  for (int64_t i = 0; i < n; ++i) {
    Tensors local;
    for (const at::Tensor& t : back->local) local.push_back(t.select(0, i));
    *matrices[static_cast<size_t>(i)] = Array(make_array(home, back->slots, std::move(local)));
  }
}

std::map<const Type*, std::vector<Array*>> by_type(const std::vector<Array*>& matrices) {
  std::map<const Type*, std::vector<Array*>> groups;
  for (Array* m : matrices) groups[m->impl()->type].push_back(m);
  return groups;
}

}  // namespace

void muon(const ScaleByMuonOptions& o, int64_t count, const nn::Leaves& updates, const nn::Leaves& mu,
          const nn::Leaves& params) {
  at::AutoGradMode off(false);
  check_same_tree("scale_by_muon", "the gradient", updates, params);
  std::vector<Array*> matrices;
  for (size_t i = 0; i < updates.size(); ++i) {
    if (updates[i].value->is_absent()) continue;
    if (params[i].value->ndim() != 2)
      fail(ErrorKind::shape_mismatch, "scale_by_muon",
           "{}: {} given, expected two dims. Give other parameters to another optimizer, with partition.",
           params[i].path, params[i].value->type_string());
    matrices.push_back(updates[i].value);
  }
  per_array("scale_by_muon", updates, mu, 1, params, count, [&](const ArrayStep& step) {
    Array& m = step.state[0];
    // Updates have the sharding of the moments, so that matrices of one type are distributed together.
    const Array home = o.mu_dtype ? zeros_for(step.p()) : m;
    m = moment(m, step.gradient, o.beta);
    return kept(first_moment(m, step.gradient, o.beta, step.count, o.nesterov), home, "scale_by_muon");
  });
  std::vector<Array> before;
  for (Array* m : matrices) before.push_back(*m);
  const auto groups = by_type(matrices);
  for (const nn::Leaf& u : updates)
    if (!u.value->is_absent())
      if (const auto group = groups.find(u.value->impl()->type);
          group != groups.end() && group->second.front() == u.value)
        distribute(o, group->second);
  for (size_t i = 0; o.adaptive && i < matrices.size(); ++i) {
    const Array& x = *matrices[i];
    *matrices[i] = sum(before[i] * x) * x;
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
  const Shape& shape = step.p().shape();
  if (shape.size() != 2)
    fail(ErrorKind::shape_mismatch, name, "{}: {} given, expected two dims.", step.parameter.path,
         step.p().type_string());
  const auto fan_in = static_cast<double>(shape[0]), fan_out = static_cast<double>(shape[1]);
  const double factor = consistent_rms ? std::sqrt(std::max(fan_in, fan_out)) * *consistent_rms
                                       : std::sqrt(std::max(1.0, fan_out / fan_in));
  return factor * step.gradient;
}

PerArray<ScaleByShape> scale_by_shape(std::optional<double> consistent_rms) {
  detail::check_finite("scale_by_shape", "consistent_rms", consistent_rms.value_or(0));
  return {ScaleByShape{consistent_rms}};
}

}  // namespace tessera::optim
