// Orders devices so that mesh axes are within machines or across them, as marked.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

#include "sharding/base/fail.h"
#include "sharding/placement/mesh_impl.h"

namespace tessera::detail {
namespace {

bool lies_across(const MeshAxis& axis) { return axis.locality == across && axis.size > 1; }

// Chooses the number of machines along each axis, with the product `machines`: one for most axes, and a factor above
// one for axes marked `across`, the largest possible for the first of them. Returns false if that is impossible.
bool deal(const std::vector<MeshAxis>& axes, int64_t machines, std::vector<int64_t>& along) {
  const size_t a = along.size();
  if (a == axes.size()) return machines == 1;
  const bool is_across = lies_across(axes[a]);
  for (int64_t m = is_across ? std::gcd(axes[a].size, machines) : 1; m >= (is_across ? 2 : 1); --m) {
    if (axes[a].size % m || machines % m) continue;
    along.push_back(m);
    if (deal(axes, machines / m, along)) return true;
    along.pop_back();
  }
  return false;
}

std::string words_of_across(const std::vector<MeshAxis>& axes) {
  std::vector<std::string> words;
  for (const MeshAxis& axis : axes)
    if (lies_across(axis)) words.push_back(fmt::format("\"{}\" = {}", axis.name, axis.size));
  return fmt::format("mesh {} {} {} `across`", words.size() == 1 ? "axis" : "axes", fmt::join(words, " x "),
                     words.size() == 1 ? "is" : "are");
}

void check_equal_machines(const std::vector<MeshAxis>& axes, const std::vector<int64_t>& processes) {
  const auto [least, most] = std::minmax_element(processes.begin(), processes.end());
  if (*least != *most)
    fail(ErrorKind::device_mismatch, "make_mesh",
         "{}, and machine {} has {} processes, machine {} has {}, expected as many on each. Start as many on each, or "
         "leave `across` out.",
         words_of_across(axes), most - processes.begin(), *most, least - processes.begin(), *least);
}

std::vector<int64_t> machines_along(const std::vector<MeshAxis>& axes, const std::vector<int>& machines) {
  const bool any = std::any_of(axes.begin(), axes.end(), lies_across);
  std::vector<int64_t> processes(*std::max_element(machines.begin(), machines.end()) + 1), along;
  if (!any || processes.size() == 1) return std::vector<int64_t>(axes.size(), 1);
  for (const int machine : machines) ++processes[machine];
  check_equal_machines(axes, processes);
  if (!deal(axes, static_cast<int64_t>(processes.size()), along))
    fail(ErrorKind::device_mismatch, "make_mesh",
         "{}, and {} machines do not divide {}. Give a multiple of the number of machines (for several axes: split "
         "this number into factors above one, and make each axis a multiple of its factor), or leave `across` out.",
         words_of_across(axes), processes.size(),
         std::count_if(axes.begin(), axes.end(), lies_across) == 1 ? "it" : "all of them");
  return along;
}

std::vector<int> by_machine(const std::vector<int>& machines) {
  std::vector<int> processes(machines.size());
  std::iota(processes.begin(), processes.end(), 0);
  std::stable_sort(processes.begin(), processes.end(), [&](int a, int b) { return machines[a] < machines[b]; });
  return processes;
}

// The machine of a place, and the place's index within that machine. In the index, the axes that span machines are
// major. With this order, a process's devices more often form a box of the grid.
struct Stand {
  int64_t machine = 0, inside = 0;
};

Stand stand_of(int64_t place, const std::vector<MeshAxis>& axes, const std::vector<int64_t>& along) {
  std::vector<int64_t> at(axes.size());
  for (size_t a = axes.size(); a-- > 0; place /= axes[a].size) at[a] = place % axes[a].size;
  Stand stand;
  for (const bool dealt : {true, false})
    for (size_t a = 0; a < axes.size(); ++a) {
      if ((along[a] > 1) != dealt) continue;
      stand.machine = stand.machine * along[a] + at[a] % along[a];
      stand.inside = stand.inside * (axes[a].size / along[a]) + at[a] / along[a];
    }
  return stand;
}

}  // namespace

std::vector<int> device_order(const std::vector<MeshAxis>& axes, const std::vector<int>& machines, int64_t each) {
  int64_t n = 1;
  for (const MeshAxis& axis : axes) n *= axis.size;
  const auto count = static_cast<int64_t>(machines.size());
  if (n % count)
    fail(ErrorKind::device_mismatch, "make_mesh",
         "{} devices cannot be divided equally among {} processes. Choose another mesh, or name the devices.", n,
         count);
  const std::vector<int64_t> along = machines_along(axes, machines);
  const std::vector<int> processes = by_machine(machines);
  const int64_t used = n / count;
  const int64_t on_machine = n / std::accumulate(along.begin(), along.end(), int64_t{1}, std::multiplies<>());
  std::vector<int> devices;
  for (int64_t place = 0; place < n; ++place) {
    const Stand stand = stand_of(place, axes, along);
    const int64_t number = stand.machine * on_machine + stand.inside;
    devices.push_back(static_cast<int>(processes[number / used] * each + number % used));
  }
  return devices;
}

}  // namespace tessera::detail
