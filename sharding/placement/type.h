// Type: shape, element type and placement of an array, interned as one pointer; the vocabulary of propagation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "sharding/placement/dtype.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/placement/shape.h"

namespace tessera::detail {

// The mesh axes that shard one dim, major to minor, stored inline.
class DimAxes {
 public:
  DimAxes() = default;
  DimAxes(std::initializer_list<int> axes) {
    for (int a : axes) push_back(a);
  }
  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int operator[](int i) const { return axes_[i]; }
  int back() const { return axes_[size_ - 1]; }
  void push_back(int axis) { axes_[size_++] = static_cast<int8_t>(axis); }
  void pop_back() { axes_[--size_] = 0; }
  const int8_t* begin() const { return axes_; }
  const int8_t* end() const { return axes_ + size_; }
  AxisSet axis_set() const {
    AxisSet m = 0;
    for (int a : *this) m |= AxisSet{1} << a;
    return m;
  }
  bool is_prefix_of(const DimAxes& other) const {
    return size_ <= other.size_ && std::equal(begin(), end(), other.begin());
  }
  friend bool operator==(const DimAxes& a, const DimAxes& b) {
    return a.size_ == b.size_ && std::equal(a.begin(), a.end(), b.begin());
  }

 private:
  int8_t axes_[max_axes] = {};
  int8_t size_ = 0;
};

// The mesh axes that shard any of these dims.
AxisSet axis_set_of(const std::vector<DimAxes>& dims);

// What identifies a type. Axes of size one never appear. `mesh` is null for an uncommitted array.
struct TypeKey {
  DType dtype = DType::float32;
  Shape shape;
  const MeshImpl* mesh = nullptr;
  std::vector<DimAxes> dims;
  AxisSet unreduced = 0, reduced = 0, varying = 0;
  // Bit d: the axes need not divide dim d, whose blocks are then padded. Of an interned type: those that are.
  uint64_t padded = 0;
};

constexpr uint64_t any_dim = ~uint64_t{0};  // for TypeKey::padded

struct Type : TypeKey {
  AxisSet sharded = 0;
  Shape local;           // one block, of a padded dim the padding included
  int64_t bytes = 0;     // of one block
  int64_t elements = 1;  // global
  AxisSet slots = 0;     // the mesh axes along which devices store separate tensors

  // Whether the axes of dim d do not divide it.
  bool is_padded(size_t d) const { return padded >> d & 1; }
  // The mesh axes along which devices hold different values.
  AxisSet own() const { return sharded | unreduced | varying; }
  // float32[8@data,4@model]{U:pipe}; of a padded dim, 5 and the padding: float32[5+1@data]
  std::string to_string() const;
};

// The one Type of this key. Errors, which begin with `verb`: a dim that its axes do not divide and that may not be
// padded (not_divisible).
const Type* intern(TypeKey key, const char* verb = "sharding");

const Type* uncommitted_type(DType dtype, Shape shape);
// The same type, but for its set of reduced axes, its set of unreduced axes, or its element type.
const Type* with_reduced(const Type* type, AxisSet reduced);
const Type* with_unreduced(const Type* type, AxisSet unreduced);
const Type* with_dtype(const Type* type, DType dtype);
// Without both sets, which only arrays in a computation have.
const Type* at_rest(const Type* type);
// The type that an uncommitted array takes on a mesh: replicated. A type that has a mesh stays as it is.
const Type* on_mesh(const Type* type, const MeshImpl* mesh);

// [start, stop) of every dim of the block at these coordinates of the mesh, without padding: the last blocks of a
// padded dim are shorter than Type::local, or empty.
IndexRanges block_of(const Type* type, const int* coordinates);

// Along a dim that is sharded over `axes`: the number of the block that the device at these coordinates has.
int64_t block_number(const MeshImpl* mesh, const DimAxes& axes, const int* coordinates);

// The size divided, and rounded up: the last blocks may be padded, or empty.
constexpr int64_t block_size(int64_t size, int64_t blocks) { return (size + blocks - 1) / blocks; }

// The manual axes of the innermost shard_map whose body runs; `mesh` is null outside of one.
struct ManualAxes {
  const MeshImpl* mesh = nullptr;
  AxisSet axes = 0;
};

// This thread's; a ScopedValue sets them.
inline ManualAxes& manual_axes() {
  thread_local ManualAxes innermost;
  return innermost;
}

}  // namespace tessera::detail
