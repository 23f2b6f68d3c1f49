// Buffers and static fields that a call changes, and the transfer of their new values to the caller's module.
#pragma once

#include <vector>

#include "nn/tree/tree.h"

// A module that changes when it is called has a non-const operator(). The call may write to Buffers (running
// statistics, the vectors of a spectral norm, a cache) and to static fields (a Key that it splits, a counter). It must
// not write to other fields:
//   Array operator()(const Array& x) {
//     mean.value = 0.9 * mean.value + 0.1 * tessera::mean(x, {0});
// A direct call changes the module itself. Under value_and_grad, accumulate_gradients and remat, the call works on a
// copy. The copy's Buffers and static fields are written back once, after every operation that can fail. They are
// written as plain values with their previous sharding. The recomputation of remat writes nothing back.

namespace tessera::nn {

namespace detail {

// A static value in a tree, and the assignment from another value of its type.
struct StaticValue {
  void* value;
  void (*assign)(void* to, const void* from);
};
struct StaticCollector {
  std::vector<StaticValue> values;
  template <class T>
  void operator()(T& part, const Place&) {
    if constexpr (requires { part.settle(); }) part.settle();  // determines static values that are still pending
    if constexpr (is_value<T>())
      values.push_back(
          {&part, [](void* to, const void* from) { *static_cast<T*>(to) = *static_cast<const T*>(from); }});
  }
};
template <class Tree>
std::vector<StaticValue> static_values(Tree& tree) {
  StaticCollector collector;
  walk_all(tree, collector);
  return std::move(collector.values);
}
// Throws Error (invalid_argument) unless model and copy have static values of the same types.
void check_alike(const std::vector<StaticValue>& model, const std::vector<StaticValue>& copy, const char* verb);

// Returns the arrays of a model after a call on a copy of it: the copy's arrays for Buffers that the call changed,
// otherwise the model's own. `given` are the copy's arrays before the call, `left` its arrays afterwards. With
// `settle`, changed Buffers become plain values, without a graph and with their previous sharding.
// Errors
//   invalid_argument: an assignment to an array that is not a Buffer; a structure that differs from the model's
//   shape_mismatch, dtype_mismatch: a Buffer whose shape or element type has changed
//   missing_array: a Buffer that is absent
std::vector<Array> kept_after_call(const Leaves& model, size_t structure, const std::vector<Array>& given,
                                   const BareArrays& left, const char* verb, bool settle);

std::vector<Array> values_of(const std::vector<Array*>& arrays);
void set_values(const std::vector<Array*>& arrays, const std::vector<Array>& values);

// Writes the Buffers in `kept`, and the copy's static fields, to the model.
template <class Model>
void write_back(Model& model, const Leaves& places, const std::vector<Array>& kept, Model& copy, const char* verb) {
  const std::vector<StaticValue> to = static_values(model), from = static_values(copy);
  check_alike(to, from, verb);
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i].kind == Kind::buffer) *places[i].value = kept[i];
  for (size_t i = 0; i < to.size(); ++i) to[i].assign(to[i].value, from[i].value);
}

// Writes back the copy's own Buffers, which are already plain values.
template <class Model>
void take_state(Model& model, Model& copy) {
  const Leaves places = leaves(model);
  write_back(model, places, values_of(bare_arrays(copy).arrays), copy, "accumulate_gradients");
}

// Type with which a call takes its model. A temporary counts as const, because changes to it would be lost.
template <class Model>
using AsModel = std::conditional_t<std::is_lvalue_reference_v<Model>, std::remove_reference_t<Model>,
                                   const std::remove_reference_t<Model>>;

}  // namespace detail

// Copies the Buffers of `from` to `to`, another copy of the same model. Use it in a loss that works on a cast or
// filtered copy.
//   Array loss(Model& model, const Batch& batch) {
//     Model half = nn::cast(model, bfloat16, !nn::is_buffer);
//     const Array prediction = half(batch.x);
//     nn::copy_buffers(half, model);
// Errors
//   invalid_argument: trees of different structures
//   shape_mismatch, dtype_mismatch: shapes or element types that differ
void copy_buffers(const Leaves& from, const Leaves& to);
template <class Model>
void copy_buffers(const Model& from, Model& to) {
  copy_buffers(leaves(from), leaves(to));
}

}  // namespace tessera::nn
