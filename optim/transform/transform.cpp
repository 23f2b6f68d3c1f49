// Trees of updates and states: zeros, sums, and checks that two trees fit together.
#include "optim/transform/transform.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include "nn/tree/filter.h"
#include "optim/transform/internal.h"
#include "sharding/array/abstract_tensor.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/tensors.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/runtime/graph.h"

namespace tessera::optim {

namespace detail {

using namespace tessera::detail;

namespace {

Array zeros_of_type(const Type* type) {
  Tensors local;
  for (int s = 0; s < type->mesh->slots(type->slots); ++s)
    local.push_back(
        type->mesh->abstract
            ? abstract_block(type)
            : at::zeros(type->local,
                        at::TensorOptions(static_cast<at::ScalarType>(type->dtype)).device(type->mesh->device)));
  return Array(make_array(type, std::move(local)));
}

}  // namespace

std::string name_of_leaf(const nn::Leaf& leaf) { return leaf.path.empty() ? "" : leaf.path + ": "; }

void prefetch_next(const Arrays& arrays, size_t i) {
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

Arrays arrays_of(const nn::Leaves& leaves) {
  Arrays result;
  for (const nn::Leaf& leaf : leaves) result.push_back(leaf.value);
  return result;
}

DType moment_dtype(DType parameter) { return item_size(parameter) < 4 ? DType::float32 : parameter; }

Array zeros_on_mesh_of(const Array& parameter, const Shape& shape, DType dtype) {
  const MeshImpl* mesh = parameter.impl()->type->mesh;
  if (!mesh) return zeros(shape, dtype);
  return zeros_of_type(on_mesh(uncommitted_type(dtype, shape), mesh));
}

void check_can_follow(const char* verb, const Array& state, const nn::Leaf& parameter) {
  if (state.is_absent() || !state.is_committed() || parameter.value->is_committed()) return;
  fail(ErrorKind::device_mismatch, verb,
       "{}the state is on {}, the parameter was never placed. Place the model with nn::filter_shard, or make a new "
       "state.",
       name_of_leaf(parameter), state.sharding().mesh().to_string());
}

void follow(const char* verb, Array& state, const nn::Leaf& parameter) {
  check_can_follow(verb, state, parameter);
  const Array& p = *parameter.value;
  if (state.is_absent() || state.is_committed() || !p.is_committed()) return;
  state = device_put(
      state, state.shape() == p.shape() ? resting_place(p) : NamedSharding(p.sharding().mesh(), PartitionSpec{}));
}

namespace {

void check_constant(const char* verb, const std::string& name, const Array& x) {
  if (x.is_absent()) return;
  const ArrayImpl& a = *x.impl();
  if (is_differentiated(a))
    fail(ErrorKind::no_gradient, verb,
         "{}{} is recorded by value_and_grad, and updates are not differentiated. Update after value_and_grad has "
         "returned.",
         name, x.type_string());
}

}  // namespace

void check_constant(const char* verb, const nn::Leaves& leaves) {
  if (!current_tape()) return;
  for (const nn::Leaf& leaf : leaves) check_constant(verb, name_of_leaf(leaf), *leaf.value);
}

void check_constant(const char* verb, const Arrays& arrays) {
  if (!current_tape()) return;
  for (const Array* x : arrays) check_constant(verb, "", *x);
}

Array like_parameter(const Array& value, const Array& parameter, const char* verb) {
  ArrayPtr v = value.impl();
  const Type* type = parameter.impl()->type;
  static const Text reason = tessera::detail::lasting_text("a parameter keeps its sharding");
  if (type->mesh && v->type != type)
    v = convert(*v, v, type, {.operation = verb, .where = {}, .reason = reason, .path = {}});
  ArrayPtr made = make_array(v->type, v->slots, materialized(Array(v), verb).local);
  copy_facts(*parameter.impl(), *made);
  made->weight = parameter.impl()->weight;
  return Array(std::move(made));
}

Array kept(const Array& value, const Array& old, const char* verb) {
  return like_parameter(astype(value, old.dtype()), old, verb);
}

std::optional<double> known_value(const Array& x) {
  if (x.is_committed() && x.sharding().mesh().is_abstract()) return std::nullopt;
  if (is_on_accelerator(x)) refuse_in_recording("Optimizer.update", "a value is read");
  return materialized(x, "update").local[0].item<double>();
}

bool is_on_accelerator(const Array& x) {
  return tessera::detail::is_on_accelerator(materialized(x, "update").local[0]);
}

Array total(const std::vector<Array>& scalars) {
  if (scalars.empty()) return zeros({});
  Array sum = scalars[0];
  for (size_t i = 1; i < scalars.size(); ++i) sum = sum + scalars[i];
  return sum.is_committed() ? device_put(sum, NamedSharding(whole_mesh(sum.sharding().mesh()), PartitionSpec{})) : sum;
}

NamedSharding resting_place(const Array& x) { return sharding_of(at_rest(x.impl()->type)); }

void check_same_tree(const char* verb, const char* what, const nn::Leaves& given, const nn::Leaves& params) {
  check_constant(verb, given), check_constant(verb, params);
  for (size_t i = 0; i < std::min(given.size(), params.size()); ++i) {
    const nn::Leaf &g = given[i], &p = params[i];
    if (g.path != p.path)
      fail(ErrorKind::invalid_argument, verb, "{}{} has the array {} in its place. Both must come from the same model.",
           name_of_leaf(p), what, g.path);
    if (g.value->is_absent()) continue;
    if (p.value->is_absent())
      fail(ErrorKind::missing_array, verb, "{}{} is {}, the parameter is absent.", name_of_leaf(p), what,
           g.value->type_string());
    if (g.value->shape() != p.value->shape())
      fail(ErrorKind::shape_mismatch, verb, "{}{} is {}, the parameter {}. Both must come from the same model.",
           name_of_leaf(p), what, g.value->type_string(), p.value->type_string());
  }
  if (given.size() != params.size())
    fail(ErrorKind::invalid_argument, verb, "{} has {} arrays, the model {}. Both must come from the same model.", what,
         given.size(), params.size());
}

void check_count(const char* verb, int64_t count) {
  if (count < 1)
    fail(ErrorKind::invalid_argument, verb, "the state's count is {}, expected 0 or more. Nothing was updated.",
         count - 1);
}

void check_has_state(const char* verb, const nn::Leaf& parameter, const Array& gradient, const Array& state) {
  if (!state.is_absent()) return;
  fail(ErrorKind::missing_array, verb,
       "{}the gradient is {}, but there is no state for it: the parameter was absent, a Buffer or an integer when the "
       "state was made. Leave its gradient absent, or make a new state.",
       name_of_leaf(parameter), gradient.type_string());
}

void make_zeros(const nn::Leaves& state) {
  for (const nn::Leaf& leaf : state) *leaf.value = nn::is_trainable(leaf) ? zeros_for(*leaf.value) : Array();
}

std::vector<Array> sums(const nn::Leaves& params, const nn::Leaves& updates) {
  at::AutoGradMode off(false);
  check_same_tree("apply_updates", "the update", updates, params);
  std::vector<Array> result(params.size());
  for (size_t i = 0; i < updates.size(); ++i) {
    const Array &p = *params[i].value, &u = *updates[i].value;
    if (!u.is_absent()) result[i] = like_parameter(astype(p + u, p.dtype()), p, "apply_updates");
  }
  return result;
}

void apply_updates(const nn::Leaves& params, const nn::Leaves& updates) {
  std::vector<Array> next = sums(params, updates);
  for (size_t i = 0; i < next.size(); ++i)
    if (!next[i].is_absent()) *params[i].value = std::move(next[i]);
}

}  // namespace detail

Array zeros_for(const Array& parameter, std::optional<DType> dtype) {
  using namespace tessera::detail;
  if (parameter.is_absent() || !is_floating(parameter.dtype())) return {};
  const ArrayImpl& p = *parameter.impl();
  const DType moments = dtype.value_or(detail::moment_dtype(parameter.dtype()));
  if (!is_floating(moments))
    fail(ErrorKind::invalid_argument, "init", "{} given for a state, expected a floating element type.",
         name_of(moments));
  if (!p.type->mesh) return zeros(parameter.shape(), moments);
  const Array made = detail::zeros_of_type(with_dtype(detail::at_rest(p.type), moments));
  copy_facts(p, *made.impl());
  return made;
}

}  // namespace tessera::optim
