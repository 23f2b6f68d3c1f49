// StepForecast: one run of a step under a Forecast, and the ring formulas of its collectives.
#include "nn/report/step_forecast.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <numeric>

#include "sharding/accounting/forecast.h"
#include "sharding/autodiff/weights/prefetch_schedule.h"
#include "sharding/base/fail.h"
#include "sharding/base/text.h"

namespace tessera::nn {

using tessera::detail::learned_gather_orders;
using tessera::detail::split_text;

namespace {

// ---- times

const Link& link_over(const std::string& axes, const Hardware& hardware) {
  const Link* slowest = nullptr;
  for (const std::string_view axis : split_text(axes, ",")) {
    const auto found = hardware.links.find(std::string(axis));
    const Link& link = found == hardware.links.end() ? hardware.link : found->second;
    if (!slowest || link.bytes_per_second < slowest->bytes_per_second) slowest = &link;
  }
  return *slowest;
}

// Some of a collective's axes, and the number of devices along them.
struct Stage {
  std::string axes;
  int64_t devices = 1;

  void add(const std::string& axis, int64_t size) {
    axes += (axes.empty() ? "" : ",") + axis;
    devices *= size;
  }
  double seconds(const std::string& kind, int64_t bytes, const Hardware& hardware) const {
    return collective_seconds(kind, axes, devices, bytes, hardware);
  }
};

void check_speed(const char* verb, const char* what, double value, bool may_be_zero = false) {
  if (!std::isfinite(value) || value < 0 || (value == 0 && !may_be_zero))
    fail(ErrorKind::invalid_argument, verb, "{} {} given, expected a number above 0. Give what the hardware reaches.",
         what, value);
}

double seconds_of(const CommRecord& r, const Mesh& mesh, const Hardware& hardware) {
  return hardware.across.empty() ? collective_seconds(r.kind, r.mesh_axes, r.num_devices, r.bytes, hardware)
                                 : collective_seconds(r.kind, r.mesh_axes, mesh, r.bytes, hardware);
}

// Returns the time of each collective on a device. Stages communicate concurrently, so only the slowest stage counts.
CommTime time_of_a_device(const std::vector<CommRecord>& records, const Mesh& mesh, const Hardware& hardware) {
  std::map<int, double> by_stage;
  for (const CommRecord& r : records)
    if (r.stage >= 0) by_stage[r.stage] += seconds_of(r, mesh, hardware);
  const auto longest = std::max_element(by_stage.begin(), by_stage.end(),
                                        [](const auto& a, const auto& b) { return a.second < b.second; });
  const int stage = longest == by_stage.end() ? -1 : longest->first;
  return [=](const CommRecord& r) { return r.stage >= 0 && r.stage != stage ? 0 : seconds_of(r, mesh, hardware); };
}

// ---- one mesh

std::vector<Traffic> traffic_of(const CommLedger& ledger, const CommTime& time) {
  std::map<std::pair<std::string, std::string>, Traffic> rows;
  for (const CommRecord& r : ledger.records()) {
    Traffic& row = rows[{r.kind, r.mesh_axes}];
    row.kind = r.kind, row.mesh_axes = r.mesh_axes;
    row.num_collectives += 1;
    row.bytes += r.bytes;
    row.seconds += time(r);
  }
  std::vector<Traffic> traffic;
  for (auto& [key, row] : rows) traffic.push_back(std::move(row));
  return traffic;
}

// Returns the time of memory traffic: each new array and each array at rest is written and read once.
double memory_seconds(const Forecast& forecast, const StepForecast& step, const Hardware& hardware) {
  if (hardware.memory_bytes_per_second == 0) return 0;
  int64_t bytes = forecast.allocated_bytes();
  for (const auto& [name, at_rest] : step.at_rest) bytes += at_rest;
  return 2 * static_cast<double>(bytes) / hardware.memory_bytes_per_second;
}

double hidden_seconds(const Forecast& forecast, const StepForecast& step, const CommTime& time,
                      const Hardware& hardware) {
  if (step.flops == 0) return 0;
  const double end =
      detail::predicted_seconds(forecast.ledger().records(), time, step.flops / step.compute_seconds, step.flops);
  const double hidden = step.compute_seconds + step.communication_seconds - end;
  return hidden > 1e-12 * end ? hidden * hardware.overlap : 0;  // a smaller difference is rounding
}

std::vector<std::pair<std::string, int64_t>> bytes_at_rest(const PlacementTable& table) {
  std::vector<std::pair<std::string, int64_t>> shares;
  for (const PlacementRow& row : table.rows()) {
    const std::string name = row.path.substr(0, row.path.find('.'));
    const auto is_known = [&](const auto& share) { return share.first == name; };
    if (std::none_of(shares.begin(), shares.end(), is_known)) shares.emplace_back(name, table.bytes_per_device(name));
  }
  return shares;
}

StepForecast forecast_of(const Mesh& mesh, const std::function<PlacementTable()>& step, const Hardware& hardware) {
  StepForecast result{.mesh = mesh};
  const Forecast forecast;
  try {
    const PlacementTable table = step();
    result.at_rest = bytes_at_rest(table);
    result.host_bytes = table.host_bytes_per_device();
  } catch (const Error& error) {
    result.error = error.what();
    return result;
  }
  result.activation_bytes = forecast.activation_bytes();
  result.peak_bytes = forecast.peak_bytes();
  result.flops = forecast.flops();
  result.num_calls = forecast.call_count();
  const CommTime time = time_of_a_device(forecast.ledger().records(), mesh, hardware);
  result.traffic = traffic_of(forecast.ledger(), time);
  result.compute_seconds = result.flops / hardware.flops_per_second + memory_seconds(forecast, result, hardware) +
                           static_cast<double>(result.num_calls) * hardware.call_seconds;
  for (const Traffic& row : result.traffic) result.communication_seconds += row.seconds;
  result.hidden_seconds = hidden_seconds(forecast, result, time, hardware);
  result.bubble_seconds = result.compute_seconds * forecast.bubble() / (1 - forecast.bubble());
  return result;
}

}  // namespace

double collective_seconds(const std::string& kind, const std::string& mesh_axes, int64_t num_devices, int64_t bytes,
                          const Hardware& hardware) {
  const Link& link = link_over(mesh_axes, hardware);
  const auto n = static_cast<double>(num_devices), b = static_cast<double>(bytes);
  const auto rounds = [&](double count, double bytes_each) {
    return count * (bytes_each / link.bytes_per_second + link.latency);
  };
  if (kind.starts_with("all_reduce")) return rounds(2 * (n - 1), b / n);
  if (kind == "all_gather" || kind == "all_to_all") return rounds(n - 1, b / n);
  if (kind == "reduce_scatter") return rounds(n - 1, b);
  return rounds(1, b);
}

double collective_seconds(const std::string& kind, const std::string& mesh_axes, const Mesh& mesh, int64_t bytes,
                          const Hardware& hardware) {
  Stage all, within, between;
  for (const std::string_view part : split_text(mesh_axes, ",")) {
    const std::string axis(part);
    const bool is_across = std::count(hardware.across.begin(), hardware.across.end(), axis) > 0;
    const int64_t size = mesh.has_axis(axis) ? mesh.size(axis) : 1;
    all.add(axis, size);
    (is_across ? between : within).add(axis, size);
  }
  const int64_t part = bytes / within.devices;
  if (within.devices == 1 || between.devices == 1) return all.seconds(kind, bytes, hardware);
  if (kind == "all_reduce")
    return within.seconds("reduce_scatter", part, hardware) + between.seconds("all_reduce", part, hardware) +
           within.seconds("all_gather", bytes, hardware);
  if (kind == "all_gather")
    return between.seconds("all_gather", part, hardware) + within.seconds("all_gather", bytes, hardware);
  if (kind == "reduce_scatter")
    return within.seconds("reduce_scatter", bytes * between.devices, hardware) +
           between.seconds("reduce_scatter", bytes, hardware);
  return all.seconds(kind, bytes, hardware);
}

namespace detail {

void check_at_least(const char* verb, const char* what, int64_t given, int64_t least) {
  if (given < least)
    fail(ErrorKind::invalid_argument, verb, "{} = {} given, expected {} at least.", what, given, least);
}

void check_hardware(const char* verb, const Hardware& hardware) {
  check_speed(verb, "flops_per_second", hardware.flops_per_second);
  check_speed(verb, "memory_bytes_per_second", hardware.memory_bytes_per_second, /*may_be_zero=*/true);
  check_speed(verb, "call_seconds", hardware.call_seconds, /*may_be_zero=*/true);
  if (!(hardware.overlap >= 0 && hardware.overlap <= 1))
    fail(ErrorKind::invalid_argument, verb, "overlap {} given, expected a fraction from 0 to 1.", hardware.overlap);
  const auto check_link = [&](const Link& link) {
    check_speed(verb, "bytes_per_second", link.bytes_per_second);
    check_speed(verb, "latency", link.latency, /*may_be_zero=*/true);
  };
  check_link(hardware.link);
  for (const auto& [axis, link] : hardware.links) check_link(link);
}

double predicted_seconds(const std::vector<CommRecord>& records, const CommTime& time, double flops_per_second,
                         double flops) {
  std::vector<size_t> awaited(records.size());
  std::iota(awaited.begin(), awaited.end(), size_t{0});
  std::stable_sort(awaited.begin(), awaited.end(),
                   [&](size_t a, size_t b) { return records[a].awaited.flops < records[b].awaited.flops; });
  double now = 0, computed = 0, link_is_free = 0;
  std::vector<double> arrivals;  // arrival times of the records so far
  const auto compute_until = [&](double moment) {
    if (flops_per_second > 0) now += std::max(0.0, moment - computed) / flops_per_second;
    computed = std::max(computed, moment);
  };
  auto next = awaited.begin();
  const auto advance = [&](double moment) {
    for (; next != awaited.end() && *next < arrivals.size() && records[*next].awaited.flops <= moment; ++next) {
      compute_until(records[*next].awaited.flops);
      now = std::max(now, arrivals[*next]);
    }
    compute_until(moment);
  };
  for (const CommRecord& r : records) {
    advance(r.begun.flops);
    link_is_free = std::max(link_is_free, now) + time(r);
    arrivals.push_back(link_is_free);
  }
  advance(flops);
  return std::max(now, link_is_free);
}

StepForecast forecast_step(const Mesh& mesh, const std::function<PlacementTable()>& step, const Hardware& hardware) {
  return tessera::detail::run_knowing_gathers([&] { return forecast_of(mesh, step, hardware); });
}

boost::json::object json_of(const StepForecast& s) {
  boost::json::object mesh, bytes;
  for (const MeshAxis& axis : s.mesh.axes()) mesh[axis.name] = axis.size;
  for (const auto& [name, n] : s.at_rest) bytes[name] = n;
  bytes["activations"] = s.activation_bytes;
  bytes["peak"] = s.peak_bytes;
  if (s.host_bytes > 0) bytes["pinned_host"] = s.host_bytes;
  boost::json::array collectives;
  for (const Traffic& t : s.traffic)
    collectives.push_back({{"kind", t.kind},
                           {"axes", t.mesh_axes},
                           {"count", t.num_collectives},
                           {"bytes", t.bytes},
                           {"seconds", t.seconds}});
  return {{"mesh", std::move(mesh)},
          {"devices", s.mesh.size()},
          {"error", s.error.empty() ? boost::json::value(nullptr) : boost::json::value(s.error)},
          {"bytes", std::move(bytes)},
          {"flops", s.flops},
          {"calls", s.num_calls},
          {"collectives", std::move(collectives)},
          {"compute_seconds", s.compute_seconds},
          {"communication_seconds", s.communication_seconds},
          {"hidden_seconds", s.hidden_seconds},
          {"bubble_seconds", s.bubble_seconds},
          {"seconds", s.seconds()}};
}

}  // namespace detail
}  // namespace tessera::nn
