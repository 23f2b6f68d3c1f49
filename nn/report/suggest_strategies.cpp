// StrategySuggestions as text, Markdown and JSON, and the sentence why a strategy is faster than the next.
#include "nn/report/suggest_strategies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "nn/report/strategy_search.h"
#include "sharding/base/fail.h"
#include "sharding/base/table.h"

namespace tessera::nn {

using tessera::detail::counted;
using tessera::detail::Table;
using tessera::detail::with_commas;

namespace {

// ---- descriptions

// Returns the rules that shard: batch=data, embed=data.
std::string description_of(const Rules& rules) {
  std::vector<std::string> entries;
  for (const Rule& rule : rules)
    if (!rule.mesh_axes.empty())
      entries.push_back(fmt::format("{}={}", rule.is_by_name() ? rule.logical : rule.arrays.to_string(),
                                    fmt::join(rule.mesh_axes, "+")));
  return entries.empty() ? "nothing is sharded" : fmt::format("{}", fmt::join(entries, ", "));
}

std::string milliseconds(double seconds) { return fmt::format("{:.4g}", seconds * 1e3); }

std::string description_of(const Traffic& t) {
  return fmt::format("{} over {} {} x, {} bytes, {} ms", t.kind, t.mesh_axes, t.num_collectives, with_commas(t.bytes),
                     milliseconds(t.seconds));
}

std::string name_and_mesh(const SuggestedStrategy& s) {
  return fmt::format("{} on {}", s.name, s.forecast.mesh.to_string());
}

// ---- reasons

double waited(const StepForecast& f) { return f.communication_seconds - f.hidden_seconds; }

double seconds_of(const StepForecast& f, const Traffic& like) {
  for (const Traffic& t : f.traffic)
    if (t.kind == like.kind && t.mesh_axes == like.mesh_axes) return t.seconds;
  return 0;
}

// Returns the collectives whose seconds in `b` exceed those in `a` the most.
std::string most_expensive(const StepForecast& a, const StepForecast& b) {
  const auto more = [&](const Traffic& t) { return t.seconds - seconds_of(a, t); };
  const auto most = std::max_element(b.traffic.begin(), b.traffic.end(),
                                     [&](const Traffic& x, const Traffic& y) { return more(x) < more(y); });
  if (most == b.traffic.end() || more(*most) <= 0) return "";
  const double here = seconds_of(a, *most);
  return fmt::format(": {} over {} takes {} ms there, {} here", most->kind, most->mesh_axes,
                     milliseconds(most->seconds), here == 0 ? "none" : milliseconds(here) + " ms");
}

std::string reason(const StepForecast& a, const StepForecast& b) {
  const double computing = b.compute_seconds - a.compute_seconds, waiting = waited(b) - waited(a);
  const double idle = b.bubble_seconds - a.bubble_seconds;
  if (idle > computing && idle > waiting)
    return fmt::format("its stages wait {} ms {}for each other", a.bubble_seconds > 0 ? milliseconds(idle) : "no",
                       a.bubble_seconds > 0 ? "less " : "");
  if (computing > waiting)
    return fmt::format("each device computes {} ms less, since more of the work is split", milliseconds(computing));
  const double hidden = a.hidden_seconds - b.hidden_seconds;
  if (hidden > b.communication_seconds - a.communication_seconds)
    return fmt::format("{} ms more of its communication overlap the computation", milliseconds(hidden));
  return fmt::format("it waits {} ms less for communication{}", milliseconds(waiting), most_expensive(a, b));
}

// ---- tables

Table table_of(const std::vector<SuggestedStrategy>& strategies) {
  Table table({"", "on one device", "placement", "peak, bytes", "compute, ms", "communication, ms", "hidden, ms",
               "bubble, ms", "step, ms"},
              ",<<,mmmmm");
  int64_t number = 0;
  bool has_bubbles = false;
  for (const SuggestedStrategy& s : strategies) {
    const StepForecast& f = s.forecast;
    has_bubbles |= f.bubble_seconds > 0;
    table.add({++number, f.mesh.to_string(), s.name, f.peak_bytes, f.compute_seconds, f.communication_seconds,
               f.hidden_seconds, f.bubble_seconds, f.seconds()});
  }
  if (!has_bubbles) table.drop("bubble, ms");
  return table;
}

// Returns "; 16 micro-batches, one_f_one_b"; "" without stages.
std::string description_of(const PipelineOptions& pipeline) {
  if (pipeline.num_micro_batches == 1) return "";
  return fmt::format("; {} micro-batches, {}", pipeline.num_micro_batches, name_of(pipeline.schedule));
}

std::string heading(const StrategySuggestions& found) {
  const auto& s = found.search();
  constexpr int64_t any = std::numeric_limits<int64_t>::max();
  const std::string memory = s.memory == any ? "any memory" : with_commas(s.memory) + " bytes each";
  return fmt::format("{} of {}; {} tried in {}{}{}", counted(s.num_devices, "device"), memory,
                     counted(s.num_tried, "strategy"), counted(s.num_steps, "step"),
                     s.is_complete ? "" : ", then stopped",
                     s.num_skipped ? fmt::format("; {} too large at rest", with_commas(s.num_skipped)) : "");
}

// Returns the text after the table: a paragraph per strategy, and the strategies that failed or do not fit.
std::string paragraphs(const StrategySuggestions& found) {
  std::string text;
  for (size_t i = 0; i < found.strategies().size(); ++i) {
    const SuggestedStrategy& s = found.strategies()[i];
    std::vector<std::string> traffic;
    for (const Traffic& t : s.forecast.traffic) traffic.push_back(description_of(t));
    text += fmt::format("{}. {}: {}{}.\n   {}\n   {}.\n", i + 1, s.name, description_of(s.rules),
                        description_of(s.pipeline), s.why,
                        traffic.empty() ? "No communication" : fmt::format("{}", fmt::join(traffic, "; ")));
  }
  if (!found.too_large().empty()) {
    const SuggestedStrategy& least = found.too_large().front();
    text += fmt::format("Too large: {}, the smallest {} with {} bytes.\n",
                        counted(static_cast<int64_t>(found.too_large().size()), "strategy"), name_and_mesh(least),
                        with_commas(least.forecast.peak_bytes));
  }
  for (const SuggestedStrategy& s : found.failed()) text += fmt::format("{}: {}\n", name_and_mesh(s), s.forecast.error);
  return text;
}

boost::json::object json_of(const SuggestedStrategy& s) {
  boost::json::object mesh, rules;
  for (const MeshAxis& axis : s.mesh) mesh[axis.name] = axis.size;
  for (const Rule& rule : s.rules)
    rules[rule.is_by_name() ? rule.logical : rule.to_string()] = boost::json::value_from(rule.mesh_axes);
  return {{"name", s.name},
          {"mesh", std::move(mesh)},
          {"rules", std::move(rules)},
          {"shard_state_over", boost::json::value_from(s.gradients.shard_gradients_over)},
          {"reshard_after_forward", s.gradients.reshard_after_forward},
          {"micro_batches", s.pipeline.num_micro_batches},
          {"schedule", s.pipeline.num_micro_batches == 1 ? boost::json::value(nullptr)
                                                         : boost::json::value(name_of(s.pipeline.schedule))},
          {"why", s.why},
          {"forecast", detail::json_of(s.forecast)}};
}

boost::json::array json_of(const std::vector<SuggestedStrategy>& strategies) {
  boost::json::array all;
  for (const SuggestedStrategy& s : strategies) all.push_back(json_of(s));
  return all;
}

// Returns the memory in which a step of that peak fits.
int64_t least_memory(int64_t peak_bytes, double memory_headroom) {
  int64_t memory = static_cast<int64_t>(static_cast<double>(peak_bytes) / (1 - memory_headroom));
  while (detail::usable_memory(memory, memory_headroom) < peak_bytes) ++memory;
  return memory;
}

void check(bool has_step, int64_t devices, const Hardware& hardware, int64_t memory,
           const SuggestStrategiesOptions& options) {
  if (!has_step)
    fail(ErrorKind::invalid_argument, "suggest_strategies", "an empty function given, expected a step of a MeshRules.");
  const auto check_at_least = [](const char* what, int64_t given, int64_t least) {
    detail::check_at_least("suggest_strategies", what, given, least);
  };
  check_at_least("devices", devices, 1);
  constexpr int64_t max_devices = 1'000'000;
  if (devices > max_devices)
    fail(ErrorKind::invalid_argument, "suggest_strategies", "devices = {} given, expected {} at most.", devices,
         max_devices);
  check_at_least("memory", memory, 1);
  check_at_least("max_steps", options.max_steps, 3);
  check_at_least("max_strategies", static_cast<int64_t>(options.max_strategies), 1);
  if (!(options.min_relative_gap >= 0) || !std::isfinite(options.min_relative_gap))
    fail(ErrorKind::invalid_argument, "suggest_strategies",
         "min_relative_gap = {} given, expected a finite number from 0 on, as 0.1 for a tenth.",
         options.min_relative_gap);
  if (!(options.memory_headroom >= 0 && options.memory_headroom < 1))
    fail(ErrorKind::invalid_argument, "suggest_strategies",
         "memory_headroom = {} given, expected a fraction from 0 to below 1, as 0.1 for a tenth.",
         options.memory_headroom);
  check_at_least("num_processes", options.num_processes, 0);
  if (options.num_processes && devices % options.num_processes)
    fail(ErrorKind::invalid_argument, "suggest_strategies",
         "num_processes = {} given, expected a number that divides the {} devices, or 0.", options.num_processes,
         devices);
  for (const auto& [axis, most] : options.max_along) {
    if (axis != "pipe" && axis != "replica" && axis != "data" && axis != "model")
      fail(ErrorKind::invalid_argument, "suggest_strategies",
           "max_along names \"{}\", expected an axis of the meshes that are tried: pipe, replica, data, model.", axis);
    check_at_least("max_along", most, 1);
  }
  detail::check_hardware("suggest_strategies", hardware);
}

}  // namespace

std::string detail::why_it_beats(const SuggestedStrategy& a, const SuggestedStrategy* b) {
  if (!b) return "Nothing else that was tried fits.";
  const double saved = b->forecast.seconds() - a.forecast.seconds(), share = saved / b->forecast.seconds();
  if (share < 1e-4)
    return fmt::format("As fast as {}, with {} bytes less at its peak.", name_and_mesh(*b),
                       with_commas(b->forecast.peak_bytes - a.forecast.peak_bytes));
  return fmt::format("{} ms ({:.2g} %) less than {}: {}.", milliseconds(saved), 100 * share, name_and_mesh(*b),
                     reason(a.forecast, b->forecast));
}

std::string StrategySuggestions::why_none() const {
  const std::string devices = counted(search_.num_devices, "device");
  if (too_large_.empty() && !failed_.empty())
    return fmt::format("the step runs on no strategy of {}. {}: {}", devices, name_and_mesh(failed_.front()),
                       failed_.front().forecast.error);
  if (too_large_.empty())
    return fmt::format("no strategy divides the step's dims over {}. Give another number, or dims that it divides.",
                       devices);
  const SuggestedStrategy& least = too_large_.front();
  return fmt::format(
      "no strategy fits in {} bytes on each of {}: the smallest found, {}, takes {}{}. Give {}, or more devices.",
      with_commas(search_.memory), devices, name_and_mesh(least), with_commas(least.forecast.peak_bytes),
      search_.memory_headroom > 0 ? fmt::format(", and {:.3g} % are kept free", 100 * search_.memory_headroom) : "",
      with_commas(least_memory(least.forecast.peak_bytes, search_.memory_headroom)));
}

const SuggestedStrategy& StrategySuggestions::best() const {
  if (strategies_.empty()) fail(ErrorKind::invalid_argument, "suggest_strategies", "{}", why_none());
  return strategies_.front();
}

std::string StrategySuggestions::to_text() const {
  const std::string table = strategies_.empty() ? "None: " + why_none() + '\n' : table_of(strategies_).to_text();
  return heading(*this) + "\n\n" + table + '\n' + paragraphs(*this);
}

std::string StrategySuggestions::to_markdown() const {
  return heading(*this) + "\n\n" + table_of(strategies_).to_markdown() + '\n' + paragraphs(*this);
}

std::string StrategySuggestions::to_json() const {
  return boost::json::serialize(boost::json::object{{"devices", search_.num_devices},
                                                    {"memory", search_.memory},
                                                    {"tried", search_.num_tried},
                                                    {"steps", search_.num_steps},
                                                    {"complete", search_.is_complete},
                                                    {"skipped", search_.num_skipped},
                                                    {"strategies", json_of(strategies_)},
                                                    {"too_large", json_of(too_large_)},
                                                    {"failed", json_of(failed_)}});
}

StrategySuggestions suggest_strategies(const StrategyStep& step, int64_t devices, const Hardware& hardware,
                                       int64_t memory, const SuggestStrategiesOptions& options) {
  check(static_cast<bool>(step), devices, hardware, memory, options);
  const auto with = [&](const MeshRules& mesh_rules, const GradientOptions&, const PipelineOptions&) {
    return step(mesh_rules);
  };
  return detail::StrategySearch(with, {}, devices, hardware, memory, options).run();
}

StrategySuggestions suggest_strategies(const GradientStep& step, int64_t devices, const Hardware& hardware,
                                       int64_t memory, const SuggestStrategiesOptions& options) {
  check(static_cast<bool>(step), devices, hardware, memory, options);
  const auto with = [&](const MeshRules& mesh_rules, const GradientOptions& gradients, const PipelineOptions&) {
    return step(mesh_rules, gradients);
  };
  return detail::StrategySearch(with, {.gradients = true}, devices, hardware, memory, options).run();
}

StrategySuggestions suggest_strategies(const PipelineStep& step, int64_t devices, const Hardware& hardware,
                                       int64_t memory, const SuggestStrategiesOptions& options) {
  check(static_cast<bool>(step), devices, hardware, memory, options);
  return detail::StrategySearch(step, {.gradients = true, .pipeline = true}, devices, hardware, memory, options).run();
}

}  // namespace tessera::nn
