// Meshes over the processes of this program, with every assignment of devices to processes.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "sharding/runtime/processes.h"
#include "tests/sharding/law.h"

namespace tessera::testing {

// Returns a mesh in which each process has a box of devices of these extents.
inline Mesh mesh_in_boxes(const std::vector<MeshAxis>& axes, const std::vector<int64_t>& extents,
                          bool private_replicas) {
  int64_t each = 1, n = 1;
  for (size_t a = 0; a < axes.size(); ++a) each *= extents[a], n *= axes[a].size;
  std::vector<int> devices;
  for (int64_t place = 0; place < n; ++place) {
    int64_t process = 0, here = 0, stride = n;
    for (size_t a = 0; a < axes.size(); ++a) {
      stride /= axes[a].size;
      const int64_t at = place / stride % axes[a].size;
      process = process * (axes[a].size / extents[a]) + at / extents[a];
      here = here * extents[a] + at % extents[a];
    }
    devices.push_back(static_cast<int>(process * each + here));
  }
  return make_mesh(axes, {.devices = devices, .private_replicas = private_replicas});
}

// Ways to assign a grid to the processes: each axis within a process, across processes, or both.
struct Way {
  std::vector<MeshAxis> axes;
  std::vector<int64_t> extents;
};

inline std::vector<Way> ways() {
  const int64_t p = process_count();
  std::vector<Way> all{{{{"a", 2 * p}}, {2}}, {{{"a", p}}, {1}}};
  for (const auto& [x, y] : {std::pair<int64_t, int64_t>{2, 2}, {2, 4}})
    for (int64_t i = 1; i <= x; i *= 2)
      for (int64_t j = 1; j <= y; j *= 2)
        if (x / i * (y / j) == p) all.push_back({{{"a", x}, {"b", y}}, {i, j}});
  return all;
}

inline std::string name_of(const Way& way) {
  std::string name = fmt::format("{} processes:", process_count());
  for (size_t a = 0; a < way.axes.size(); ++a)
    name += fmt::format(" {}={} by {}", way.axes[a].name, way.axes[a].size, way.extents[a]);
  return name;
}

// Calls test(mesh, the same mesh as an abstract mesh), with shared and with private replicas.
template <class Test>
void on_every_way(const Test& test) {
  for (const Way& way : ways())
    for (const bool private_replicas : {false, true}) {
      SCOPED_TRACE(name_of(way) + (private_replicas ? ", private" : ", shared"));
      test(mesh_in_boxes(way.axes, way.extents, private_replicas), make_mesh(way.axes, {.abstract = true}));
    }
}

}  // namespace tessera::testing
