// Increases the model axis of each family until it is slower than a strategy that fits, then refines the best.
#include "nn/report/strategy_search.h"

#include <algorithm>
#include <map>
#include <utility>

#include "nn/placement/paths.h"
#include "sharding/base/fail.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/placement/named_sharding.h"

namespace tessera::nn::detail {

namespace {

// Parses names as a placement table writes them: embed, none, @model.
Axes axes_of(const std::vector<std::string>& names) {
  std::vector<AxisName> axes;
  for (const std::string& name : names)
    axes.push_back(name == "none"          ? AxisName(none)
                   : name.starts_with("@") ? mesh_axis(name.substr(1))
                                           : AxisName(name));
  return Axes(axes);
}

Mesh abstract_mesh(const std::vector<MeshAxis>& axes, int processes = 0) {
  return make_mesh(axes, {.abstract = true, .num_processes = processes});
}

}  // namespace

int64_t usable_memory(int64_t memory, double memory_headroom) {
  return memory - static_cast<int64_t>(static_cast<double>(memory) * memory_headroom);
}

StrategySearch::StrategySearch(const PipelineStep& step, Takes takes, int64_t devices, const Hardware& hardware,
                               int64_t memory, const SuggestStrategiesOptions& options)
    : step_(step),
      takes_(takes),
      devices_(devices),
      hardware_(hardware),
      memory_(memory),
      usable_(usable_memory(memory, options.memory_headroom)),
      options_(options) {
  probe();
}

void StrategySearch::probe() {
  const tessera::detail::RuleSurvey probe;
  const MeshRules mesh_rules(abstract_mesh({{"replica", 1}, {"data", 1}, {"model", 1}}), {});
  rows_ = step_(mesh_rules, {}, {}).rows();
  steps_ += 1;
  roles_ = roles_of(probe.asked(), rows_);
  if (roles_.names.empty())
    fail(ErrorKind::invalid_argument, "suggest_strategies",
         "the step places nothing by the names of its dims, expected filter_shard(model, mesh_rules). Without names no "
         "rule applies.");
  has_own_rules_ = std::any_of(probe.asked().begin(), probe.asked().end(),
                               [](const tessera::detail::NamedDims& array) { return array.had_rules; });
}

// ---- one candidate

bool StrategySearch::is_allowed(const StrategyCandidate& c) const {
  for (const auto& [axis, size] :
       {std::pair("replica", c.replica), {"data", c.data}, {"model", c.model}, {"pipe", c.pipe}}) {
    const auto most = options_.max_along.find(axis);
    if (most != options_.max_along.end() && size > most->second) return false;
  }
  return is_possible(c, roles_) && !tessera::detail::box_of_each(c.mesh(), options_.num_processes).empty();
}

// Returns a lower bound of the bytes at rest, from the table of the step. Returns 0 if arrays have their own rules or
// moments are sharded further.
int64_t StrategySearch::bytes_at_rest(const StrategyCandidate& c) const {
  if (c.weights == WeightsAlongData::cut_state || has_own_rules_) return 0;
  const MeshRules mesh_rules(abstract_mesh(c.mesh()), c.rules(roles_), {.missing_axes = MissingAxes::ok});
  std::vector<std::string> paths;
  for (const PlacementRow& row : rows_) paths.push_back(row.path);
  const std::vector<MeshRules> strategies = stage_mesh_rules(paths, mesh_rules, "suggest_strategies");
  std::map<std::string, int64_t> bytes;  // by stage
  int64_t most = 0;
  for (size_t i = 0; i < rows_.size(); ++i)
    if (const PlacementRow& row = rows_[i]; row.axes) {
      const RuleResolution there = strategies[i].resolve(axes_of(*row.axes), row.shape, "suggest_strategies", row.path);
      const std::string stage = stage_name(strategies[i].mesh());
      bytes[stage] += NamedSharding(strategies[i].mesh(), there.spec).shard_bytes(row.shape, row.dtype);
      if (!stage.empty()) most = std::max(most, bytes[stage]);
    }
  return bytes[""] + most;
}

std::optional<size_t> StrategySearch::attempt(const StrategyCandidate& c) {
  const auto is_it = [&](const Trial& trial) { return trial.candidate == c; };
  if (!is_allowed(c) || std::any_of(trials_.begin(), trials_.end(), is_it)) return std::nullopt;
  if (steps_ + 2 > options_.max_steps) {
    is_complete_ = false;
    return std::nullopt;
  }
  const MeshRules mesh_rules(abstract_mesh(c.mesh(), options_.num_processes), c.rules(roles_));
  const auto step = [&] {
    steps_ += 1;
    return step_(mesh_rules, c.gradients(), c.pipeline());
  };
  Trial trial{.candidate = c, .forecast = forecast_step(mesh_rules.mesh(), step, hardware_)};
  trial.fits = trial.forecast.error.empty() && trial.forecast.peak_bytes <= usable_;
  trials_.push_back(std::move(trial));
  return trials_.size() - 1;
}

std::optional<size_t> StrategySearch::attempt_what_may_fit(const StrategyCandidate& c) {
  if (!is_allowed(c)) return std::nullopt;
  const int64_t at_rest = bytes_at_rest(c);
  if (at_rest <= usable_) return attempt(c);
  skipped_.emplace_back(at_rest, c);
  return std::nullopt;
}

// ---- the search

std::vector<size_t> StrategySearch::fitting() const {
  std::vector<size_t> found;
  for (size_t i = 0; i < trials_.size(); ++i)
    if (trials_[i].fits) found.push_back(i);
  const auto cost = [&](size_t i) { return std::pair(trials_[i].seconds(), trials_[i].forecast.peak_bytes); };
  std::stable_sort(found.begin(), found.end(), [&](size_t a, size_t b) { return cost(a) < cost(b); });
  const auto is_like = [&](size_t a, size_t b) { return cost(a) == cost(b); };
  found.erase(std::unique(found.begin(), found.end(), is_like), found.end());
  return found;
}

void StrategySearch::advance(Family& family, int64_t model) {
  if (devices_ / family.pipe % model) return;
  const auto made = attempt_what_may_fit(with_micro_batches({.pipe = family.pipe,
                                                             .data = devices_ / family.pipe / model,
                                                             .model = model,
                                                             .weights = family.weights,
                                                             .along_model = family.along_model},
                                                            roles_));
  if (!made || !trials_[*made].forecast.error.empty()) return;
  const double seconds = trials_[*made].seconds();
  const std::vector<size_t> fit = fitting();
  if (fit.size() >= options_.max_strategies) {
    const double last = trials_[fit[options_.max_strategies - 1]].seconds(), best = trials_[fit[0]].seconds();
    family.is_left = (seconds > last && seconds >= family.previous) || seconds > 4 * best;
  }
  family.previous = seconds;
}

std::vector<StrategySearch::Family> StrategySearch::families() const {
  std::vector<Family> all;
  const auto add = [&](int64_t pipe, WeightsAlongData weights, AlongModel use) {
    if (takes_.gradients || weights != WeightsAlongData::cut_state) all.push_back({pipe, weights, use});
  };
  for (const AlongModel use :
       {AlongModel::nothing, AlongModel::layers, AlongModel::layers_and_sequence, AlongModel::sequence})
    for (const WeightsAlongData weights : {WeightsAlongData::whole, WeightsAlongData::cut_state, WeightsAlongData::cut})
      add(1, weights, use);
  for (const int64_t pipe : divisors_of(devices_)) {
    if (!takes_.pipeline || pipe == 1 || roles_.depth == 0 || roles_.depth % pipe) continue;
    for (const AlongModel use : {AlongModel::nothing, AlongModel::layers})
      for (const WeightsAlongData weights : {WeightsAlongData::whole, WeightsAlongData::cut_state})
        add(pipe, weights, use);
  }
  return all;
}

void StrategySearch::search_families() {
  std::vector<Family> all = families();
  for (const int64_t model : divisors_of(devices_))
    for (Family& family : all)
      if (!family.is_left) advance(family, model);
}

// Tries half and twice as many micro-batches.
void StrategySearch::refine_pipeline() {
  for (const size_t i : fitting()) {
    const StrategyCandidate& best = trials_[i].candidate;
    if (best.pipe == 1) continue;
    StrategyCandidate half = best, twice = best;
    half.num_micro_batches /= 2, twice.num_micro_batches *= 2;
    attempt(half);
    attempt(twice);
    return;
  }
}

void StrategySearch::refine() {
  const auto is_cut = [&](size_t i) { return trials_[i].candidate.weights == WeightsAlongData::cut; };
  std::vector<size_t> best = fitting();
  best.resize(std::min<size_t>(best.size(), 3));
  for (const size_t i : best)
    if (takes_.gradients && is_cut(i)) {
      StrategyCandidate kept = trials_[i].candidate;
      kept.weights = WeightsAlongData::cut_and_kept;
      attempt(kept);
    }
  if (best.empty()) return;
  const auto first_cut = std::find_if(best.begin(), best.end(), is_cut);
  if (first_cut != best.end()) {
    double before = trials_[*first_cut].seconds();
    StrategyCandidate hybrid = trials_[*first_cut].candidate;
    for (const int64_t replica : divisors_of(hybrid.data)) {
      if (replica == 1 || replica == hybrid.data) continue;
      StrategyCandidate c = hybrid;
      c.replica = replica, c.data = hybrid.data / replica;
      const auto made = attempt_what_may_fit(c);
      if (!made || trials_[*made].seconds() >= before) break;
      before = trials_[*made].seconds();
    }
  }
  for (const std::string& name : roles_.inner) {
    StrategyCandidate c = trials_[fitting()[0]].candidate;
    if (c.along_model == AlongModel::nothing || c.along_model == AlongModel::sequence) break;
    c.whole_layers.push_back(name);
    attempt(c);
  }
}

// Runs the candidates that may have the smallest peak. A peak is at least the bytes at rest, so candidates with more
// bytes at rest than the smallest peak need no run.
void StrategySearch::search_the_smallest() {
  std::stable_sort(skipped_.begin(), skipped_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t smallest = std::numeric_limits<int64_t>::max();
  const auto take = [&](const Trial& trial) {
    if (trial.forecast.error.empty()) smallest = std::min(smallest, trial.forecast.peak_bytes);
  };
  for (const Trial& trial : trials_) take(trial);
  for (const auto& [at_rest, candidate] : skipped_) {
    if (at_rest >= smallest) break;
    if (const auto made = attempt(candidate)) take(trials_[*made]);
  }
}

SuggestedStrategy StrategySearch::suggestion(const Trial& trial) const {
  const StrategyCandidate& c = trial.candidate;
  return {.name = c.name(roles_),
          .mesh = c.mesh(),
          .rules = c.rules(roles_),
          .gradients = c.gradients(),
          .pipeline = c.pipeline(),
          .forecast = trial.forecast,
          .why = ""};
}

// Returns the strategies to propose. Among equally fast ones on one mesh, it keeps the smallest. Then it keeps the
// fastest, and each that is slower than the previous one by min_relative_gap.
std::vector<size_t> StrategySearch::proposed() const {
  constexpr double as_fast = 1.01;
  std::vector<size_t> chosen;
  for (const size_t i : fitting()) {
    const Trial& trial = trials_[i];
    const auto like = std::find_if(chosen.begin(), chosen.end(), [&](size_t other) {
      return trials_[other].candidate.mesh() == trial.candidate.mesh() &&
             trial.seconds() <= as_fast * trials_[other].seconds();
    });
    if (like == chosen.end())
      chosen.push_back(i);
    else if (trial.forecast.peak_bytes < trials_[*like].forecast.peak_bytes)
      *like = i;
  }
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](size_t a, size_t b) { return trials_[a].seconds() < trials_[b].seconds(); });
  std::vector<size_t> apart;
  for (const size_t i : chosen)
    if (apart.empty() || trials_[i].seconds() >= (1 + options_.min_relative_gap) * trials_[apart.back()].seconds())
      apart.push_back(i);
  return apart;
}

StrategySuggestions StrategySearch::run() {
  search_families();
  refine();
  refine_pipeline();
  const std::vector<size_t> fit = proposed();
  if (fit.empty()) search_the_smallest();
  std::vector<SuggestedStrategy> strategies, too_large, failed;
  for (const size_t i : fit) strategies.push_back(suggestion(trials_[i]));
  for (size_t i = 0; i < strategies.size(); ++i)
    strategies[i].why = why_it_beats(strategies[i], i + 1 < strategies.size() ? &strategies[i + 1] : nullptr);
  if (strategies.size() > options_.max_strategies)
    strategies.erase(strategies.begin() + static_cast<std::ptrdiff_t>(options_.max_strategies), strategies.end());
  for (const Trial& trial : trials_)
    if (!trial.fits) (trial.forecast.error.empty() ? too_large : failed).push_back(suggestion(trial));
  std::stable_sort(too_large.begin(), too_large.end(), [](const SuggestedStrategy& a, const SuggestedStrategy& b) {
    return a.forecast.peak_bytes < b.forecast.peak_bytes;
  });
  const auto skipped = std::count_if(skipped_.begin(), skipped_.end(), [&](const auto& one) {
    return std::none_of(trials_.begin(), trials_.end(), [&](const Trial& t) { return t.candidate == one.second; });
  });
  return StrategySuggestions(std::move(strategies), std::move(too_large), std::move(failed),
                             {.num_devices = devices_,
                              .memory = memory_,
                              .memory_headroom = options_.memory_headroom,
                              .num_tried = static_cast<int64_t>(trials_.size()),
                              .num_steps = steps_,
                              .is_complete = is_complete_,
                              .num_skipped = static_cast<int64_t>(skipped)});
}

}  // namespace tessera::nn::detail
