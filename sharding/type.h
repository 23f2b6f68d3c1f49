// Type: shape, element type and placement of an array, interned as one pointer; the vocabulary of propagation.
#pragma once

#include <c10/core/Device.h>

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "sharding/dtype.h"
#include "sharding/named_sharding.h"

namespace tessera::detail {

// A set of mesh axes, bit i for axis i. Coordinates over a set are counted row-major, axis 0 major.
using Mask = uint32_t;
constexpr int max_axes = 16;

struct MeshImpl {
  std::vector<MeshAxis> axes;
  std::vector<int> devices;
  bool private_replicas = false;
  bool abstract = false;          // no hardware: one device stands for all
  c10::Device device{c10::kCPU};  // whose memory the local tensors lie in; of an abstract mesh meta
  // This process's devices: those from first[a] on, extent[a] of them, along each axis a. All where it is alone.
  std::vector<int> first, extent;
  int process = 0, processes = 1;
  int each = 0;  // how many ids a process has: process p those from p * each on; 0: all ids are this process's

  Mask all() const { return (Mask{1} << axes.size()) - 1; }
  // Of what differs along these axes: the axes along which its tensors are stored apart.
  Mask stored(Mask set) const { return abstract ? 0 : private_replicas ? all() : set; }
  // The same without copies of what is equal.
  Mask distinct(Mask set) const { return abstract ? 0 : set; }
  int count(Mask set) const;              // devices along these axes
  int slots(Mask set) const;              // of them, those of this process
  Mask crossing() const;                  // the axes along which lie devices of several processes
  int process_of(int place) const;        // the process that has the device at this place of the whole mesh
  int find(std::string_view name) const;  // -1 if there is none
  std::string names(Mask set) const;      // "data,model"
  // The same, kept for the program's life; null of none.
  const std::string* kept_names(Mask set) const;
};

// Where a device stands in the whole mesh, one number for each axis; at first, where this process's first device does.
struct Coordinates {
  int along[max_axes] = {};
  explicit Coordinates(const MeshImpl* mesh);
  operator int*() { return along; }
  operator const int*() const { return along; }
};

// Of this process's slots. Coordinates of slot `index` over the axes in `set`; axes outside it are left alone.
void unravel(const MeshImpl* mesh, Mask set, int index, int* coordinates);
// The inverse: the slot over `set` of these coordinates, in the process that has them.
int ravel(const MeshImpl* mesh, Mask set, const int* coordinates);
// The slot over `to` of slot `index` over `from`; axes of `to` that `from` lacks count as the process's first.
int project(const MeshImpl* mesh, Mask from, int index, Mask to);
// The same for all devices of the mesh, whichever process has them.
void unravel_place(const MeshImpl* mesh, Mask set, int index, int* coordinates);
int ravel_place(const MeshImpl* mesh, Mask set, const int* coordinates);

// The processes whose devices differ from this one's along these axes only, this one among them, row-major.
std::vector<int> processes_along(const MeshImpl* mesh, Mask axes);
// Which of them has the device at these coordinates, and the coordinates at the same place of the n-th.
int process_along(const MeshImpl* mesh, Mask axes, const int* coordinates);
void move_to_process(const MeshImpl* mesh, Mask axes, int n, int* coordinates);

// The mesh axes that cut one dim, major to minor. Four suffice in practice; kept inline.
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
  Mask mask() const {
    Mask m = 0;
    for (int a : *this) m |= Mask{1} << a;
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

// The mesh axes that cut any of these dims.
Mask mask_of(const std::vector<DimAxes>& dims);

// What identifies a type. Axes of size one never appear. `mesh` is null for an uncommitted array.
struct TypeKey {
  DType dtype = DType::float32;
  Shape shape;
  const MeshImpl* mesh = nullptr;
  std::vector<DimAxes> dims;
  Mask unreduced = 0, reduced = 0, varying = 0;
};

struct Type : TypeKey {
  Mask sharded = 0;
  Shape local;           // one block
  int64_t bytes = 0;     // of one block
  int64_t elements = 1;  // global
  Mask slots = 0;        // the axes over which the devices' tensors are stored apart

  // The axes over which devices hold different things.
  Mask own() const { return sharded | unreduced | varying; }
  // float32[8@data,4@model]{U:pipe}
  std::string to_string() const;
};

// The one Type of this key. Errors, which begin with `verb`: a dim that its axes do not divide (uneven).
const Type* intern(TypeKey key, const char* verb = "sharding");

const Type* uncommitted_type(DType dtype, Shape shape);
const Type* placed_type(DType dtype, const Shape& shape, const NamedSharding& sharding, const char* verb = "sharding");
// The same shape and placement over another set of reduced axes, with another element type, ...
const Type* with_reduced(const Type* type, Mask reduced);
const Type* with_unreduced(const Type* type, Mask unreduced);
const Type* with_dtype(const Type* type, DType dtype);
// The type that an uncommitted array takes on a mesh: replicated. Others stay as they are.
const Type* on_mesh(const Type* type, const MeshImpl* mesh);
NamedSharding sharding_of(const Type* type);

// [start, stop) of every dim of the block at these coordinates of the mesh.
IndexRanges block_of(const Type* type, const int* coordinates);

// [0, size) of every dim.
IndexRanges whole_block(const Shape& shape);

// The coordinates that `dim`'s axes give, as the number of the block along that dim.
int64_t block_number(const MeshImpl* mesh, const DimAxes& axes, const int* coordinates);

}  // namespace tessera::detail
