// Who owns which memory, at::_fused_adamw_ and at::_fused_sgd_.
#include "optim/fused.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/scalar_tensor.h>

#include "optim/internal.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

void ask_for_next(const Arrays& arrays, size_t i) {
  constexpr size_t ahead = 8;
  const auto local = [&](size_t k) -> const at::Tensor* {
    if (k >= arrays.size() || arrays[k]->is_absent()) return nullptr;
    const Tensors& all = arrays[k]->impl()->local;
    return all.empty() ? nullptr : &all[0];
  };
  if (i + 3 * ahead < arrays.size()) {
    const auto* impl = reinterpret_cast<const char*>(arrays[i + 3 * ahead]->impl().get());
    __builtin_prefetch(impl), __builtin_prefetch(impl + 64);
  }
  if (const at::Tensor* t = local(i + 2 * ahead)) {
    const auto* impl = reinterpret_cast<const char*>(t->unsafeGetTensorImpl());
    __builtin_prefetch(impl), __builtin_prefetch(impl + 64), __builtin_prefetch(impl + 128);
  }
  if (const at::Tensor* t = local(i + ahead); t && t->has_storage())
    __builtin_prefetch(t->storage().unsafeGetStorageImpl());
}

namespace {

// What one call of the kernel gets: parameters of one element type in one memory, all decayed or none.
struct Group {
  bool decayed;
  at::ScalarType dtype;
  c10::Device device;
  std::vector<at::Tensor> params, grads, first, second;
};

// A parameter in half precision is updated as a float32 copy and rounded once.
struct Rounded {
  at::Tensor parameter, exact;
};

struct Groups {
  std::vector<Group> all;
  std::vector<Rounded> rounded;

  Group& of(bool decayed, at::ScalarType dtype, c10::Device device, size_t expected) {
    for (Group& group : all)
      if (group.decayed == decayed && group.dtype == dtype && group.device == device) return group;
    Group& made = all.emplace_back(Group{decayed, dtype, device, {}, {}, {}, {}});
    for (auto* list : {&made.params, &made.grads, &made.first, &made.second}) list->reserve(expected);
    return made;
  }
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
  if (a.type == p.type && a.slots == p.slots) {
    for (const at::Tensor& t : a.local) out.push_back(as_contiguous(as_dtype(t, dtype)));
    return;
  }
  ArrayPtr g = grad.impl();
  if (p.type->mesh && a.type != p.type)
    g = convert(a, g, as_type(p.type, a.type->dtype),
                {.operation = "Optimizer.update", .where = {}, .reason = reason, .path = {}});
  for (size_t i = 0; i < p.local.size(); ++i) {
    const size_t at = g->slots == p.slots ? i : project(p.type->mesh, p.slots, static_cast<int>(i), g->slots);
    out.push_back(as_contiguous(as_dtype(in_memory_of(p.type->mesh, g->local[at]), dtype)));
  }
}

bool is_updated(const FusedCall& call, size_t i) { return !call.grads[i]->is_absent() && !call.params[i]->is_absent(); }

// The group of the i-th parameter.
Group& group_of(Groups& groups, const FusedCall& call, size_t i) {
  const auto* adam = std::get_if<FusedAdam>(&call.step);
  const bool decayed = !adam || adam->weight_decay == 0 || !adam->decays || (*adam->decays)[i];
  const auto dtype = static_cast<at::ScalarType>(moment_dtype(call.params[i]->dtype()));
  const MeshImpl* mesh = call.params[i]->impl()->type->mesh;
  return groups.of(decayed, dtype, mesh ? mesh->device : c10::Device(c10::kCPU), call.params.size());
}

// The gradients come first: one that shares memory with its parameter makes the parameter a copy.
void gather_gradients(const FusedCall& call, Groups& groups) {
  for (size_t i = 0; i < call.params.size(); ++i) {
    ask_for_next(call.grads, i);
    if (!is_updated(call, i)) continue;
    Group& group = group_of(groups, call, i);
    add_gradient(*call.grads[i], materialized(*call.params[i], "Optimizer.update"), group.dtype, group.grads);
  }
}

void gather_moments(const FusedCall& call, const Arrays& moments, std::vector<at::Tensor> Group::*list,
                    Groups& groups) {
  for (size_t i = 0; i < moments.size(); ++i) {
    ask_for_next(moments, i);
    if (!is_updated(call, i)) continue;
    std::vector<at::Tensor>& out = group_of(groups, call, i).*list;
    for (const at::Tensor& t : writable(*moments[i]).local) out.push_back(t);
  }
}

void gather_params(const FusedCall& call, Groups& groups) {
  for (size_t i = 0; i < call.params.size(); ++i) {
    ask_for_next(call.params, i);
    if (!is_updated(call, i)) continue;
    Group& group = group_of(groups, call, i);
    for (const at::Tensor& t : writable(*call.params[i]).local) {
      group.params.push_back(as_dtype(t, group.dtype));
      if (t.scalar_type() != group.dtype) groups.rounded.push_back({t, group.params.back()});
    }
  }
}

void run(const FusedAdam& o, Group& group) {
  const at::Tensor count = at::scalar_tensor(static_cast<double>(o.count), group.params[0].options().dtype(at::kFloat));
  const std::vector<at::Tensor> counts(group.params.size(), count);
  at::_fused_adamw_(group.params, group.grads, group.first, group.second, {}, counts, o.learning_rate, o.b1, o.b2,
                    group.decayed ? o.weight_decay : 0.0, o.eps, false, false);
}

void run(const FusedSgd& o, Group& group) {
  at::_fused_sgd_(group.params, group.grads, group.first, 0.0, o.momentum, o.learning_rate, 0.0, o.nesterov, false,
                  false);
}

void round(const Groups& groups) {
  for (const Rounded& r : groups.rounded) r.parameter.copy_(r.exact);
}

bool lies_with(Array& moment, const Array& parameter) {
  if (moment.is_absent()) return false;
  const ArrayImpl& p = materialized(parameter, "Optimizer.update");
  if (p.type->mesh && !moment.is_committed()) moment = device_put(moment, sharding_of(p.type));
  const ArrayImpl& m = materialized(moment, "Optimizer.update");
  return m.type->dtype == moment_dtype(p.type->dtype) && m.type == as_type(p.type, m.type->dtype) &&
         m.slots == p.slots && m.local.size() == p.local.size();
}

}  // namespace

bool moments_lie_with(const Arrays& moments, const Arrays& params, const Arrays& grads) {
  if (moments.size() != params.size() || grads.size() != params.size()) return false;
  for (size_t i = 0; i < params.size(); ++i) {
    ask_for_next(moments, i);
    if (!grads[i]->is_absent() && !params[i]->is_absent() && !lies_with(*moments[i], *params[i])) return false;
  }
  return true;
}

void run_fused(const std::vector<FusedCall>& calls) {
  at::AutoGradMode off(false);
  for (const FusedCall& call : calls)
    if (const auto* adam = std::get_if<FusedAdam>(&call.step)) check_count("scale_by_adam", adam->count);
  std::vector<Groups> groups(calls.size());
  for (size_t i = 0; i < calls.size(); ++i) gather_gradients(calls[i], groups[i]);
  for (size_t i = 0; i < calls.size(); ++i) {
    gather_moments(calls[i], calls[i].first, &Group::first, groups[i]);
    gather_moments(calls[i], calls[i].second, &Group::second, groups[i]);
    gather_params(calls[i], groups[i]);
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    for (Group& group : groups[i].all)
      if (!group.params.empty()) std::visit([&](const auto& step) { run(step, group); }, calls[i].step);
    round(groups[i]);
  }
}

}  // namespace tessera::optim::detail
