// Computes factored and layer-wise second moments.
#include "optim/formulas/factored.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "nn/tree/filter.h"
#include "optim/schedules/check_options.h"
#include "optim/transform/internal.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::optim {

namespace detail {

using namespace tessera::detail;

namespace {

// The second largest and the largest dimension; of equal dimensions, the later one. std::nullopt if the array is not
// factored.
struct FactoredDims {
  int second, largest;
};
std::optional<FactoredDims> factored_dims(const ScaleByFactoredRms& o, const Shape& shape) {
  if (!o.factored || shape.size() < 2) return std::nullopt;
  std::vector<int> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return shape[a] < shape[b]; });
  const int second = order[order.size() - 2], largest = order.back();
  if (shape[second] < o.min_dim_size_to_factor) return std::nullopt;
  return FactoredDims{second, largest};
}

// Returns the type of the parameter's moments, without one dimension.
TypeKey type_without(const Array& parameter, int dim) {
  const Type* type = parameter.impl()->type;
  TypeKey key{.dtype = moment_dtype(type->dtype), .shape = type->shape, .mesh = type->mesh, .dims = type->dims};
  key.padded = any_dim;
  key.shape.erase(key.shape.begin() + dim);
  if (!key.dims.empty()) key.dims.erase(key.dims.begin() + dim);
  return key;
}

// Places a row or column that was made before its parameter was placed.
void follow_without(Array& x, const nn::Leaf& parameter, int dim) {
  check_can_follow("scale_by_factored_rms", x, parameter);
  if (!x.is_committed() && parameter.value->is_committed())
    x = device_put(x, sharding_of(intern(type_without(*parameter.value, dim))));
}

NamedArray zeros_without(const nn::Leaf& parameter, int dim) {
  const Array& p = *parameter.value;
  NamedArray result;
  if (parameter.axes && static_cast<int>(parameter.axes->size()) == p.ndim()) {
    result.axes = *parameter.axes;
    result.axes.erase(result.axes.begin() + dim);
  }
  const TypeKey key = type_without(p, dim);
  result.value = zeros(key.shape, key.dtype);
  if (key.mesh) result.value = device_put(result.value, sharding_of(intern(key)));
  return result;
}

}  // namespace

void make_factored(const ScaleByFactoredRms& o, const nn::Leaves& params, ByPath& row, ByPath& col,
                   const nn::Leaves& v) {
  for (size_t i = 0; i < params.size(); ++i) {
    const nn::Leaf& p = params[i];
    const auto dims = nn::is_trainable(p) ? factored_dims(o, p.value->shape()) : std::nullopt;
    if (!dims) {
      *v[i].value = nn::is_trainable(p) ? zeros_for(*p.value) : Array();
      continue;
    }
    row[p.path] = zeros_without(p, dims->largest);
    col[p.path] = zeros_without(p, dims->second);
    *v[i].value = Array();
  }
}

namespace {

// Returns the dimensions for which a state was made. Error (shape_mismatch): it was made for a parameter of a different
// shape.
FactoredDims dims_of_state(const ScaleByFactoredRms& o, const nn::Leaf& parameter, const Array& row, const Array& col) {
  const auto dims = factored_dims(o, parameter.value->shape());
  const auto fits = [&](const Array& moment, int dim) {
    return moment.shape() == type_without(*parameter.value, dim).shape;
  };
  if (dims && fits(row, dims->largest) && fits(col, dims->second)) return *dims;
  fail(ErrorKind::shape_mismatch, "scale_by_factored_rms",
       "{}{} given for a state of {} and {}, which was made for a parameter of another shape. Make a new state.",
       name_of_leaf(parameter), parameter.value->type_string(), row.type_string(), col.type_string());
}

Array factored_update(const Array& g, const Array& squares, double beta, FactoredDims dims, Array& row, Array& col) {
  const auto [d1, d0] = dims;
  row = kept(beta * row + (1 - beta) * mean(squares, {d0}), row, "scale_by_factored_rms");
  col = kept(beta * col + (1 - beta) * mean(squares, {d1}), col, "scale_by_factored_rms");
  const Array row_mean = mean(row, {d1 > d0 ? d1 - 1 : d1}, true);
  return g * expand_dims(rsqrt(row / row_mean), {d0}) * expand_dims(rsqrt(col), {d1});
}

}  // namespace

void factored_rms(const ScaleByFactoredRms& o, int64_t count, const nn::Leaves& updates, const nn::Leaves& params,
                  ByPath& row, ByPath& col, const nn::Leaves& v) {
  at::AutoGradMode off(false);
  check_same_tree("scale_by_factored_rms", "the gradient", updates, params);
  check_same_tree("scale_by_factored_rms", "the state", v, params);
  if (count <= o.step_offset)
    fail(ErrorKind::invalid_argument, "scale_by_factored_rms",
         "step_offset: {} given at update {}, expected less than its number.", o.step_offset, count);
  const double beta = 1 - std::pow(static_cast<double>(count - o.step_offset), -o.decay_rate);
  for (size_t i = 0; i < updates.size(); ++i) {
    Array& u = *updates[i].value;
    if (u.is_absent()) continue;
    const Array g = astype(u, moment_dtype(u.dtype())), squares = square(g) + o.epsilon;
    const auto r = row.find(params[i].path), c = col.find(params[i].path);
    if (r != row.end() && c != col.end()) {
      const FactoredDims dims = dims_of_state(o, params[i], r->second, c->second);
      follow_without(r->second.value, params[i], dims.largest), follow_without(c->second.value, params[i], dims.second);
      u = factored_update(g, squares, beta, dims, r->second.value, c->second.value);
      continue;
    }
    Array& moment = *v[i].value;
    check_has_state("scale_by_factored_rms", params[i], u, moment);
    follow("scale_by_factored_rms", moment, params[i]);
    moment = kept(beta * moment + (1 - beta) * squares, moment, "scale_by_factored_rms");
    u = g * rsqrt(moment);
  }
}

void make_norms(const ScaleByNovograd& o, const nn::Leaves& params, const nn::Leaves& mu, ByPath& nu) {
  for (size_t i = 0; i < params.size(); ++i) {
    const nn::Leaf& p = params[i];
    *mu[i].value = nn::is_trainable(p) ? zeros_for(*p.value, o.mu_dtype) : Array();
    if (nn::is_trainable(p)) nu[p.path] = zeros_on_mesh_of(*p.value, {}, moment_dtype(p.value->dtype()));
  }
}

void novograd(const ScaleByNovograd& o, int64_t count, const nn::Leaves& updates, const nn::Leaves& params,
              const nn::Leaves& mu, ByPath& nu) {
  constexpr const char* verb = "scale_by_novograd";
  per_array(verb, updates, mu, 1, params, count, [&](const ArrayStep& step) {
    const Array &g = step.gradient, squares = square(norm(g));
    Array &m = step.state[0], &n = nu[step.parameter.path].value;
    check_has_state(verb, step.parameter, g, n);
    follow(verb, n, step.parameter);
    n = kept(count == 1 ? squares : moment(n, squares, o.b2), n, verb);
    const Array update = g / (sqrt(n + o.eps_root) + o.eps) + o.weight_decay * astype(step.p(), g.dtype());
    return m = count == 1 ? update : o.b1 * astype(m, g.dtype()) + update;
  });
}

}  // namespace detail

ScaleByFactoredRms scale_by_factored_rms(const ScaleByFactoredRms& o) {
  detail::check_options("scale_by_factored_rms", {}, {{"decay_rate", o.decay_rate}, {"epsilon", o.epsilon}});
  return o;
}

ScaleByNovograd scale_by_novograd(const ScaleByNovograd& o) {
  detail::check_options("scale_by_novograd", {{"b1", o.b1}, {"b2", o.b2}},
                        {{"eps", o.eps}, {"eps_root", o.eps_root}, {"weight_decay", o.weight_decay}});
  return o;
}

}  // namespace tessera::optim
