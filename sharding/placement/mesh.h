// Mesh: a named grid of devices. Every placement is a sentence about its axes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

namespace detail {
struct MeshImpl;
}

// One axis of a mesh: its name and how many devices lie along it.
struct MeshAxis {
  std::string name;
  int64_t size = 1;
  friend bool operator==(const MeshAxis&, const MeshAxis&) = default;
};

struct MeshOptions {
  // Ids of the devices in row-major order of the axes; empty: 0, 1, 2, ..., of several processes the first ids of each.
  std::vector<int> devices = {};
  // Every device keeps its own copy of what others hold too, and collectives copy for real, instead of one
  // tensor per distinct block. Slower; made for tests. Also set by the environment: TESSERA_PRIVATE_REPLICAS=1.
  bool private_replicas = false;
  // A mesh without hardware (JAX: AbstractMesh). The same programs run on it and cost no more than on one device:
  // arrays have shapes, placements and bytes but no data, and a ledger records what devices would communicate. See
  // forecast.h. Reading a value is an Error (bad_argument); nothing in the environment applies to it.
  bool abstract = false;
  // Where the devices' memory is, as LibTorch names it: "cpu", or one accelerator of this process, "cuda" or "cuda:1".
  // All of the process's devices are then slots of that one, as virtual devices are of a CPU. Empty: TESSERA_DEVICE of
  // the environment, else "cpu". Without a number it is the first accelerator; of several processes each takes the
  // n-th, where it is the n-th on its machine (or the only one that it sees).
  std::string device = {};
};

// A handle to an interned, immutable grid: equal meshes are the same pointer, copies are free.
// The devices are virtual ones of the CPU or slots of an accelerator (MeshOptions::device), of this process or of all
// processes (processes.h), or nowhere (MeshOptions::abstract). A mesh of one is legal and communicates nothing.
class Mesh {
 public:
  Mesh() = default;  // no mesh

  const std::vector<MeshAxis>& axes() const;
  const std::vector<int>& devices() const;    // ids, row-major
  int64_t size() const;                       // number of devices
  int64_t size(std::string_view axis) const;  // devices along one axis; Error (unknown_axis) if there is none
  bool has_axis(std::string_view axis) const;
  bool private_replicas() const;
  bool is_abstract() const;
  std::string device() const;  // where this process's part lies: "cpu", "cuda:0"; "meta" of an abstract mesh
  // The processes that have the mesh's devices, as many each: how many, and which of them this is.
  int process_count() const;
  int process_index() const;
  std::vector<int> local_devices() const;  // ids of this process's, row-major
  bool empty() const { return impl_ == nullptr; }

  // data=4, model=2
  std::string to_string() const;

  friend bool operator==(Mesh a, Mesh b) { return a.impl_ == b.impl_; }

  explicit Mesh(const detail::MeshImpl* impl) : impl_(impl) {}
  const detail::MeshImpl* impl() const { return impl_; }

 private:
  const detail::MeshImpl* impl_ = nullptr;
};

// A mesh over virtual CPU devices, and one over eight slots of a GPU:
//   make_mesh({{"data", 4}, {"model", 2}})
//   make_mesh({{"data", 8}}, {.device = "cuda"})
// With TESSERA_CPU_DEVICES=n in the environment every process has n devices, process p those with the ids from p * n
// on, and a larger mesh is an Error (device_mismatch); unset, there are as many as the mesh needs, equally many on each
// process. Where several processes run, each has a block of the grid: the same range along every axis, so that an axis
// lies inside the processes, across them, or both; all make the mesh with the same arguments. Devices that are all this
// process's make a mesh of its own. Other devices are an Error (device_mismatch) that says which process has them.
// A kind of device that LibTorch does not have here is one as well. More errors: an axis twice (duplicate_axis), a size
// below one, more than 16 axes, devices that are not as many as the grid has places or that repeat.
Mesh make_mesh(std::vector<MeshAxis> axes, MeshOptions options = {});

// Reads "data=4,model=2", the command line's spelling of a mesh's axes.
std::vector<MeshAxis> parse_mesh_axes(std::string_view text);

}  // namespace tessera
