// The arithmetic of the transforms, array by array, and the clip in bulk.
#include "optim/transform.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "optim/global_norm.h"
#include "optim/internal.h"
#include "sharding/abstract_tensor.h"
#include "sharding/operations.h"
#include "sharding/redistribute.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

namespace {

// A sharding's type without what only a computation has: pending sums, reduced axes.
const Type* at_rest(const Type* type) { return with_unreduced(with_reduced(type, 0), 0); }

Array zeros_for(const Array& parameter) {
  if (parameter.is_absent() || !is_floating(parameter.dtype())) return {};
  const ArrayImpl& p = *parameter.impl();
  const DType dtype = moment_dtype(parameter.dtype());
  if (!p.type->mesh) return zeros(parameter.shape(), dtype);
  const Type* type = with_dtype(at_rest(p.type), dtype);
  Tensors local;
  for (int s = 0; s < type->mesh->count(type->slots); ++s)
    local.push_back(type->mesh->abstract ? abstract_block(type)
                                         : at::zeros(type->local, static_cast<at::ScalarType>(dtype)));
  ArrayPtr made = make_array(type, std::move(local));
  copy_facts(p, *made);
  return Array(std::move(made));
}

std::string name_of_leaf(const nn::Leaf& leaf) { return leaf.path.empty() ? "" : leaf.path + ": "; }

}  // namespace

DType moment_dtype(DType parameter) { return item_size(parameter) < 4 ? DType::float32 : parameter; }

Array like_parameter(const Array& value, const Array& parameter, const char* verb) {
  ArrayPtr v = value.impl();
  const Type* type = parameter.impl()->type;
  static const Text reason = std::make_shared<const std::string>("a parameter stays where it was placed");
  if (type->mesh && v->type != type)
    v = convert(*v, v, type, {.operation = verb, .where = {}, .reason = reason, .path = {}});
  ArrayPtr made = make_array(v->type, v->slots, v->local);
  copy_facts(*parameter.impl(), *made);
  made->weight = parameter.impl()->weight;
  return Array(std::move(made));
}

void check_same_tree(const char* verb, const char* what, const nn::Leaves& given, const nn::Leaves& params) {
  for (size_t i = 0; i < std::min(given.size(), params.size()); ++i) {
    const nn::Leaf &g = given[i], &p = params[i];
    if (g.path != p.path)
      fail(ErrorKind::bad_argument, verb,
           fmt::format("{}{} has the array {} in its place. Both must come from the same model.", name_of_leaf(p), what,
                       g.path));
    if (g.value->is_absent()) continue;
    if (p.value->is_absent())
      fail(ErrorKind::absent, verb,
           fmt::format("{}{} is {}, the parameter is absent.", name_of_leaf(p), what, g.value->type_string()));
    if (g.value->shape() != p.value->shape())
      fail(ErrorKind::shape_mismatch, verb,
           fmt::format("{}{} is {}, the parameter {}. Both must come from the same model.", name_of_leaf(p), what,
                       g.value->type_string(), p.value->type_string()));
  }
  if (given.size() != params.size())
    fail(ErrorKind::bad_argument, verb,
         fmt::format("{} has {} arrays, the model {}. Both must come from the same model.", what, given.size(),
                     params.size()));
}

void make_zeros(const nn::Leaves& state) {
  for (const nn::Leaf& leaf : state) *leaf.value = zeros_for(*leaf.value);
}

void scale(const nn::Leaves& updates, double factor) {
  at::AutoGradMode off(false);
  for (const nn::Leaf& u : updates)
    if (!u.value->is_absent()) *u.value = factor * *u.value;
}

void add_decayed_weights(const nn::Leaves& updates, const nn::Leaves& params, double weight_decay, const Mask& mask) {
  at::AutoGradMode off(false);
  check_same_tree("add_decayed_weights", "the update", updates, params);
  for (size_t i = 0; i < updates.size(); ++i) {
    Array &u = *updates[i].value, &p = *params[i].value;
    if (!u.is_absent() && mask(params[i].path, params[i])) u = u + weight_decay * astype(p, u.dtype());
  }
}

// All blocks of all arrays in one kernel; the gradients themselves are not written to.
double clip_by_global_norm(const nn::Leaves& updates, double max_norm) {
  at::AutoGradMode off(false);
  const Array measured = global_norm(updates);
  // Where there are no values, as if it were too large.
  const bool known = !measured.is_committed() || !measured.sharding().mesh().is_abstract();
  const double norm = known ? measured.item<double>() : std::numeric_limits<double>::quiet_NaN();
  if (norm < max_norm) return norm;
  std::vector<at::Tensor> blocks;
  for (const nn::Leaf& u : updates)
    if (!u.value->is_absent())
      for (const at::Tensor& t : materialized(*u.value, "clip_by_global_norm").local) blocks.push_back(t);
  if (blocks.empty()) return norm;
  const std::vector<at::Tensor> clipped = at::_foreach_mul(blocks, max_norm / norm);
  auto next = clipped.begin();
  for (const nn::Leaf& u : updates) {
    if (u.value->is_absent()) continue;
    const ArrayImpl& a = *u.value->impl();
    ArrayPtr made = make_array(a.type, a.slots, Tensors(next, next + static_cast<ptrdiff_t>(a.local.size())));
    next += static_cast<ptrdiff_t>(a.local.size());
    copy_facts(a, *made);
    *u.value = Array(std::move(made));
  }
  return norm;
}

void scale_by_adam(const AdamStep& o, const nn::Leaves& updates, const nn::Leaves& mu, const nn::Leaves& nu) {
  at::AutoGradMode off(false);
  check_same_tree("scale_by_adam", "the gradient", updates, mu);
  const auto t = static_cast<double>(o.count);
  const double correction1 = 1 - std::pow(o.b1, t), correction2 = 1 - std::pow(o.b2, t);
  for (size_t i = 0; i < updates.size(); ++i) {
    if (updates[i].value->is_absent()) continue;
    Array &u = *updates[i].value, &m = *mu[i].value, &v = *nu[i].value;
    const Array g = astype(u, m.dtype());
    m = like_parameter(o.b1 * m + (1 - o.b1) * g, m, "scale_by_adam");
    v = like_parameter(o.b2 * v + (1 - o.b2) * square(g), v, "scale_by_adam");
    u = (m / correction1) / (sqrt(v / correction2 + o.eps_root) + o.eps);
  }
}

void apply_updates(const nn::Leaves& params, const nn::Leaves& updates) {
  at::AutoGradMode off(false);
  check_same_tree("apply_updates", "the update", updates, params);
  for (size_t i = 0; i < updates.size(); ++i) {
    Array& p = *params[i].value;
    if (!updates[i].value->is_absent())
      p = like_parameter(astype(p + *updates[i].value, p.dtype()), p, "apply_updates");
  }
}

}  // namespace tessera::optim::detail

namespace tessera::optim {

ClipByGlobalNorm clip_by_global_norm(double max_norm) {
  if (!(max_norm > 0))
    fail(ErrorKind::bad_argument, "clip_by_global_norm", fmt::format("max_norm {} given, expected above 0.", max_norm));
  return {max_norm};
}

}  // namespace tessera::optim
