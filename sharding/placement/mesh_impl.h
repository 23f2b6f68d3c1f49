// MeshImpl: the data of a Mesh, sets of its axes, and the positions of devices and processes in the grid.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/placement/mesh.h"

namespace tessera::detail {

// A set of mesh axes: bit i for axis i. Positions over a set are numbered row-major, with axis 0 as major.
using AxisSet = uint32_t;
constexpr int max_axes = 16;

class Engine;  // sharding/redistribution/engine.h

// The value of a mesh. make_mesh interns meshes by comparing all members, so a new member needs no further code.
struct MeshImpl {
  std::vector<MeshAxis> axes;
  std::vector<int> devices;
  bool private_replicas = false;
  bool abstract = false;          // no hardware: one device represents all
  c10::Device device{c10::kCPU};  // device of the local tensors; meta for an abstract mesh
  // This process's box of the grid: extent[a] devices from first[a] on, along each mesh axis a.
  std::vector<int> first, extent;
  std::vector<int> box;  // for an abstract mesh: the extents that a process's box would have
  int process = 0, processes = 1;
  int each = 0;  // ids per process: process p has those from p * each on; 0: this process has all
  // For a sub-mesh: its whole mesh, and the axis and coordinate that selected its devices. The sub-mesh has the same
  // axes, and this axis has size one.
  const MeshImpl* parent = nullptr;
  int cut_axis = -1, cut_at = 0;
  // All devices belong to other processes. Such a mesh is abstract: its arrays have no data here.
  bool elsewhere = false;
  const Engine* engine = nullptr;  // transfers tensors between the devices

  friend bool operator==(const MeshImpl&, const MeshImpl&) = default;

  AxisSet all() const { return (AxisSet{1} << axes.size()) - 1; }
  // Returns the mesh axes along which an array that differs along `set` is stored as separate tensors.
  AxisSet stored(AxisSet set) const { return abstract ? 0 : private_replicas ? all() : set; }
  // Returns the axes that stored() would return without private replicas.
  AxisSet distinct(AxisSet set) const { return abstract ? 0 : set; }
  int count(AxisSet set) const;  // the number of devices along these axes
  int slots(AxisSet set) const;  // the number of this process's devices along these axes
  bool has_no_hardware() const { return abstract && !elsewhere; }
  std::vector<int> members() const;      // the processes that have its devices, ascending
  std::string words_of_members() const;  // returns, for example, "processes 2 and 3"
  // Marks the mesh as one whose devices all belong to other processes (see `elsewhere`).
  void put_elsewhere();
  // Returns true if several local shards of this process are computed on one CPU.
  bool shares_the_cpu() const { return device.is_cpu() && slots(all()) > 1; }
  AxisSet crossing() const;               // the mesh axes that span several processes
  int processes_over(AxisSet set) const;  // processes along these axes, also for an abstract mesh
  AxisSet across_machines() const;        // the mesh axes that span several machines
  int process_of(int place) const;        // the process that has the device at this row-major place
  int machine_of(int place) const;        // the machine of the device at this row-major place
  int find(std::string_view name) const;  // -1 if there is none
  std::string names(AxisSet set) const;   // returns, for example, "data,model"
  // Returns the same text with static lifetime; null for the empty set.
  const std::string* kept_names(AxisSet set) const;
};

// Returns the engine for a mesh whose other members are set. Defined in sharding/redistribution/engine_local.cpp.
const Engine* choose_engine(const MeshImpl& mesh);

// Returns the extents of each process's box of the grid, if each process has adjacent devices. With 0 processes each
// device has its own process. Empty if the processes do not have equal boxes.
std::vector<int> box_of_each(const std::vector<MeshAxis>& axes, int processes);

// Returns the device ids of a grid, row-major. `machines` has the machine of each process, numbered from 0. Process p
// has the ids from p * each on; the grid takes the first ones, equally many of every process. Places are filled process
// by process, machine by machine, so the last axes are within a machine. On one machine the ids are 0, 1, 2, ... of
// each process. An axis marked `across` alternates between machines: with m machines along it, coordinate i is on
// machine i % m. Several such axes share the machines, each with a factor above one.
//
// Errors (device_mismatch) of make_mesh: the number of processes does not divide the grid; the machines have unequal
// numbers of processes; the number of machines does not divide the axes marked `across`.
std::vector<int> device_order(const std::vector<MeshAxis>& axes, const std::vector<int>& machines, int64_t each);

// Returns the mesh from which a sub-mesh was made; any other mesh itself.
inline const MeshImpl* whole_of(const MeshImpl* mesh) { return mesh && mesh->parent ? mesh->parent : mesh; }
// Returns true if both are sub-meshes of one mesh along one axis, or one is a sub-mesh of the other; false if equal.
inline bool are_stages(const MeshImpl* a, const MeshImpl* b) {
  return a != b && a && b && whole_of(a) == whole_of(b) && (!a->parent || !b->parent || a->cut_axis == b->cut_axis);
}
// Returns the axis along which the devices of a sub-mesh were selected, as a set; the empty set for a whole mesh.
inline AxisSet cut_of(const MeshImpl* mesh) { return mesh && mesh->parent ? AxisSet{1} << mesh->cut_axis : 0; }

// Throws an Error (inconsistent) unless all processes that have devices of the mesh pass the same text (consensus.h).
// These processes call it at the same place in the program; other processes do not.
void check_agreement(const char* verb, const MeshImpl* mesh, const std::string& text);

// A device's coordinates in the whole mesh, one per mesh axis; initially the coordinates of this process's first
// device.
struct Coordinates {
  int along[max_axes] = {};
  explicit Coordinates(const MeshImpl* mesh);
  operator int*() { return along; }
  operator const int*() const { return along; }
};
// Returns the coordinates of the device at this row-major place of the mesh, in any process.
Coordinates coordinates_of(const MeshImpl* mesh, int place);

// Sets the coordinates along the axes in `set` to the coordinates of this process's slot `index`. Coordinates along
// other axes are unchanged.
void unravel(const MeshImpl* mesh, AxisSet set, int index, int* coordinates);
// The inverse of unravel: returns the slot over `set` at these coordinates, as numbered in the process that has it.
int ravel(const MeshImpl* mesh, AxisSet set, const int* coordinates);
// Returns the slot over `to` at the position of slot `index` over `from`. Along axes that `from` lacks, it uses the
// process's first device.
int project(const MeshImpl* mesh, AxisSet from, int index, AxisSet to);
// Do the same as unravel and ravel, for all devices of the mesh, in any process.
void unravel_place(const MeshImpl* mesh, AxisSet set, int index, int* coordinates);
int ravel_place(const MeshImpl* mesh, AxisSet set, const int* coordinates);

// Returns the processes whose devices differ from this process's only along these axes, including this one, row-major.
std::vector<int> processes_along(const MeshImpl* mesh, AxisSet axes);
// processes_along returns a list: process_along finds the process with these coordinates and returns its index there.
// move_to_process moves the coordinates to the same position in the box of the list's n-th process.
int process_along(const MeshImpl* mesh, AxisSet axes, const int* coordinates);
void move_to_process(const MeshImpl* mesh, AxisSet axes, int n, int* coordinates);

}  // namespace tessera::detail
