// Mesh: a grid of devices with named axes, in terms of which every placement is given.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/base/dependent_false.h"

namespace tessera {

namespace detail {
struct MeshImpl;
}

// Where the next device along a mesh axis is: at the position given by the order of the axes, or on another machine.
enum class AxisLocality : uint8_t { near, across };
inline constexpr AxisLocality across = AxisLocality::across;

// One axis of a mesh: its name and how many devices lie along it. What make_mesh makes of `across` is an order of
// devices, so a mesh's own axes are not marked.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
  AxisLocality locality = AxisLocality::near;
  friend std::ostream& operator<<(std::ostream& out, const MeshAxis& axis);  // data=4, or data=4:across
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

struct MeshOptions {
  // Device ids in row-major order of the mesh axes. Empty: 0, 1, 2, ...; with several processes the first ids of each,
  // the processes of a machine together.
  std::vector<int> devices = {};
  // Every device stores its own copy of its block, and collectives really copy; otherwise the devices of a process
  // share one tensor per distinct block. Slower; for tests. Also set by TESSERA_PRIVATE_REPLICAS=1 in the environment.
  bool private_replicas = false;
  // A mesh without hardware (JAX: AbstractMesh). The same programs run on it and cost no more than on one device:
  // arrays have shapes, placements and bytes but no data, and a ledger records what devices would communicate; see
  // forecast.h. Reading a value is an Error (invalid_argument). Environment variables do not apply to it.
  bool abstract = false;
  // Of an abstract mesh: how many processes its devices belong to. Each has equally many adjacent devices, as on a mesh
  // with hardware. A Forecast counts what a process holds to communicate with others. 0: each device has its own.
  int num_processes = 0;
  // Where this process's devices have their memory, as LibTorch names it: "cpu", or an accelerator, "cuda" or "cuda:1".
  // All devices of the process share that one, as virtual devices share a CPU. Empty: TESSERA_DEVICE of the
  // environment, else "cpu". Without a number: the only accelerator that the process sees, or the n-th for the n-th
  // process of its machine.
  std::string device = {};
};

// A handle to an interned, immutable grid: equal meshes are the same pointer, copies are free. Its devices are virtual
// devices of the CPU or of an accelerator (MeshOptions::device), of this process or of all processes (processes.h), or
// have no hardware (MeshOptions::abstract). A mesh of one device is legal and communicates nothing.
class Mesh {
 public:
  Mesh() = default;  // no mesh

  const std::vector<MeshAxis>& axes() const;
  const std::vector<int>& devices() const;         // ids, row-major
  int64_t size() const;                            // number of devices
  int64_t size(std::string_view mesh_axis) const;  // devices along one axis; Error (unknown_axis) if there is none
  bool has_axis(std::string_view mesh_axis) const;
  bool private_replicas() const;
  bool is_abstract() const;    // also where all devices are those of other processes: there is no data here
  std::string device() const;  // of this process: "cpu", "cuda:0"; "meta" for an abstract mesh
  // How many processes have the mesh's devices, equally many each, and this process's index among them; -1 if it has
  // none of them.
  int process_count() const;
  int process_index() const;
  std::vector<int> local_devices() const;  // ids of this process's devices, row-major
  // The machine of each device, row-major; machines are numbered from 0 in the order of their first processes.
  std::vector<int> machines() const;
  bool empty() const { return impl_ == nullptr; }

  // data=4, model=2; of a sub-mesh pipe[1], data=4; where devices along an axis are on several machines, data=4 across
  // machines, model=2
  std::string to_string() const;
  friend std::ostream& operator<<(std::ostream& out, const Mesh& mesh);

  friend bool operator==(Mesh a, Mesh b) { return a.impl_ == b.impl_; }

  explicit Mesh(const detail::MeshImpl* impl) : impl_(impl) {}
  const detail::MeshImpl* impl() const { return impl_; }

 private:
  const detail::MeshImpl* impl_ = nullptr;
};

// For example over virtual CPU devices, and over eight virtual devices of a GPU:
//   make_mesh({{"data", 4}, {"model", 2}})
//   make_mesh({{"data", 8}}, {.device = "cuda"})
//
// On several machines the processes of one machine are adjacent, whatever their ranks, so the axes named last are
// within a machine. An axis marked `across` spans the machines instead, wherever it is named: adjacent devices along it
// are on different machines, and the other axes are within a machine. The machines must have equally many processes,
// and their number must divide the axis (several such axes share the machines, each with a factor above one). On 8
// machines:
//   make_mesh({{"model", 4}, {"data", 8, across}})
// On one machine, and on an abstract mesh, the mark has no effect. Throws with MeshOptions::devices (invalid_argument),
// and on machines that cannot hold such an axis (device_mismatch).
//
// With TESSERA_CPU_DEVICES=n in the environment every process has n devices (process p has the ids from p * n on), and
// a larger mesh is an Error (device_mismatch); without it there are as many as the mesh needs, equally many per
// process. With several processes each has a box of the grid, of the same extent along every mesh axis, so that a mesh
// axis lies inside the processes, across them, or both; all processes make the mesh with the same arguments.
//
// MeshOptions::devices may be those of some of the processes, of one alone too:
//   make_mesh({{"data", 2}}, {.devices = {2, 3}})      // of four processes that have a device each
// The others may make that mesh as well, and go through the same program: there its arrays have shapes and placements
// but no data, and nothing is computed or communicated for them. Or they leave it out. Errors (device_mismatch):
// devices that are no equal boxes of the processes that have any, which says whose they are; a kind of device that
// LibTorch does not have here. More errors: an axis twice (duplicate_axis), an axis size below one, more than 16 axes,
// a list of devices that has repetitions or another length than the grid.
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
// Mistakes: axes that are no list, a size before its name, sizes apart from their names.
template <class Nothing = void>
Mesh make_mesh(detail::LooseAxis, detail::LooseAxis = {"", 1}, detail::LooseAxis = {"", 1}) {
  static_assert(detail::dependent_false<Nothing>,
                "tessera: a mesh has a list of axes, also of one: make_mesh({{\"data\", 4}}).");
  return {};
}
template <class Nothing = void>
Mesh make_mesh(std::vector<detail::SwappedAxis>) {
  static_assert(detail::dependent_false<Nothing>,
                "tessera: an axis is its name and its size: make_mesh({{\"data\", 4}}).");
  return {};
}
template <class Nothing = void>
Mesh make_mesh(detail::LooseSizes, detail::LooseNames) {
  static_assert(detail::dependent_false<Nothing>,
                "tessera: an axis is its name and its size: make_mesh({{\"data\", 4}}).");
  return {};
}

// The ids of all devices of this run and of this process's, and how many there are of either: TESSERA_CPU_DEVICES for
// each process, one without it (a mesh may still have more: see make_mesh), one GPU with TESSERA_DEVICE=cuda.
//   make_mesh({{"data", device_count() / local_device_count()}, {"model", local_device_count()}})
std::vector<int> devices();
std::vector<int> local_devices();
int64_t device_count();
int64_t local_device_count();

// Reads "data=4,model=2", the command line's spelling of a mesh's axes; "model=2,data=4:across" is
// {{"model", 2}, {"data", 4, across}}. Names are of letters, digits and underscores; else an Error (invalid_argument).
std::vector<MeshAxis> parse_mesh_axes(std::string_view text);

}  // namespace tessera
