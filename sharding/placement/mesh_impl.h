// MeshImpl: what stands behind a Mesh, sets of its axes, and where devices and processes stand in the grid.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/placement/mesh.h"

namespace tessera::detail {

// A set of mesh axes: bit i for axis i. Positions over a set are numbered row-major, axis 0 major.
using AxisSet = uint32_t;
constexpr int max_axes = 16;

class Engine;  // sharding/redistribution/engine.h

// The value of a mesh. make_mesh interns meshes by comparing all members, so that a new member needs no other code.
struct MeshImpl {
  std::vector<MeshAxis> axes;
  std::vector<int> devices;
  bool private_replicas = false;
  bool abstract = false;          // no hardware: one device stands for all
  c10::Device device{c10::kCPU};  // that holds the local tensors; meta for an abstract mesh
  // This process's box of the grid: extent[a] devices from first[a] on, along each mesh axis a.
  std::vector<int> first, extent;
  std::vector<int> box;  // of an abstract mesh: the extents that a process's box would have
  int process = 0, processes = 1;
  int each = 0;  // device ids per process: process p has those from p * each on; 0: this process has all
  // Of a sub-mesh: the mesh that it is cut from, at which coordinate of which of its axes. It has the same axes, that
  // one of size one.
  const MeshImpl* parent = nullptr;
  int cut_axis = -1, cut_at = 0;
  // All of its devices are those of other processes. It is abstract: its arrays have no data here.
  bool elsewhere = false;
  const Engine* engine = nullptr;  // moves tensors between the devices

  friend bool operator==(const MeshImpl&, const MeshImpl&) = default;

  AxisSet all() const { return (AxisSet{1} << axes.size()) - 1; }
  // The mesh axes along which an array that differs along `set` is stored as separate tensors.
  AxisSet stored(AxisSet set) const { return abstract ? 0 : private_replicas ? all() : set; }
  // The same without private replicas.
  AxisSet distinct(AxisSet set) const { return abstract ? 0 : set; }
  int count(AxisSet set) const;  // devices along these axes
  int slots(AxisSet set) const;  // of these, this process's
  bool has_no_hardware() const { return abstract && !elsewhere; }
  std::vector<int> members() const;      // the processes that have its devices, ascending
  std::string words_of_members() const;  // processes 2 and 3
  // Makes it one of other processes.
  void put_elsewhere();
  // Several slots of this process compute on one CPU.
  bool shares_the_cpu() const { return device.is_cpu() && slots(all()) > 1; }
  AxisSet crossing() const;               // the mesh axes along which devices of several processes lie
  int processes_over(AxisSet set) const;  // how many have the devices along these axes, or would, of an abstract mesh
  AxisSet across_machines() const;        // and of several machines
  int process_of(int place) const;        // the process that has the device at this row-major place of the mesh
  int machine_of(int place) const;        // and the machine that it is on
  int find(std::string_view name) const;  // -1 if there is none
  std::string names(AxisSet set) const;   // "data,model"
  // The same, valid for the program's life; null for the empty set.
  const std::string* kept_names(AxisSet set) const;
};

// Returns the engine for a mesh whose other members are set. Defined in sharding/redistribution/engine_choice.cpp.
const Engine* choose_engine(const MeshImpl& mesh);

// The extents of the block of the grid that each process has, if each has adjacent devices; 0 processes: one device
// each. Empty if the blocks are not equal boxes.
std::vector<int> box_of_each(const std::vector<MeshAxis>& axes, int processes);

// The mesh that a sub-mesh is cut from; any other mesh is whole itself.
inline const MeshImpl* whole_of(const MeshImpl* mesh) { return mesh && mesh->parent ? mesh->parent : mesh; }
// Whether both are one mesh's sub-meshes along one axis, or one is a sub-mesh of the other; not if they are the same.
inline bool are_stages(const MeshImpl* a, const MeshImpl* b) {
  return a != b && a && b && whole_of(a) == whole_of(b) && (!a->parent || !b->parent || a->cut_axis == b->cut_axis);
}
// The axis along which a sub-mesh is cut from its mesh, as a set; empty for a whole mesh.
inline AxisSet cut_of(const MeshImpl* mesh) { return mesh && mesh->parent ? AxisSet{1} << mesh->cut_axis : 0; }

// Error (inconsistent) unless all processes that have devices of the mesh have the same text (consensus.h); they call
// it at the same place. The others may be elsewhere in the program.
void check_agreement(const char* verb, const MeshImpl* mesh, const std::string& text);

// A device's coordinates in the whole mesh, one for each mesh axis; initially those of this process's first device.
struct Coordinates {
  int along[max_axes] = {};
  explicit Coordinates(const MeshImpl* mesh);
  operator int*() { return along; }
  operator const int*() const { return along; }
};

// Sets the coordinates over the axes in `set` to those of this process's slot `index`; other axes are left alone.
void unravel(const MeshImpl* mesh, AxisSet set, int index, int* coordinates);
// The inverse: the slot over `set` at these coordinates, as numbered in the process that has them.
int ravel(const MeshImpl* mesh, AxisSet set, const int* coordinates);
// The slot over `to` at the place of slot `index` over `from`; in axes that `from` lacks, the process's first device.
int project(const MeshImpl* mesh, AxisSet from, int index, AxisSet to);
// unravel and ravel for all devices of the mesh, whichever process has them.
void unravel_place(const MeshImpl* mesh, AxisSet set, int index, int* coordinates);
int ravel_place(const MeshImpl* mesh, AxisSet set, const int* coordinates);

// The processes whose devices differ from this process's along these axes only, this one included, row-major.
std::vector<int> processes_along(const MeshImpl* mesh, AxisSet axes);
// The index in that list of the process that has these coordinates; and these coordinates moved to the same place in
// the n-th process's box.
int process_along(const MeshImpl* mesh, AxisSet axes, const int* coordinates);
void move_to_process(const MeshImpl* mesh, AxisSet axes, int n, int* coordinates);

}  // namespace tessera::detail
