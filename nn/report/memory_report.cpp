// LibTorch's reports of its allocations, led to the meter that abstract meshes use.
#include "nn/report/memory_report.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <memory>
#include <ostream>

#include "sharding/accounting/forecast.h"
#include "sharding/array/abstract_tensor.h"
#include "sharding/base/text_format.h"
#include "sharding/placement/sub_mesh.h"

namespace tessera::nn {

using tessera::detail::with_commas;

namespace {

// Adds what this thread allocates and frees to the meter that is current.
class ToMeter : public c10::MemoryReportingInfoBase {
 public:
  bool memoryProfilingEnabled() const override { return true; }
  void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
    if (const auto& meter = tessera::detail::current_meter()) meter->add(bytes);
  }
};

const char* name_of(MemoryReport::Of of) {
  constexpr const char* names[]{"device", "process", "process with private replicas"};
  return names[static_cast<int>(of)];
}

// The mesh of the first array that lies on one.
Mesh mesh_of(const Leaves& leaves) {
  for (const Leaf& leaf : leaves)
    if (!leaf.value->is_absent() && leaf.value->is_committed()) return whole_mesh(leaf.value->sharding().mesh());
  return Mesh();
}

MemoryReport::Of whose(const Mesh& mesh) {
  if (mesh.is_abstract()) return MemoryReport::Of::device;
  return mesh.private_replicas() ? MemoryReport::Of::process_with_private_replicas : MemoryReport::Of::process;
}

std::string text_of(const std::vector<MeshAxis>& mesh) {
  std::string text;
  for (const MeshAxis& axis : mesh) text += fmt::format("{}{}={}", text.empty() ? "" : ", ", axis.name, axis.size);
  return text;
}

std::string heading_of(const MemoryReport& report) {
  if (report.of == MemoryReport::Of::device) return "measured on one device";
  return fmt::format("measured in this process, all devices{}",
                     report.of == MemoryReport::Of::process ? ", replicas held once" : "");
}

}  // namespace

int64_t MemoryReport::bytes_per_device() const {
  int64_t sum = 0;
  for (const MemoryShare& share : at_rest) sum += share.bytes_per_device;
  return sum;
}

int64_t MemoryReport::device_count() const {
  int64_t n = 1;
  for (const MeshAxis& axis : mesh) n *= axis.size;
  return n;
}

std::string MemoryReport::to_text() const {
  int64_t bytes = 0;
  std::string text;
  const auto add = [&text](const std::string& name, const std::string& a, const std::string& b) {
    text += fmt::format("{:<40}{:>18}{:>18}\n", name, a, b);
  };
  add(fmt::format("{} device{} ({})", device_count(), device_count() == 1 ? "" : "s", text_of(mesh)), "bytes/device",
      "bytes");
  for (const MemoryShare& share : at_rest) {
    add(share.name, with_commas(share.bytes_per_device), with_commas(share.bytes));
    bytes += share.bytes;
  }
  add("at rest", with_commas(bytes_per_device()), with_commas(bytes));
  text += heading_of(*this) + ":\n";
  add("activations of the forward pass", "", with_commas(activation_bytes));
  add("peak of the step, above what was there", "", with_commas(peak_bytes));
  return text;
}

std::string MemoryReport::to_json() const {
  boost::json::object axes;
  for (const MeshAxis& axis : mesh) axes[axis.name] = axis.size;
  boost::json::array shares;
  for (const MemoryShare& s : at_rest)
    shares.push_back({{"name", s.name}, {"bytes", s.bytes}, {"bytes_per_device", s.bytes_per_device}});
  return boost::json::serialize(boost::json::object{{"mesh", std::move(axes)},
                                                    {"at_rest", std::move(shares)},
                                                    {"bytes_per_device", bytes_per_device()},
                                                    {"activation_bytes", activation_bytes},
                                                    {"peak_bytes", peak_bytes},
                                                    {"measured", name_of(of)}});
}

std::ostream& operator<<(std::ostream& out, const MemoryReport& report) { return out << report.to_text(); }

namespace detail {

std::vector<MemoryShare> shares_of(const PlacementTable& table) {
  std::vector<MemoryShare> shares;
  for (const PlacementRow& row : table.rows()) {
    const std::string name = row.path.substr(0, row.path.find('.'));
    auto share = std::find_if(shares.begin(), shares.end(), [&](const auto& s) { return s.name == name; });
    if (share == shares.end()) share = shares.insert(shares.end(), {.name = name});
    share->bytes += row.bytes;
  }
  for (MemoryShare& share : shares) share.bytes_per_device = table.bytes_per_device(share.name);
  return shares;
}

MemoryReport measure_memory(const Leaves& at_rest, const std::function<PlacementTable()>& step) {
  MemoryReport report{.mesh = {}, .at_rest = shares_of(placement_table(at_rest))};
  if (const Mesh mesh = mesh_of(at_rest); !mesh.empty()) report.mesh = mesh.axes(), report.of = whose(mesh);
  const Forecast meter;
  const c10::DebugInfoGuard reports(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<ToMeter>());
  for (MemoryShare& share : shares_of(step())) report.at_rest.push_back(std::move(share));
  report.activation_bytes = meter.activation_bytes();
  report.peak_bytes = meter.peak_bytes();
  return report;
}

}  // namespace detail
}  // namespace tessera::nn
