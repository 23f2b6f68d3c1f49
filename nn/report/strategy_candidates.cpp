// Rules and meshes of the known families of parallelism, by the roles of a program's names.
#include "nn/report/strategy_candidates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tessera::nn::detail {

namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool cuts_layers(AlongModel use) { return use == AlongModel::layers || use == AlongModel::layers_and_sequence; }
bool cuts_weights(WeightsAlongData weights) { return weights >= WeightsAlongData::cut; }

// The names that lie along "model": those that it divides. The others are whole.
std::vector<std::string> cut_along_model(const StrategyCandidate& c, const AxisRoles& roles) {
  std::vector<std::string> names;
  const auto add = [&](const std::vector<std::string>& more) {
    for (const std::string& name : more)
      if (roles.divides(c.model, name) && !contains(c.whole_layers, name)) names.push_back(name);
  };
  if (cuts_layers(c.along_model)) add(roles.inner);
  if (c.along_model == AlongModel::layers_and_sequence) add(roles.constrained);
  if (c.along_model == AlongModel::sequence) add(roles.sequence);
  return names;
}

bool can_cut_weights(const StrategyCandidate& c, const AxisRoles& roles) {
  return !roles.stream_is_everywhere || roles.divides(c.data, roles.stream);
}

}  // namespace

std::vector<MeshAxis> StrategyCandidate::mesh() const {
  std::vector<MeshAxis> axes{{"pipe", pipe}, {"replica", replica}, {"data", data}, {"model", model}};
  std::erase_if(axes, [](const MeshAxis& axis) { return axis.size == 1; });
  return axes.empty() ? std::vector<MeshAxis>{{"data", 1}} : axes;
}

Rules StrategyCandidate::rules(const AxisRoles& roles) const {
  Rules rules;
  if (pipe > 1) rules.push_back({roles.blocks, "pipe"});
  std::vector<std::string> rows;
  if (replica > 1) rows.push_back("replica");
  if (data > 1) rows.push_back("data");
  if (!roles.batch.empty() && !rows.empty()) rules.push_back({roles.batch, rows});
  if (model > 1)
    for (const std::string& name : cut_along_model(*this, roles)) rules.push_back({name, "model"});
  if (cuts_weights(weights) && data > 1) {
    if (roles.stream_is_everywhere)
      rules.push_back({roles.stream, "data"});
    else
      rules.push_back({ParamPattern{.min_size = 1024}, longest_dim("data")});
  }
  const Rules cut = rules;
  for (const std::string& name : roles.names)
    if (std::none_of(cut.begin(), cut.end(), [&](const Rule& rule) { return rule.logical == name; }))
      rules.push_back({name, replicated});
  return rules;
}

GradientOptions StrategyCandidate::gradients() const {
  GradientOptions options;
  options.reshard_after_forward = weights != WeightsAlongData::cut_and_kept;
  if (weights == WeightsAlongData::cut_state) options.shard_gradients_over = {"data"};
  return options;
}

PipelineOptions StrategyCandidate::pipeline() const {
  return {.num_micro_batches = num_micro_batches, .schedule = PipelineSchedule::one_f_one_b};
}

StrategyCandidate with_micro_batches(StrategyCandidate c, const AxisRoles& roles) {
  c.num_micro_batches = 1;
  if (c.pipe == 1 || roles.batch.empty()) return c;
  for (int64_t n = 4 * c.pipe; n > 1 && c.num_micro_batches == 1; --n)
    if (roles.divides(c.replica * c.data * n, roles.batch)) c.num_micro_batches = n;
  return c;
}

std::string StrategyCandidate::name(const AxisRoles& roles) const {
  constexpr const char* by_weights[] = {"data parallel", "ZeRO-1", "fully sharded",
                                        "fully sharded, gathered once a step"};
  constexpr const char* by_model[] = {"", "tensor parallel", "tensor and sequence parallel", "sequence parallel"};
  std::string along_data = data * replica == 1 ? "" : by_weights[static_cast<size_t>(weights)];
  if (replica > 1) along_data.replace(0, std::string("fully").size(), "hybrid");
  std::string by = by_model[static_cast<size_t>(along_model)];
  if (!whole_layers.empty()) by += fmt::format(" of {}", fmt::join(cut_along_model(*this, roles), ", "));
  std::vector<std::string> parts{pipe > 1 ? "pipeline" : "", along_data, by};
  std::erase(parts, "");
  return parts.empty() ? "one device" : fmt::format("{}", fmt::join(parts, " x "));
}

bool is_possible(const StrategyCandidate& c, const AxisRoles& roles) {
  const bool divides_rows = roles.batch.empty() || roles.divides(c.replica * c.data, roles.batch);
  if (!divides_rows || (c.data > 1 && roles.batch.empty() && !cuts_weights(c.weights))) return false;
  if (cuts_weights(c.weights) && (c.data == 1 || !can_cut_weights(c, roles))) return false;
  if (c.weights == WeightsAlongData::cut_state && c.data == 1) return false;
  if (c.replica > 1 && !cuts_weights(c.weights)) return false;
  if ((c.model > 1) != (c.along_model != AlongModel::nothing)) return false;
  if ((c.pipe > 1) != (c.num_micro_batches > 1)) return false;
  if (c.pipe > 1 && (roles.depth % c.pipe || roles.batch.empty() || cuts_weights(c.weights) ||
                     !roles.divides(c.data * c.num_micro_batches, roles.batch)))
    return false;
  if (c.model == 1) return true;
  const std::vector<std::string> names = cut_along_model(c, roles);
  const auto any_of = [&](const std::vector<std::string>& kind) {
    return std::any_of(kind.begin(), kind.end(), [&](const std::string& name) { return contains(names, name); });
  };
  if (cuts_layers(c.along_model) && !any_of(roles.inner)) return false;
  return c.along_model != AlongModel::layers_and_sequence || any_of(roles.constrained) ? !names.empty() : false;
}

std::vector<int64_t> divisors_of(int64_t n) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d <= n; ++d)
    if (n % d == 0) divisors.push_back(d);
  return divisors;
}

}  // namespace tessera::nn::detail
