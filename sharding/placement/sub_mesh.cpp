// Makes and interns sub-meshes.
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "sharding/base/fail.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/mesh_impl.h"

namespace tessera {
namespace {

using detail::MeshImpl;

// Sets this process's box of the sub-mesh: its box of the whole mesh, if that includes this coordinate.
void give_to_processes(MeshImpl& mesh, const MeshImpl& whole, size_t axis) {
  const int first = whole.first[axis], at = mesh.cut_at;
  mesh.first[axis] = 0, mesh.extent[axis] = 1;
  if (!mesh.box.empty()) mesh.box[axis] = 1;
  mesh.processes = static_cast<int>(mesh.members().size());
  if (at < first || at >= first + whole.extent[axis]) mesh.put_elsewhere();
}

std::unique_ptr<MeshImpl> cut(const MeshImpl& whole, size_t axis, int at) {
  auto mesh = std::make_unique<MeshImpl>(whole);
  mesh->parent = &whole;
  mesh->cut_axis = static_cast<int>(axis), mesh->cut_at = at;
  mesh->axes[axis].size = 1;
  mesh->devices.clear();
  for (int place = 0; place < whole.count(whole.all()); ++place) {
    if (detail::coordinates_of(&whole, place)[static_cast<int>(axis)] == at)
      mesh->devices.push_back(whole.devices[place]);
  }
  give_to_processes(*mesh, whole, axis);
  mesh->engine = detail::choose_engine(*mesh);
  return mesh;
}

}  // namespace

Mesh sub_mesh(const Mesh& mesh, std::string_view mesh_axis, int64_t at) {
  const int64_t size = mesh.size(mesh_axis);
  const MeshImpl& whole = *mesh.impl();
  if (whole.parent)
    fail(ErrorKind::invalid_argument, "sub_mesh", "({}) is a sub-mesh itself, expected a full mesh. Take {} from ({}).",
         mesh.to_string(), mesh_axis, Mesh(whole.parent).to_string());
  if (at < 0 || at >= size)
    fail(ErrorKind::invalid_argument, "sub_mesh", "coordinate {} given, mesh axis \"{}\" has 0 to {}.", at, mesh_axis,
         size - 1);
  static std::mutex mutex;
  // never destroyed: see make_mesh
  static auto& meshes = *new std::map<std::tuple<const MeshImpl*, int, int64_t>, std::unique_ptr<MeshImpl>>;
  const int number = whole.find(mesh_axis);
  const std::lock_guard lock(mutex);
  auto& entry = meshes[{&whole, number, at}];
  if (!entry) entry = cut(whole, static_cast<size_t>(number), static_cast<int>(at));
  return Mesh(entry.get());
}

Mesh whole_mesh(const Mesh& mesh) { return Mesh(detail::whole_of(mesh.impl())); }

}  // namespace tessera
