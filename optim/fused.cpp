// Who owns which memory, and at::_fused_adamw_.
#include "optim/fused.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/scalar_tensor.h>
#include <fmt/format.h>

#include <map>

#include "optim/internal.h"
#include "optim/optimizer.h"
#include "sharding/device_put.h"
#include "sharding/redistribute.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

namespace {

// What one call of the kernel gets: parameters of one element type, all decayed or none.
struct Group {
  std::vector<at::Tensor> params, grads, mu, nu;
};
using GroupKey = std::pair<bool, at::ScalarType>;

// A parameter in half precision is updated as a float32 copy and rounded once.
struct Rounded {
  at::Tensor parameter, exact;
};

bool owns_memory(const at::Tensor& t) {
  return t.use_count() == 1 && t.storage().use_count() == 1 && t.storage().unsafeGetStorageImpl()->resizable() &&
         t.is_contiguous() && !t.requires_grad();
}

// The array's memory, for writing. Its own if nobody else holds any of it, else a copy that takes its place in the
// tree.
ArrayImpl& writable(Array& x) {
  materialized(x, "Optimizer.update");
  if (x.impl().use_count() > 1) x = like_parameter(x, x, "Optimizer.update");
  ArrayImpl& a = *x.impl();
  if (a.details) a.details->conversions.clear();
  for (at::Tensor& t : a.local)
    if (!owns_memory(t)) t = t.detach().clone(at::MemoryFormat::Contiguous);
  return a;
}

// These do not enter the dispatcher where there is nothing to do.
at::Tensor as_dtype(const at::Tensor& t, at::ScalarType dtype) { return t.scalar_type() == dtype ? t : t.to(dtype); }
at::Tensor as_contiguous(const at::Tensor& t) { return t.is_contiguous() ? t : t.contiguous(); }
const Type* as_type(const Type* type, DType dtype) { return type->dtype == dtype ? type : with_dtype(type, dtype); }

// Appends the gradient where the parameter is: one contiguous tensor for each of the parameter's.
void add_gradient(const Array& grad, const ArrayImpl& p, at::ScalarType dtype, std::vector<at::Tensor>& out) {
  static const Text reason = std::make_shared<const std::string>("a gradient is used where its parameter is");
  ArrayImpl& a = materialized(grad, "Optimizer.update");
  ArrayPtr g = grad.impl();
  if (p.type->mesh && a.type != p.type)
    g = convert(a, g, as_type(p.type, a.type->dtype),
                {.operation = "Optimizer.update", .where = {}, .reason = reason, .path = {}});
  for (size_t i = 0; i < p.local.size(); ++i) {
    const size_t at = g->slots == p.slots ? i : project(p.type->mesh, p.slots, static_cast<int>(i), g->slots);
    out.push_back(as_contiguous(as_dtype(g->local[at], dtype)));
  }
}

bool lies_with(Array& moment, const Array& parameter) {
  const ArrayImpl& p = materialized(parameter, "Optimizer.update");
  if (moment.is_absent()) return false;
  if (p.type->mesh && !moment.is_committed()) moment = device_put(moment, sharding_of(p.type));
  const ArrayImpl& m = materialized(moment, "Optimizer.update");
  return m.type == as_type(p.type, m.type->dtype) && m.slots == p.slots && m.local.size() == p.local.size();
}

}  // namespace

bool can_fuse(const FusedAdam& step, const nn::Leaves& params, const nn::Leaves& mu, const nn::Leaves& nu) {
  if (step.adam.eps_root != 0) return false;
  check_same_tree("Optimizer.update", "the optimizer's state", mu, params);
  for (size_t i = 0; i < params.size(); ++i) {
    const Array& p = *params[i].value;
    if (p.is_absent() || !is_floating(p.dtype())) continue;
    if (!lies_with(*mu[i].value, p) || !lies_with(*nu[i].value, p)) return false;
    if (mu[i].value->dtype() != moment_dtype(p.dtype()) || nu[i].value->dtype() != moment_dtype(p.dtype()))
      return false;
  }
  return true;
}

void fused_adam(const FusedAdam& step, const nn::Leaves& params, const nn::Leaves& grads, const nn::Leaves& mu,
                const nn::Leaves& nu) {
  at::AutoGradMode off(false);
  std::map<GroupKey, Group> groups;
  std::vector<Rounded> rounded;
  for (size_t i = 0; i < params.size(); ++i) {
    if (grads[i].value->is_absent() || params[i].value->is_absent()) continue;
    const bool decayed =
        step.weight_decay != 0 && (!step.mask || (*step.mask)(params[i].path, params[i]));
    const auto dtype = static_cast<at::ScalarType>(mu[i].value->dtype());
    Group& group = groups[{decayed, dtype}];
    // The gradients come first: one that shares memory with the parameter makes the parameter a copy.
    add_gradient(*grads[i].value, materialized(*params[i].value, "Optimizer.update"), dtype, group.grads);
    const ArrayImpl &p = writable(*params[i].value), &m = writable(*mu[i].value), &v = writable(*nu[i].value);
    for (size_t k = 0; k < p.local.size(); ++k) {
      const at::Tensor exact = as_dtype(p.local[k], dtype);
      if (!exact.is_same(p.local[k])) rounded.push_back({p.local[k], exact});
      group.params.push_back(exact), group.mu.push_back(m.local[k]), group.nu.push_back(v.local[k]);
    }
  }
  for (auto& [key, group] : groups) {
    const at::Tensor count =
        at::scalar_tensor(static_cast<double>(step.adam.count), group.params[0].options().dtype(at::kFloat));
    const std::vector<at::Tensor> counts(group.params.size(), count);
    at::_fused_adamw_(group.params, group.grads, group.mu, group.nu, {}, counts, step.learning_rate, step.adam.b1,
                      step.adam.b2, key.first ? step.weight_decay : 0.0, step.adam.eps, false, false);
  }
  for (Rounded& r : rounded) r.parameter.copy_(r.exact);
}

void check_gradients(const nn::Leaves& params, const nn::Leaves& grads) {
  check_same_tree("Optimizer.update", "the gradient", grads, params);
  for (size_t i = 0; i < params.size(); ++i) {
    const Array &p = *params[i].value, &g = *grads[i].value;
    if (g.is_absent()) continue;
    const auto wrong = [&](ErrorKind kind, const char* advice) {
      fail(kind, "Optimizer.update",
           fmt::format("{}: the gradient is {}, the parameter {}. {}", params[i].path, g.type_string(), p.type_string(),
                       advice));
    };
    if (g.dtype() != p.dtype() || !is_floating(p.dtype()))
      wrong(ErrorKind::dtype_mismatch,
            "Both must have the same floating element type; an integer's gradient is absent.");
    if (g.is_committed() && p.is_committed() && g.impl()->type->mesh != p.impl()->type->mesh)
      wrong(ErrorKind::device_mismatch, "Both must lie on the same mesh.");
  }
}

}  // namespace tessera::optim::detail
