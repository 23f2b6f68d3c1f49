// Compares local tensors with their type, and replicas bit by bit.
#include "sharding/array/consistency.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "sharding/array/padding.h"
#include "sharding/base/error.h"

namespace tessera::detail {

void fail_broken(const char* verb, const std::string& what) {
  fail(ErrorKind::inconsistent, verb,
       what +
           " Give all processes the same arguments, seeds and values, and do not write into the tensors of the "
           "library. Otherwise this is a bug of the library.");
}

// Computes the hash FNV-1a over 64-bit words.
uint64_t checksum(const at::Tensor& t) {
  const at::Tensor plain = t.detach().cpu().contiguous();
  const auto* bytes = static_cast<const char*>(plain.const_data_ptr());
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < plain.nbytes(); i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min(sizeof(word), plain.nbytes() - i));
    hash = (hash ^ word) * 0x100000001b3;
  }
  return hash;
}

namespace {

std::string name_of(const ArrayImpl& a) {
  return (a.details && a.details->path ? *a.details->path + ": " : "") + a.type->to_string();
}

bool shares_memory(const at::Tensor& a, const at::Tensor& b) {
  return a.const_data_ptr() == b.const_data_ptr() && a.strides() == b.strides();
}

void check_tensors(const ArrayImpl& a, const char* verb) {
  const Type* type = a.type;
  const size_t expected = type->mesh ? type->mesh->slots(a.slots) : 1;
  if (a.local.size() != expected)
    fail_broken(verb, fmt::format("{} has {} local tensors, expected {}.", name_of(a), a.local.size(), expected));
  for (const at::Tensor& t : a.local)
    if (t.sizes() != at::IntArrayRef(type->local) || t.scalar_type() != scalar_type(type->dtype))
      fail_broken(verb,
                  fmt::format("{} has a local tensor {}{}, expected {}{}.", name_of(a), c10::toString(t.scalar_type()),
                              to_string(t.sizes().vec()), tessera::name_of(type->dtype), to_string(type->local)));
  if (!has_clear_padding(a)) fail_broken(verb, name_of(a) + " has values in its padding, expected zeros.");
}

// Returns the device at a slot; the first one, if several share its tensor.
int device_at(const ArrayImpl& a, int slot) {
  const MeshImpl* mesh = a.type->mesh;
  Coordinates coordinates(mesh);
  unravel(mesh, a.slots, slot, coordinates);
  return mesh->devices[ravel_place(mesh, mesh->all(), coordinates)];
}

void check_replicas(const ArrayImpl& a, const char* verb) {
  const MeshImpl* mesh = a.type->mesh;
  for (int s = 0; s < mesh->slots(a.slots); ++s) {
    const int first = project(mesh, a.type->own(), project(mesh, a.slots, s, a.type->own()), a.slots);
    const at::Tensor &one = a.local[first], &other = a.local[s];
    if (first == s || shares_memory(one, other)) continue;
    if (const uint64_t x = checksum(one), y = checksum(other); x != y)
      fail_broken(verb,
                  fmt::format("{}: devices {} and {} hold different values of the same block (checksums {:016x} and "
                              "{:016x}).",
                              name_of(a), device_at(a, first), device_at(a, s), x, y));
  }
}

}  // namespace

void check_array(const ArrayImpl& a, const char* verb) {
  check_tensors(a, verb);
  if (a.type->mesh && (a.slots & ~a.type->own())) check_replicas(a, verb);
}

}  // namespace tessera::detail
