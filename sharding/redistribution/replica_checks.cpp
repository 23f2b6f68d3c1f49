// Compares meshes and collectives of processes as text, and replicas by their bits.
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <mutex>
#include <set>

#include "sharding/array/consistency.h"
#include "sharding/base/environment.h"
#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/stages.h"
#include "sharding/runtime/consensus.h"
#include "sharding/runtime/process_group.h"

namespace tessera::detail {
namespace {

std::string reason_of(const Provenance& cause) {
  const CallerLine caller(cause.where);  // the user's line, even if the cause is in the library
  const std::source_location& line = caller;
  return fmt::format("for {} at {}:{}", cause.operation, line.file_name(), line.line());
}

// Returns true if the processes of this mesh cannot compare arrays now: in an interleaved pipeline, stages compute
// different micro-batches.
bool are_apart(const MeshImpl* mesh) { return current_walk() && !mesh->parent; }

// Returns true at the first call with this mesh; also false if its whole mesh was seen before.
bool is_first(const MeshImpl* mesh) {
  static std::mutex mutex;
  static auto& seen = *new std::set<const MeshImpl*>;  // never destroyed: see make_mesh
  const std::lock_guard lock(mutex);
  return !seen.contains(whole_of(mesh)) && seen.insert(mesh).second;
}

// Compares the mesh between its processes when they first communicate.
void check_same_mesh(const MeshImpl* mesh, AxisSet axes, const Provenance& cause) {
  if (mesh->elsewhere || mesh->processes == 1 || !is_first(mesh)) return;
  check_agreement({cause.operation, cause.where, mesh->kept_names(axes)}, mesh->members(), words_of(mesh));
}

}  // namespace

std::string words_of(const MeshImpl* mesh) {
  return fmt::format("the mesh ({}) over the devices {}{}{}{}", Mesh(mesh).to_string(), fmt::join(mesh->devices, ", "),
                     mesh->device.is_cpu() ? "" : " of " + c10::DeviceTypeName(mesh->device.type(), true),
                     mesh->private_replicas ? " with private replicas" : "", checks ? " with TESSERA_CHECK=1" : "");
}

void check_same_collective(const char* kind, const MeshImpl* mesh, AxisSet axes, const at::Tensor& x,
                           const Provenance& cause) {
  check_same_mesh(mesh, axes, cause);
  if (!checks || are_apart(mesh)) return;
  check_agreement("TESSERA_CHECK", mesh,
                  fmt::format("{} over {} of {} {} ({} bytes), {}", kind, mesh->names(axes),
                              tessera::name_of(static_cast<DType>(x.scalar_type())), to_string(x.sizes().vec()),
                              x.nbytes(), reason_of(cause)));
}

void check_replicas_across_processes(const Type* type, const Tensors& local, const Provenance& cause) {
  const MeshImpl* mesh = type->mesh;
  if (!mesh || !(mesh->crossing() & ~type->own()) || are_apart(mesh)) return;
  check_same_mesh(mesh, mesh->all(), cause);
  const std::string path = cause.path ? *cause.path + ": " : "";
  check_agreement("TESSERA_CHECK", mesh,
                  fmt::format("replicas of {}{}, {}", path, type->to_string(), reason_of(cause)));
  const std::vector<int> processes = processes_along(mesh, mesh->all());
  at::Tensor mine = at::empty({static_cast<int64_t>(local.size())}, at::kLong);
  for (size_t i = 0; i < local.size(); ++i) mine[static_cast<int64_t>(i)] = static_cast<int64_t>(checksum(local[i]));
  at::Tensor all = at::empty({static_cast<int64_t>(processes.size()), mine.numel()}, at::kLong);
  process_group(processes).all_gather(mine, all, {"TESSERA_CHECK", cause.where, mesh->kept_names(mesh->all())})->wait();
  std::map<int, size_t> first_with;  // process with the same blocks
  for (size_t p = 0; p < processes.size(); ++p) {
    Coordinates coordinates(mesh);
    move_to_process(mesh, mesh->all(), static_cast<int>(p), coordinates);
    const size_t first = first_with.try_emplace(process_along(mesh, type->own(), coordinates), p).first->second;
    if (at::equal(all[static_cast<int64_t>(first)], all[static_cast<int64_t>(p)])) continue;
    fail_broken("TESSERA_CHECK",
                fmt::format("{}{}: processes {} and {} hold different values of the same block, before {}.", path,
                            type->to_string(), processes[first], processes[p], cause.operation));
  }
}

}  // namespace tessera::detail
