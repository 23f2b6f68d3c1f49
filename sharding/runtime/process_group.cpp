// Creates each process group once, of the kind that the tensors' device requires.
#include "sharding/runtime/process_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <numeric>
#include <string>

#include "sharding/runtime/control_plane.h"

namespace tessera::detail {
namespace {

// Returns a Gloo group that is never destroyed: at exit, its destructor would wait for a lost process.
ProcessGroup& gloo_group(const std::vector<int>& processes) {
  static auto* groups = new std::map<std::vector<int>, std::shared_ptr<ProcessGroup>>;
  auto& group = (*groups)[processes];
  if (group) return *group;
  const std::string name = fmt::format("{}", fmt::join(processes, ","));
  group = new_gloo_group(world(), name, processes, new_gloo_group(world(), name + " secondary", processes));
  return *group;
}

std::map<c10::DeviceType, MakeGroup>& makers() {
  static std::map<c10::DeviceType, MakeGroup> makers;
  return makers;
}

}  // namespace

bool register_process_group(c10::DeviceType kind, MakeGroup make) { return makers().emplace(kind, make).second; }

ProcessGroup& process_group(const std::vector<int>& processes, c10::Device device) {
  const auto maker = makers().find(device.type());
  if (maker == makers().end() || processes.size() == 1) return gloo_group(processes);
  return maker->second(processes, device);
}

std::vector<int> everyone() {
  std::vector<int> all(static_cast<size_t>(world().count));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace tessera::detail
