// The least times of products and collectives, made one on all processes, and solved for speed and latency.
#include "nn/report/measure_hardware.h"

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <functional>
#include <limits>
#include <vector>

#include "sharding/diagnostics/fail.h"
#include "sharding/distributed/processes.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "sharding/files/json_part.h"
#include "sharding/operations/creation.h"
#include "sharding/operations/elementwise.h"
#include "sharding/operations/linear_algebra.h"
#include "sharding/operations/make_array.h"
#include "sharding/operations/reductions.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn {

namespace {

constexpr int64_t few_bytes = 4096;

std::vector<std::string> axes_of(const Mesh& mesh, const std::string& without = "") {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : mesh.axes())
    if (axis.name != without && axis.size > 1) axes.push_back(axis.name);
  return axes;
}

// Reads one number, so that what made the array is over, on accelerators too.
void wait_for(const Array& x) {
  Array one = x.addressable_shards().front().data;
  while (one.ndim() > 0) one = one.at(0);
  astype(one, float32).to_host<float>();
}

// Of `rounds` calls after one that is not measured, each with an argument of its own: what an array was once moved to
// is kept with it.
double least_seconds(int64_t rounds, const std::function<Array()>& argument,
                     const std::function<Array(const Array&)>& call) {
  double least = std::numeric_limits<double>::infinity();
  for (int64_t r = 0; r <= rounds; ++r) {
    const Array x = argument();
    wait_for(x);
    const auto start = std::chrono::steady_clock::now();
    wait_for(call(x));
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (r > 0) least = std::min(least, taken.count());
  }
  return least;
}

// The largest that any process has.
double slowest(const Mesh& mesh, double seconds) {
  if (mesh.process_count() == 1) return seconds;
  const auto here = static_cast<int64_t>(mesh.local_devices().size());
  const NamedSharding each(mesh, PartitionSpec{SpecEntry(axes_of(mesh))});
  const Array mine = full({here}, seconds, {.dtype = float64});
  const std::vector<double> all = gather(make_array_from_process_local_data(each, mine)).to_host<double>();
  return *std::max_element(all.begin(), all.end());
}

// The seconds that the slowest takes for a call with its own block of ones of this shape.
double seconds_on_each(const Mesh& mesh, const MeasureOptions& options, Shape block, DType dtype,
                       const std::function<Array(const Array&)>& call) {
  const NamedSharding each(mesh, PartitionSpec{SpecEntry(axes_of(mesh))});
  block.insert(block.begin(), mesh.size());
  return slowest(mesh, least_seconds(
                           options.rounds, [&] { return ones(block, {.dtype = dtype, .out_sharding = each}); }, call));
}

double flops_per_second(const Mesh& mesh, const MeasureOptions& options) {
  const auto side = static_cast<double>(options.side);
  return 2 * side * side * side /
         seconds_on_each(mesh, options, {options.side, options.side}, options.dtype,
                         [](const Array& matrices) { return matmul(matrices, matrices); });
}

double memory_bytes_per_second(const Mesh& mesh, const MeasureOptions& options) {
  const int64_t elements = options.bytes / 4;
  return 2 * 4 * static_cast<double>(elements) /
         seconds_on_each(mesh, options, {elements}, float32, [](const Array& x) { return -x; });
}

// Each device computes one number after another.
double call_seconds(const Mesh& mesh, const MeasureOptions& options) {
  constexpr int calls = 100;
  const auto compute = [](Array x) {
    for (int i = 0; i < calls; ++i) x = -x;
    return x;
  };
  return seconds_on_each(mesh, options, {}, float32, compute) / calls;
}

// ---- collectives along one axis, by all devices of the other axes as well

class AlongAxis {
 public:
  AlongAxis(const Mesh& mesh, const MeshAxis& axis, int64_t rounds) : mesh_(mesh), axis_(axis), rounds_(rounds) {}

  // The formulas of the three come to 4 (n - 1) (b / n / s + l) together.
  Link link(int64_t bytes) const {
    const double n = static_cast<double>(axis_.size), messages = 4 * (n - 1);
    const double few = seconds_of_three(few_bytes) / messages, many = seconds_of_three(bytes) / messages;
    const double more = static_cast<double>(rounded(bytes) - rounded(few_bytes)) * 4 / n;
    const double each_byte = std::max((many - few) / more, 1e-15);
    const double sent = static_cast<double>(rounded(few_bytes)) * 4 / n;
    return {.bytes_per_second = 1 / each_byte, .latency = std::max(few - sent * each_byte, 0.0)};
  }

 private:
  // Elements that the axis divides.
  int64_t rounded(int64_t bytes) const { return std::max<int64_t>(1, bytes / 4 / axis_.size) * axis_.size; }

  NamedSharding placed(bool is_cut, bool is_pending) const {
    PartitionSpec spec{SpecEntry(axes_of(mesh_, axis_.name)), is_cut ? SpecEntry(axis_.name) : SpecEntry(none)};
    return NamedSharding(mesh_, is_pending ? spec.unreduced({axis_.name}) : spec);
  }

  double seconds_of_three(int64_t bytes) const {
    const Shape shape{mesh_.size() / axis_.size, rounded(bytes)};
    const NamedSharding whole = placed(false, false), cut = placed(true, false);
    const auto pending = [&] { return device_put(ones(shape, {.out_sharding = whole}), placed(false, true)); };
    const auto blocks = [&] { return ones(shape, {.out_sharding = cut}); };
    const auto to = [](const NamedSharding& there) { return [&](const Array& x) { return reshard(x, there); }; };
    const double all_reduce = least_seconds(rounds_, pending, to(whole));
    const double reduce_scatter = least_seconds(rounds_, pending, to(cut));
    const double all_gather = least_seconds(rounds_, blocks, to(whole));
    return slowest(mesh_, all_reduce + reduce_scatter + all_gather);
  }

  const Mesh& mesh_;
  const MeshAxis& axis_;
  int64_t rounds_;
};

void check(const Mesh& mesh, const MeasureOptions& options) {
  if (mesh.empty() || mesh.is_abstract())
    fail(ErrorKind::bad_argument, "measure_hardware", "{} given, expected a mesh of devices. Make one with make_mesh.",
         mesh.empty() ? "no mesh" : "an abstract mesh");
  const auto check_at_least = [](const char* what, int64_t given, int64_t least) {
    detail::check_at_least("measure_hardware", what, given, least);
  };
  if (!is_floating(options.dtype))
    fail(ErrorKind::bad_argument, "measure_hardware", "dtype: {} given, expected a floating-point type.",
         name_of(options.dtype));
  check_at_least("side", options.side, 1);
  check_at_least("bytes", options.bytes, 65536);
  check_at_least("rounds", options.rounds, 1);
}

boost::json::object json_of(const Link& link) {
  return {{"bytes_per_second", link.bytes_per_second}, {"latency", link.latency}};
}

Link link_of(const tessera::detail::JsonPart& part) {
  return {.bytes_per_second = part.at("bytes_per_second").number(), .latency = part.at("latency").number()};
}

}  // namespace

Hardware measure_hardware(const Mesh& mesh, const MeasureOptions& options) {
  check(mesh, options);
  Hardware hardware{.flops_per_second = flops_per_second(mesh, options),
                    .memory_bytes_per_second = memory_bytes_per_second(mesh, options),
                    .call_seconds = call_seconds(mesh, options)};
  for (const MeshAxis& axis : mesh.axes())
    if (axis.size > 1) hardware.links[axis.name] = AlongAxis(mesh, axis, options.rounds).link(options.bytes);
  const tessera::detail::AxisSet across_machines = mesh.impl()->across_machines();
  for (size_t a = 0; a < mesh.axes().size(); ++a)
    if (across_machines >> a & 1) hardware.across.push_back(mesh.axes()[a].name);
  const auto slower = [](const auto& a, const auto& b) {
    return a.second.bytes_per_second < b.second.bytes_per_second;
  };
  const auto slowest_link = std::min_element(hardware.links.begin(), hardware.links.end(), slower);
  if (slowest_link != hardware.links.end()) hardware.link = slowest_link->second;
  return hardware;
}

std::string to_json(const Hardware& hardware) {
  boost::json::object links;
  for (const auto& [axis, link] : hardware.links) links[axis] = json_of(link);
  return boost::json::serialize(
      boost::json::object{{"flops_per_second", hardware.flops_per_second},
                          {"link", json_of(hardware.link)},
                          {"links", std::move(links)},
                          {"across", boost::json::array(hardware.across.begin(), hardware.across.end())},
                          {"memory_bytes_per_second", hardware.memory_bytes_per_second},
                          {"call_seconds", hardware.call_seconds}});
}

void save_hardware(const std::filesystem::path& file, const Hardware& hardware) {
  detail::check_hardware("save_hardware", hardware);
  if (process_index() == 0) write_text(file, to_json(hardware) + '\n', "save_hardware");
}

Hardware load_hardware(const std::filesystem::path& file) {
  const boost::json::value json = parse_json(read_text(file, "load_hardware"), "load_hardware", file.string());
  const tessera::detail::JsonPart whole{json, file.string(), "load_hardware"};
  Hardware hardware{.flops_per_second = whole.at("flops_per_second").number(),
                    .link = link_of(whole.at("link")),
                    .memory_bytes_per_second = whole.number("memory_bytes_per_second", 0),
                    .call_seconds = whole.number("call_seconds", 0)};
  if (whole.has("links"))
    for (const auto& [axis, link] : whole.at("links").members()) hardware.links[axis] = link_of(link);
  if (whole.has("across"))
    for (const tessera::detail::JsonPart& axis : whole.at("across").items()) hardware.across.push_back(axis.text());
  detail::check_hardware("load_hardware", hardware);
  return hardware;
}

}  // namespace tessera::nn
