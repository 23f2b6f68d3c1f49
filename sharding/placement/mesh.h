// Mesh: a grid of devices with named axes, on which shardings are defined.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/base/error.h"

namespace tessera {

namespace detail {
struct MeshImpl;
}

// The order of devices along a mesh axis. near: determined by the position of the axis. across: adjacent devices are on
// different machines.
enum class AxisLocality : uint8_t { near, across };
inline constexpr AxisLocality across = AxisLocality::across;

// One axis of a mesh: its name and its number of devices. make_mesh uses `across` to order devices; the axes of the
// resulting mesh are not marked.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
  AxisLocality locality = AxisLocality::near;
  friend std::ostream& operator<<(std::ostream& out, const MeshAxis& axis);  // prints data=4, or data=4:across
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

struct MeshOptions {
  // Device ids in row-major order of the mesh axes. Empty: 0, 1, 2, ...; with several processes the first ids of each
  // process, with the processes of a machine adjacent.
  std::vector<int> devices = {};
  // Stores a copy of each block on every device, and collectives copy data. Otherwise the devices of a process share
  // one tensor per distinct block. Slower; for tests. The environment variable TESSERA_PRIVATE_REPLICAS=1 sets it too.
  bool private_replicas = false;
  // Makes a mesh without hardware (JAX: AbstractMesh). The same programs run on it, at the cost of one device. Arrays
  // have shapes, shardings and bytes but no data, and a ledger records the communication that devices would do; see
  // forecast.h. Reading a value is an Error (invalid_argument). Environment variables do not apply to it.
  bool abstract = false;
  // For an abstract mesh: how many processes its devices belong to. Each has equally many adjacent devices, as on a
  // mesh with hardware. A Forecast counts the memory that a process needs to communicate with others. 0: each device
  // has its own process.
  int num_processes = 0;
  // The memory of this process's devices, in LibTorch's notation: "cpu", "cuda" or "cuda:1". All devices of the process
  // share this memory, as virtual devices share a CPU. Empty: the environment variable TESSERA_DEVICE, else "cpu".
  // "cuda" without a number is the only accelerator that the process sees, or the n-th one for the n-th process of its
  // machine.
  std::string device = {};
};

// A handle to an interned, immutable grid of devices. Equal meshes are the same pointer, and copies are free. The
// devices are one of the following:
// - virtual devices of the CPU or of an accelerator (MeshOptions::device), of this process or of all processes
//   (processes.h)
// - devices without hardware (MeshOptions::abstract)
// A mesh of one device is valid and communicates nothing.
class Mesh {
 public:
  Mesh() = default;  // no mesh

  const std::vector<MeshAxis>& axes() const;
  const std::vector<int>& devices() const;         // ids, row-major
  int64_t size() const;                            // number of devices
  int64_t size(std::string_view mesh_axis) const;  // devices along one axis; Error (unknown_axis) if there is none
  bool has_axis(std::string_view mesh_axis) const;
  bool private_replicas() const;
  bool is_abstract() const;    // also true if all devices belong to other processes, since this process has no data
  std::string device() const;  // this process's device: "cpu", "cuda:0"; "meta" for an abstract mesh
  // Return the number of processes that have devices of the mesh (equally many each), and this process's index among
  // them, or -1 if it has none.
  int process_count() const;
  int process_index() const;
  std::vector<int> local_devices() const;  // ids of this process's devices, row-major
  // Returns the machine of each device, row-major. Machines are numbered from 0 in the order of their first processes.
  std::vector<int> machines() const;
  bool empty() const { return impl_ == nullptr; }

  // Returns "data=4, model=2"; for a sub-mesh "pipe[1], data=4"; if an axis spans machines, "data=4 across machines,
  // model=2".
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const Mesh& mesh);

  friend bool operator==(Mesh a, Mesh b) { return a.impl_ == b.impl_; }

  explicit Mesh(const detail::MeshImpl* impl) : impl_(impl) {}
  const detail::MeshImpl* impl() const { return impl_; }

 private:
  const detail::MeshImpl* impl_ = nullptr;
};

// Returns the mesh with these axes, for example over virtual CPU devices, or over eight virtual devices of a GPU:
//   make_mesh({{"data", 4}, {"model", 2}})
//   make_mesh({{"data", 8}}, {.device = "cuda"})
//
// On several machines the processes of one machine are adjacent, whatever their ranks, so the last axes are within a
// machine. An axis marked `across` spans the machines instead, at any position. Adjacent devices along it are on
// different machines, and the other axes are within a machine. The machines must have equally many processes, and the
// number of machines must divide the axis. Several marked axes share the machines, each with a factor above one. On 8
// machines:
//   make_mesh({{"model", 4}, {"data", 8, across}})
// On one machine, and on an abstract mesh, the mark has no effect.
//
// With the environment variable TESSERA_CPU_DEVICES=n every process has n devices; process p has the ids from p * n on.
// Without it there are as many devices as the mesh needs, equally many per process. Each process has a box of the grid,
// and all boxes have the same extents. So a mesh axis is within processes, across them, or both. All processes make the
// mesh with the same arguments.
//
// MeshOptions::devices may belong to some of the processes only, or to one:
//   make_mesh({{"data", 2}}, {.devices = {2, 3}})      // of four processes that have a device each
// The other processes may skip the mesh. Or they make it too and run the same program: their arrays on it have shapes
// and shardings but no data, and nothing is computed or communicated for them.
//
// Errors
//   duplicate_axis: two axes of the same name
//   invalid_argument: more than 16 axes; an axis without a name, or with a size below one; `across` together with
//     MeshOptions::devices; `devices`, `device` or `private_replicas` of an abstract mesh; `num_processes` of a mesh
//     that is not abstract
//   device_mismatch: a number of devices that is not a multiple of the number of processes; a mesh larger than
//     TESSERA_CPU_DEVICES allows; MeshOptions::devices with repetitions, unknown ids, or a length that differs from the
//     grid's; devices that do not form boxes of equal extents, one for each process that has any (the message names the
//     processes); machines that cannot hold an axis marked `across`; a kind of device that LibTorch does not have here
Mesh make_mesh(std::vector<MeshAxis> axes, MeshOptions options = {});

namespace detail {
struct LooseAxis {
  LooseAxis(const char* name, int64_t size);
};
struct SwappedAxis {
  SwappedAxis(int64_t size, const char* name);
};
struct LooseSizes {
  LooseSizes(std::initializer_list<int> sizes);
};
struct LooseNames {
  LooseNames(std::initializer_list<const char*> names);
};
}  // namespace detail
// Diagnostics for common mistakes: axes that are not a list, a size before its name, sizes separate from their names.
template <class Nothing = void>
Mesh make_mesh(detail::LooseAxis, detail::LooseAxis = {"", 1}, detail::LooseAxis = {"", 1}) {
  static_assert(detail::dependent_false<Nothing>,
                "tessera: the axes of a mesh must be a list, even for one axis: make_mesh({{\"data\", 4}}).");
  return {};
}
template <class Nothing = void>
Mesh make_mesh(std::vector<detail::SwappedAxis>) {
  static_assert(detail::dependent_false<Nothing>,
                "tessera: an axis has a name and a size, in this order: make_mesh({{\"data\", 4}}).");
  return {};
}
template <class Nothing = void>
Mesh make_mesh(detail::LooseSizes, detail::LooseNames) {
  static_assert(detail::dependent_false<Nothing>,
                "tessera: an axis has a name and a size, in this order: make_mesh({{\"data\", 4}}).");
  return {};
}

// Returns the devices of `mesh` at coordinate `at` along `mesh_axis`, as a mesh with the same axes, in which
// `mesh_axis` has size one. Equal sub-meshes are the same pointer.
//   sub_mesh(make_mesh({{"pipe", 2}, {"data", 4}}), "pipe", 1)      // the second half: pipe=1, data=4
// All processes may call it. Processes without devices of the sub-mesh run the same program: their arrays on it have
// shapes and shardings but no data, nothing is computed or communicated for them, and is_abstract() is true.
//
// An operation may take arrays of several sub-meshes along one axis, and of the whole mesh. It runs on the sub-mesh of
// its parameters, or on the last sub-mesh if it has no parameters. Activations are communicated to that sub-mesh, and
// their gradients back. Arrays on the whole mesh are not communicated, because each sub-mesh already has its blocks.
//
// Errors
//   unknown_axis: an axis that the mesh does not have
//   invalid_argument: a coordinate out of range; a mesh that is a sub-mesh already
Mesh sub_mesh(const Mesh& mesh, std::string_view mesh_axis, int64_t at);

// Returns the mesh from which a sub-mesh was made, or `mesh` itself for any other mesh.
Mesh whole_mesh(const Mesh& mesh);

// Return the ids and the numbers of all devices of this run, and of this process's devices. A process has
// TESSERA_CPU_DEVICES devices, one without that variable (a mesh may still have more: see make_mesh), or one GPU with
// TESSERA_DEVICE=cuda.
//   make_mesh({{"data", device_count() / local_device_count()}, {"model", local_device_count()}})
std::vector<int> devices();
std::vector<int> local_devices();
int64_t device_count();
int64_t local_device_count();

// Parses mesh axes as the command line spells them: "data=4,model=2"; "model=2,data=4:across" is {{"model", 2},
// {"data", 4, across}}. Names consist of letters, digits and underscores; others are an Error (invalid_argument).
std::vector<MeshAxis> parse_mesh_axes(std::string_view text);

}  // namespace tessera
