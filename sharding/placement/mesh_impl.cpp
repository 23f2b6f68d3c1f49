// Computes coordinates of devices and of this process's slots.
#include "sharding/placement/mesh_impl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "sharding/runtime/consensus.h"
#include "sharding/runtime/control_plane.h"

namespace tessera::detail {

int MeshImpl::count(AxisSet set) const {
  int n = 1;
  for (size_t a = 0; a < axes.size(); ++a)
    if (set >> a & 1) n *= static_cast<int>(axes[a].size);
  return n;
}

int MeshImpl::slots(AxisSet set) const {
  int n = 1;
  for (size_t a = 0; a < axes.size(); ++a)
    if (set >> a & 1) n *= extent[a];
  return n;
}

AxisSet MeshImpl::crossing() const {
  AxisSet set = 0;
  for (size_t a = 0; a < axes.size(); ++a)
    if (extent[a] < axes[a].size) set |= AxisSet{1} << a;
  return set;
}

int MeshImpl::processes_over(AxisSet set) const {
  const std::vector<int>& mine = has_no_hardware() ? box : extent;
  int n = 1;
  for (size_t a = 0; a < axes.size(); ++a)
    if (set >> a & 1) n *= static_cast<int>(axes[a].size) / mine[a];
  return n;
}

std::vector<int> box_of_each(const std::vector<MeshAxis>& axes, int processes) {
  std::vector<int> box(axes.size(), 1);
  if (processes == 0) return box;
  int64_t devices = 1;
  for (const MeshAxis& axis : axes) devices *= axis.size;
  if (processes < 0 || devices % processes != 0) return {};
  int64_t left = devices / processes;
  for (size_t a = axes.size(); a-- > 0; left /= box[a]) {
    box[a] = static_cast<int>(std::min(axes[a].size, left));
    if (axes[a].size % box[a] != 0 || left % box[a] != 0) return {};
  }
  return box;
}

std::vector<int> MeshImpl::members() const {
  std::set<int> found;
  for (int place = 0; place < static_cast<int>(devices.size()); ++place) found.insert(process_of(place));
  return {found.begin(), found.end()};
}

std::string MeshImpl::words_of_members() const {
  const std::vector<int> found = members();
  const auto n = static_cast<int>(found.size());
  if (n == 1) return fmt::format("process {}", found[0]);
  if (n > 2 && found.back() - found[0] + 1 == n) return fmt::format("processes {} to {}", found[0], found.back());
  return fmt::format("processes {} and {}", fmt::join(found.begin(), found.end() - 1, ", "), found.back());
}

void MeshImpl::put_elsewhere() {
  elsewhere = abstract = true;
  private_replicas = false;
  device = c10::kMeta;
  for (size_t a = 0; a < axes.size(); ++a) first[a] = 0, extent[a] = static_cast<int>(axes[a].size);
}

int MeshImpl::process_of(int place) const { return each ? devices[place] / each : process; }

int MeshImpl::machine_of(int place) const { return each ? world().machines[process_of(place)] : 0; }

AxisSet MeshImpl::across_machines() const {
  AxisSet set = 0;
  for (int place = 0; each && place < static_cast<int>(devices.size()); ++place)
    for (size_t a = 0; a < axes.size(); ++a) {
      Coordinates first = coordinates_of(this, place);
      first[static_cast<int>(a)] = 0;
      if (machine_of(place) != machine_of(ravel_place(this, all(), first))) set |= AxisSet{1} << a;
    }
  return set;
}

int MeshImpl::find(std::string_view name) const {
  for (size_t a = 0; a < axes.size(); ++a)
    if (axes[a].name == name) return static_cast<int>(a);
  return -1;
}

std::string MeshImpl::names(AxisSet set) const {
  std::vector<std::string_view> found;
  for (size_t a = 0; a < axes.size(); ++a)
    if (set >> a & 1) found.push_back(axes[a].name);
  return fmt::format("{}", fmt::join(found, ","));
}

const std::string* MeshImpl::kept_names(AxisSet set) const {
  static std::mutex mutex;
  static auto& kept = *new std::set<std::string>;  // never destroyed: see make_mesh
  if (!set) return nullptr;
  const std::lock_guard lock(mutex);
  return &*kept.insert(names(set)).first;
}

void check_agreement(const char* verb, const MeshImpl* mesh, const std::string& text) {
  if (mesh->elsewhere || mesh->processes == 1) return;
  if (mesh->processes == world().count) return check_agreement(verb, mesh->processes, text);
  check_agreement({.operation = verb, .where = {}}, mesh->members(), text);
}

Coordinates::Coordinates(const MeshImpl* mesh) {
  if (mesh) std::copy(mesh->first.begin(), mesh->first.end(), along);
}

Coordinates coordinates_of(const MeshImpl* mesh, int place) {
  Coordinates coordinates(nullptr);
  unravel_place(mesh, mesh->all(), place, coordinates);
  return coordinates;
}

void unravel(const MeshImpl* mesh, AxisSet set, int index, int* coordinates) {
  for (int a = static_cast<int>(mesh->axes.size()) - 1; a >= 0; --a) {
    if (!(set >> a & 1)) continue;
    coordinates[a] = mesh->first[a] + index % mesh->extent[a];
    index /= mesh->extent[a];
  }
}

int ravel(const MeshImpl* mesh, AxisSet set, const int* coordinates) {
  int index = 0;
  for (size_t a = 0; a < mesh->axes.size(); ++a)
    if (set >> a & 1) index = index * mesh->extent[a] + coordinates[a] % mesh->extent[a];
  return index;
}

int project(const MeshImpl* mesh, AxisSet from, int index, AxisSet to) {
  if (!mesh) return 0;
  Coordinates coordinates(mesh);
  unravel(mesh, from, index, coordinates);
  return ravel(mesh, to, coordinates);
}

void unravel_place(const MeshImpl* mesh, AxisSet set, int index, int* coordinates) {
  for (int a = static_cast<int>(mesh->axes.size()) - 1; a >= 0; --a) {
    if (!(set >> a & 1)) continue;
    const int n = static_cast<int>(mesh->axes[a].size);
    coordinates[a] = index % n;
    index /= n;
  }
}

int ravel_place(const MeshImpl* mesh, AxisSet set, const int* coordinates) {
  int index = 0;
  for (size_t a = 0; a < mesh->axes.size(); ++a)
    if (set >> a & 1) index = index * static_cast<int>(mesh->axes[a].size) + coordinates[a];
  return index;
}

void move_to_process(const MeshImpl* mesh, AxisSet axes, int n, int* coordinates) {
  for (int a = static_cast<int>(mesh->axes.size()) - 1; a >= 0; --a) {
    if (!(axes >> a & 1)) continue;
    const int extent = mesh->extent[a], boxes = static_cast<int>(mesh->axes[a].size) / extent;
    coordinates[a] = n % boxes * extent + coordinates[a] % extent;
    n /= boxes;
  }
}

int process_along(const MeshImpl* mesh, AxisSet axes, const int* coordinates) {
  int n = 0;
  for (size_t a = 0; a < mesh->axes.size(); ++a)
    if (const int extent = mesh->extent[a]; axes >> a & 1)
      n = n * (static_cast<int>(mesh->axes[a].size) / extent) + coordinates[a] / extent;
  return n;
}

std::vector<int> processes_along(const MeshImpl* mesh, AxisSet axes) {
  std::vector<int> found(mesh->count(axes) / mesh->slots(axes));
  for (size_t n = 0; n < found.size(); ++n) {
    Coordinates coordinates(mesh);
    move_to_process(mesh, axes, static_cast<int>(n), coordinates);
    found[n] = mesh->process_of(ravel_place(mesh, mesh->all(), coordinates));
  }
  return found;
}

}  // namespace tessera::detail
