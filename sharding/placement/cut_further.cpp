// The first dim that the axes divide.
#include "sharding/placement/cut_further.h"

#include <algorithm>

#include "sharding/base/fail.h"
#include "sharding/placement/mesh.h"

namespace tessera::detail {

const Type* cut_further(const Type* type, const std::vector<std::string>& names) {
  const MeshImpl* mesh = type->mesh;
  if (!mesh) return type;
  std::vector<int> axes;
  int devices = 1;
  for (const std::string& name : names) {
    const int axis = mesh->find(name);
    if (axis < 0 || mesh->axes[axis].size == 1 || type->own() >> axis & 1) continue;
    axes.push_back(axis);
    devices *= static_cast<int>(mesh->axes[axis].size);
  }
  for (size_t d = 0; d < type->shape.size() && devices > 1; ++d) {
    if (type->is_padded(d) || type->local[d] % devices) continue;
    TypeKey key = *type;
    for (int axis : axes) key.dims[d].push_back(axis);
    return intern(std::move(key));
  }
  return type;
}

void check_axes(const char* verb, const char* option, const std::vector<std::string>& axes, const MeshImpl* mesh) {
  for (const std::string& name : axes) {
    if (std::count(axes.begin(), axes.end(), name) > 1)
      fail(ErrorKind::invalid_argument, verb, "{}: \"{}\" given twice, expected each axis once.", option, name);
    if (mesh && mesh->find(name) < 0)
      fail(ErrorKind::unknown_axis, verb, "{}: \"{}\" given, expected an axis of the mesh ({}).", option, name,
           Mesh(mesh).to_string());
  }
}

}  // namespace tessera::detail
