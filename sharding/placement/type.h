// Type: shape, element type and sharding of an array, interned as one pointer. Propagation works on types.
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

// The mesh axes that shard one dimension, major to minor, stored inline.
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

// Returns the mesh axes that shard any of these dimensions.
AxisSet axis_set_of(const std::vector<DimAxes>& dims);

// The key that identifies a type. Axes of size one never appear. `mesh` is null for an uncommitted array.
struct TypeKey {
  DType dtype = DType::float32;
  Shape shape;
  const MeshImpl* mesh = nullptr;
  std::vector<DimAxes> dims;
  AxisSet unreduced = 0, reduced = 0, varying = 0;
  // Bit d: the axes need not divide dimension d, whose blocks are then padded. An interned type has bits only for
  // padded dimensions.
  uint64_t padded = 0;
};

constexpr uint64_t any_dim = ~uint64_t{0};  // for TypeKey::padded

struct Type : TypeKey {
  AxisSet sharded = 0;
  Shape local;           // shape of one block, including padding
  int64_t bytes = 0;     // bytes of one block
  int64_t elements = 1;  // global
  AxisSet slots = 0;     // the mesh axes along which devices store separate tensors

  // Returns true if the axes of dimension d do not divide it.
  bool is_padded(size_t d) const { return padded >> d & 1; }
  // Returns the mesh axes along which devices hold different values.
  AxisSet own() const { return sharded | unreduced | varying; }
  // Returns, for example, "float32[8@data,4@model]{U:pipe}"; a padded dimension shows size and padding:
  // "float32[5+1@data]".
  std::string to_string() const;
};

// Returns the unique Type of this key. Error (not_divisible), with `verb` first in its message: a dimension that its
// axes do not divide and that may not be padded.
const Type* intern(TypeKey key, const char* verb = "sharding");

const Type* uncommitted_type(DType dtype, Shape shape);
// Return the same type with another set of reduced axes, set of unreduced axes, or element type.
const Type* with_reduced(const Type* type, AxisSet reduced);
const Type* with_unreduced(const Type* type, AxisSet unreduced);
const Type* with_dtype(const Type* type, DType dtype);
// Returns the type without reduced and unreduced axes, which exist only during a computation.
const Type* at_rest(const Type* type);
// Returns the same type with no dimension sharded over these mesh axes.
const Type* without_axes(const Type* type, AxisSet axes);
// Returns the type of an uncommitted array on a mesh: replicated. A type with a mesh is returned unchanged.
const Type* on_mesh(const Type* type, const MeshImpl* mesh);

// Shards `type` also over the named axes that it does not use yet, along the first dimension that they divide. ZeRO-1
// shards optimizer state and its gradients in this way. Returns `type` itself if they divide no dimension.
const Type* cut_further(const Type* type, const std::vector<std::string>& axes);

// Checks the axes of an option. The message begins with `verb` and names `option`.
// Errors
//   unknown_axis: an axis that the mesh does not have; not checked if `mesh` is null
//   invalid_argument: an axis given twice
void check_axes(const char* verb, const char* option, const std::vector<std::string>& axes, const MeshImpl* mesh);

// Returns [start, stop) of every dimension of the block at these mesh coordinates, without padding. So the last blocks
// of a padded dimension are shorter than Type::local, or empty.
IndexRanges block_of(const Type* type, const int* coordinates);

// Returns the index, along a dimension sharded over `axes`, of the block at these coordinates.
int64_t block_number(const MeshImpl* mesh, const DimAxes& axes, const int* coordinates);

// Returns the size of one block: the quotient rounded up. The last blocks may be padded, or empty.
constexpr int64_t block_size(int64_t size, int64_t blocks) { return (size + blocks - 1) / blocks; }

// The manual axes of the innermost shard_map whose body is running; `mesh` is null outside of shard_map.
struct ManualAxes {
  const MeshImpl* mesh = nullptr;
  AxisSet axes = 0;
};

// Returns this thread's manual axes, which a ScopedValue sets.
inline ManualAxes& manual_axes() {
  thread_local ManualAxes innermost;
  return innermost;
}

}  // namespace tessera::detail
