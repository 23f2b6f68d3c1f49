// Measures products, collectives and small steps on all processes, and solves for the speeds.
#include "nn/report/measure_hardware.h"

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <functional>
#include <limits>
#include <vector>

#include "nn/layers/linear.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/base/fail.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "sharding/files/json_part.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/operations/shape/make_array.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/runtime/processes.h"

namespace tessera::nn {

namespace {

constexpr int64_t few_bytes = 4096;

std::vector<std::string> axes_of(const Mesh& mesh, const std::string& without = "") {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : mesh.axes())
    if (axis.name != without && axis.size > 1) axes.push_back(axis.name);
  return axes;
}

// Reads one number, so that the computation of the array has ended, on accelerators too.
void wait_for(const Array& x) {
  Array one = x.addressable_shards().front().data;
  while (one.ndim() > 0) one = one.index({0});
  astype(one, float32).to_host<float>();
}

double seconds_of(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return taken.count();
}

// Returns the minimum seconds of `rounds` calls, after a first one that is not counted. Each call has a different
// argument, because an array caches its conversions.
double least_seconds(int64_t rounds, const std::function<Array()>& argument,
                     const std::function<Array(const Array&)>& call) {
  double least = std::numeric_limits<double>::infinity();
  for (int64_t r = 0; r <= rounds; ++r) {
    const Array x = argument();
    wait_for(x);
    const double taken = seconds_of([&] { wait_for(call(x)); });
    if (r > 0) least = std::min(least, taken);
  }
  return least;
}

// Returns the maximum over all processes.
double slowest(const Mesh& mesh, double seconds) {
  if (mesh.process_count() == 1) return seconds;
  const auto here = static_cast<int64_t>(mesh.local_devices().size());
  const NamedSharding each(mesh, PartitionSpec{SpecEntry(axes_of(mesh))});
  const Array mine = full({here}, seconds, {.dtype = float64});
  const std::vector<double> all = gather(make_array_from_process_local_data(each, mine)).to_host<double>();
  return *std::max_element(all.begin(), all.end());
}

// Returns the seconds of the slowest process for a call with its own block of ones of this shape.
double seconds_on_each(const Mesh& mesh, const MeasureOptions& options, Shape block, DType dtype,
                       const std::function<Array(const Array&)>& call) {
  const NamedSharding each(mesh, PartitionSpec{SpecEntry(axes_of(mesh))});
  block.insert(block.begin(), mesh.size());
  return slowest(mesh,
                 least_seconds(
                     options.num_rounds, [&] { return ones(block, {.dtype = dtype, .out_sharding = each}); }, call));
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

// ---- collectives along one axis, run concurrently along the other axes

class AlongAxis {
 public:
  AlongAxis(const Mesh& mesh, const MeshAxis& axis, int64_t rounds) : mesh_(mesh), axis_(axis), rounds_(rounds) {}

  // Solves for the link: the formulas of the three collectives add up to 4 (n - 1) (b / n / s + l).
  Link link(int64_t bytes) const {
    const double n = static_cast<double>(axis_.size), messages = 4 * (n - 1);
    const double few = seconds_of_three(few_bytes) / messages, many = seconds_of_three(bytes) / messages;
    const auto sent = [&](int64_t b) { return static_cast<double>(rounded(b)) * 4 / n; };
    // Other work on the machine can make few bytes take as long as many. Then all time is attributed to the bytes.
    const double each_byte = many > few ? (many - few) / (sent(bytes) - sent(few_bytes)) : many / sent(bytes);
    return {.bytes_per_second = 1 / each_byte, .latency = std::max(few - sent(few_bytes) * each_byte, 0.0)};
  }

 private:
  // Returns the number of elements, rounded down to a multiple of the axis size.
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

// ---- steps of a small model, for costs that the formulas omit

// Consecutive layers whose weights and rows are sharded over all devices.
struct Chain {
  std::vector<Linear> layers;

  static Chain init(int64_t count, int64_t side) {
    Chain chain;
    for (int64_t i = 0; i < count; ++i)
      chain.layers.push_back(Linear::init(Key(static_cast<uint64_t>(i)), {"in", side}, {"out", side}));
    return chain;
  }
  Array operator()(Array x) const {
    for (const Linear& layer : layers) x = gelu(layer(x));
    return x;
  }
};

Array mean_square(const Chain& chain, const Array& x) { return mean(square(chain(x))); }

class ChainStep {
 public:
  // Makes a step. Each device has `rows` rows. The weights are replicated, or sharded over all devices.
  ChainStep(const Mesh& mesh, int64_t count, int64_t side, int64_t rows, bool is_cut)
      : mesh_(mesh), chain_(Chain::init(count, side)), rows_(rows * mesh.size()), side_(side) {
    rules_ = {
        {"rows", axes_of(mesh)}, {"in", is_cut ? axes_of(mesh) : std::vector<std::string>{}}, {"out", replicated}};
  }

  // Returns the median for each of `ways`, which alternate.
  std::vector<double> seconds(int64_t rounds, const std::vector<GradientOptions>& ways) const {
    const Placed placed = this->placed(mesh_);
    std::vector<std::vector<double>> taken(ways.size());
    for (int64_t r = 0; r <= rounds + 1;
         ++r)  // not counted: the first round records the gathers, the second follows it
      for (size_t i = 0; i < ways.size(); ++i) {
        const double seconds = seconds_of([&] { wait_for(step(placed, ways[i])); });
        if (r > 1) taken[i].push_back(seconds);
      }
    std::vector<double> medians;
    for (std::vector<double>& of_a_way : taken) {
      const auto middle = of_a_way.begin() + static_cast<ptrdiff_t>(of_a_way.size() / 2);
      std::nth_element(of_a_way.begin(), middle, of_a_way.end());
      medians.push_back(slowest(mesh_, *middle));
    }
    return medians;
  }

  StepForecast forecast(const Hardware& hardware) const {
    const Mesh abstract = make_mesh(mesh_.axes(), {.abstract = true});
    return detail::forecast_step(
        abstract,
        [&] {
          const Placed placed = this->placed(abstract);
          step(placed, {});
          return placement_table(named("model", placed.chain));
        },
        hardware);
  }

 private:
  struct Placed {
    Chain chain;
    Array x;
  };

  Placed placed(const Mesh& mesh) const {
    const MeshRules mesh_rules(mesh, rules_);
    return {filter_shard(chain_, mesh_rules), device_put(ones({rows_, side_}), {"rows", none}, mesh_rules)};
  }
  static Array step(const Placed& placed, const GradientOptions& gradients) {
    return std::get<0>(value_and_grad(mean_square, gradients)(placed.chain, placed.x));
  }

  const Mesh& mesh_;
  Chain chain_;
  Rules rules_;
  int64_t rows_, side_;
};

// Uses so few elements that only the calls take time.
double call_seconds(const Mesh& mesh, const MeasureOptions& options, const Hardware& hardware) {
  const ChainStep step(mesh, /*count=*/32, /*side=*/4, /*rows=*/4, /*is_cut=*/false);
  const StepForecast forecast = step.forecast(hardware);
  const double taken = step.seconds(options.num_rounds, {{}}).front();
  return std::max(0.0, taken - forecast.seconds()) / static_cast<double>(forecast.num_calls);
}

// Returns the time saved by prefetching weights, divided by the saving if prefetching were free. A process prefetches
// nothing for its own devices.
double overlap(const Mesh& mesh, const MeasureOptions& options, const Hardware& hardware) {
  if (mesh.process_count() == 1) return 0;
  const int64_t side = (128 + mesh.size() - 1) / mesh.size() * mesh.size();
  const ChainStep step(mesh, /*count=*/8, side, /*rows=*/256, /*is_cut=*/true);
  const double hidden = step.forecast(hardware).hidden_seconds;
  if (hidden == 0) return hardware.overlap;
  const std::vector<double> taken =
      step.seconds(4 * options.num_rounds, {{.prefetch_groups = 0}, {.prefetch_groups = 1}});
  return std::clamp((taken[0] - taken[1]) / hidden, 0.0, 1.0);
}

void check(const Mesh& mesh, const MeasureOptions& options) {
  if (mesh.empty() || mesh.is_abstract())
    fail(ErrorKind::invalid_argument, "measure_hardware",
         "{} given, expected a mesh of devices. Make one with make_mesh.",
         mesh.empty() ? "no mesh" : "an abstract mesh");
  const auto check_at_least = [](const char* what, int64_t given, int64_t least) {
    detail::check_at_least("measure_hardware", what, given, least);
  };
  if (!is_floating(options.dtype))
    fail(ErrorKind::invalid_argument, "measure_hardware", "dtype: {} given, expected a floating-point type.",
         name_of(options.dtype));
  check_at_least("side", options.side, 1);
  check_at_least("bytes", options.bytes, 65536);
  check_at_least("num_rounds", options.num_rounds, 1);
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
                    .memory_bytes_per_second = memory_bytes_per_second(mesh, options)};
  for (const MeshAxis& axis : mesh.axes())
    if (axis.size > 1) hardware.links[axis.name] = AlongAxis(mesh, axis, options.num_rounds).link(options.bytes);
  const tessera::detail::AxisSet across_machines = mesh.impl()->across_machines();
  for (size_t a = 0; a < mesh.axes().size(); ++a)
    if (across_machines >> a & 1) hardware.across.push_back(mesh.axes()[a].name);
  const auto slower = [](const auto& a, const auto& b) {
    return a.second.bytes_per_second < b.second.bytes_per_second;
  };
  const auto slowest_link = std::min_element(hardware.links.begin(), hardware.links.end(), slower);
  if (slowest_link != hardware.links.end()) hardware.link = slowest_link->second;
  hardware.call_seconds = call_seconds(mesh, options, hardware);
  hardware.overlap = overlap(mesh, options, hardware);
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
                          {"call_seconds", hardware.call_seconds},
                          {"overlap", hardware.overlap}});
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
                    .call_seconds = whole.number("call_seconds", 0),
                    .overlap = whole.number("overlap", 1)};
  if (whole.has("links"))
    for (const auto& [axis, link] : whole.at("links").members()) hardware.links[axis] = link_of(link);
  if (whole.has("across"))
    for (const tessera::detail::JsonPart& axis : whole.at("across").items()) hardware.across.push_back(axis.text());
  detail::check_hardware("load_hardware", hardware);
  return hardware;
}

}  // namespace tessera::nn
