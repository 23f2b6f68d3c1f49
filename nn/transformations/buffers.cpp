// Checks the Buffers after a call, drops their graph, and restores their sharding.
#include "nn/transformations/buffers.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "sharding/array/array_impl.h"
#include "sharding/base/fail.h"
#include "sharding/redistribution/coalesced.h"

namespace tessera::nn {

namespace detail {

using namespace tessera::detail;

namespace {

[[noreturn]] void fail_structure(const char* verb) {
  fail(ErrorKind::invalid_argument, verb,
       "the call changed the structure of the model: the length of a vector, an optional, the alternative of a variant "
       "or a key of a map. A call may change the values of Buffers and of static fields.");
}

void check_buffer(const Leaf& place, const Array& left, const char* verb) {
  const Array& before = *place.value;
  if (left.is_absent())
    fail(ErrorKind::missing_array, verb, place.path + ": the call left no array in this Buffer, expected a value.");
  if (before.is_absent()) return;
  const bool same_dtype = left.dtype() == before.dtype();
  if (same_dtype && left.shape() == before.shape()) return;
  fail(
      same_dtype ? ErrorKind::shape_mismatch : ErrorKind::dtype_mismatch, verb,
      "{}: the call left {} in this Buffer, expected {} as before. {}", place.path, left.type_string(),
      before.type_string(),
      same_dtype
          ? "Make it as large as it will be in init."
          : "Cast what is stored with astype, or leave Buffers out of a cast: nn::cast(model, dtype, !nn::is_buffer).");
}

// Returns the value without its graph. A partial sum is reduced later, when the value is placed.
Array drop_graph(const Array& x, const char* verb) {
  const ArrayImpl& a = materialized(x, verb);
  Tensors local;
  for (const at::Tensor& t : a.local) local.push_back(t.detach());
  ArrayPtr plain = make_array(with_reduced(a.type, 0), a.slots, std::move(local));
  plain->mesh_rules = a.mesh_rules;
  return Array(std::move(plain));
}

// Places each value like the array that it replaces, under that array's path. Equal conversions share one collective.
void settle_in_place(const std::vector<Array*>& values, const std::vector<const Array*>& places, const char* verb) {
  at::AutoGradMode off(false);
  std::vector<Array*> moved;
  std::vector<const Array*> to;
  for (size_t i = 0; i < values.size(); ++i) {
    *values[i] = drop_graph(*values[i], verb);
    moved.push_back(values[i]);
    to.push_back(places[i]->is_absent() ? values[i] : places[i]);
  }
  place_coalesced(moved, to, verb);
  for (size_t i = 0; i < values.size(); ++i)
    if (!places[i]->is_absent()) values[i]->impl()->weight = places[i]->impl()->weight;
}

}  // namespace

std::vector<Array> values_of(const std::vector<Array*>& arrays) {
  std::vector<Array> values;
  values.reserve(arrays.size());
  for (const Array* x : arrays) values.push_back(*x);
  return values;
}

void set_values(const std::vector<Array*>& arrays, const std::vector<Array>& values) {
  for (size_t i = 0; i < arrays.size(); ++i) *arrays[i] = values[i];
}

void check_alike(const std::vector<StaticValue>& model, const std::vector<StaticValue>& copy, const char* verb) {
  if (!std::ranges::equal(model, copy, {}, &StaticValue::assign, &StaticValue::assign)) fail_structure(verb);
}

std::vector<Array> kept_after_call(const Leaves& model, size_t structure, const std::vector<Array>& given,
                                   const BareArrays& left, const char* verb, bool settle) {
  if (left.structure != structure || left.arrays.size() != model.size()) fail_structure(verb);
  std::vector<Array> kept;
  std::vector<Array*> changed;
  std::vector<const Array*> places;
  kept.reserve(model.size());
  for (size_t i = 0; i < model.size(); ++i) {
    kept.push_back(*model[i].value);
    const Array& now = *left.arrays[i];
    if (now.is_same(given[i])) continue;
    if (model[i].kind != Kind::buffer)
      fail(ErrorKind::invalid_argument, verb,
           model[i].path +
               ": the call assigned to it, expected that only Buffers change: what is assigned to another array is "
               "lost with the call. Make it an nn::Buffer, or work on a copy of the model.");
    check_buffer(model[i], now, verb);
    kept[i] = now;
    changed.push_back(&kept[i]);
    places.push_back(model[i].value);
  }
  if (settle && !changed.empty()) settle_in_place(changed, places, verb);
  return kept;
}

}  // namespace detail

void copy_buffers(const Leaves& from, const Leaves& to) {
  check_same_structure(to, from, "copy_buffers");
  for (size_t i = 0; i < to.size(); ++i)
    if (to[i].kind == Kind::buffer && !from[i].value->is_absent())
      detail::check_buffer(to[i], *from[i].value, "copy_buffers");
  for (size_t i = 0; i < to.size(); ++i)
    if (to[i].kind == Kind::buffer && !from[i].value->is_absent()) *to[i].value = *from[i].value;
}

}  // namespace tessera::nn
