// MeshImpl: what stands behind a Mesh, sets of its axes, and where devices and processes stand in the grid.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/placement/mesh.h"

namespace tessera::detail {

// A set of mesh axes, bit i for axis i. Coordinates over a set are counted row-major, axis 0 major.
using AxisSet = uint32_t;
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

  AxisSet all() const { return (AxisSet{1} << axes.size()) - 1; }
  // Of what differs along these axes: the axes along which its tensors are stored apart.
  AxisSet stored(AxisSet set) const { return abstract ? 0 : private_replicas ? all() : set; }
  // The same without copies of what is equal.
  AxisSet distinct(AxisSet set) const { return abstract ? 0 : set; }
  int count(AxisSet set) const;           // devices along these axes
  int slots(AxisSet set) const;           // of them, those of this process
  AxisSet crossing() const;               // the axes along which lie devices of several processes
  int process_of(int place) const;        // the process that has the device at this place of the whole mesh
  int find(std::string_view name) const;  // -1 if there is none
  std::string names(AxisSet set) const;   // "data,model"
  // The same, kept for the program's life; null of none.
  const std::string* kept_names(AxisSet set) const;
};

// Where a device stands in the whole mesh, one number for each axis; at first, where this process's first device does.
struct Coordinates {
  int along[max_axes] = {};
  explicit Coordinates(const MeshImpl* mesh);
  operator int*() { return along; }
  operator const int*() const { return along; }
};

// Of this process's slots. Coordinates of slot `index` over the axes in `set`; axes outside it are left alone.
void unravel(const MeshImpl* mesh, AxisSet set, int index, int* coordinates);
// The inverse: the slot over `set` of these coordinates, in the process that has them.
int ravel(const MeshImpl* mesh, AxisSet set, const int* coordinates);
// The slot over `to` of slot `index` over `from`; axes of `to` that `from` lacks count as the process's first.
int project(const MeshImpl* mesh, AxisSet from, int index, AxisSet to);
// The same for all devices of the mesh, whichever process has them.
void unravel_place(const MeshImpl* mesh, AxisSet set, int index, int* coordinates);
int ravel_place(const MeshImpl* mesh, AxisSet set, const int* coordinates);

// The processes whose devices differ from this one's along these axes only, this one among them, row-major.
std::vector<int> processes_along(const MeshImpl* mesh, AxisSet axes);
// Which of them has the device at these coordinates, and the coordinates at the same place of the n-th.
int process_along(const MeshImpl* mesh, AxisSet axes, const int* coordinates);
void move_to_process(const MeshImpl* mesh, AxisSet axes, int n, int* coordinates);

}  // namespace tessera::detail
