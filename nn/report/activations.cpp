// Text, Markdown and JSON of an ActivationTable.
#include "nn/report/activations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>

#include "nn/placement/paths.h"
#include "sharding/base/caller.h"
#include "sharding/base/fail.h"
#include "sharding/base/table.h"
#include "sharding/base/text.h"

namespace tessera::nn {

using tessera::detail::line_name, tessera::detail::Table, tessera::detail::with_commas;

namespace {

boost::json::array to_array(const std::vector<ModuleArray>& activations) {
  boost::json::array all;
  for (const ModuleArray& x : activations) all.push_back({{"type", x.type}, {"bytes_per_device", x.bytes_per_device}});
  return all;
}

boost::json::object to_object(const ActivationRow& row) {
  boost::json::array traffic;
  for (const ModuleTraffic& t : row.traffic)
    traffic.push_back({{"kind", t.kind}, {"backward", t.backward}, {"count", t.num_collectives}, {"bytes", t.bytes}});
  return {{"path", row.path},
          {"module", row.module},
          {"inputs", to_array(row.inputs)},
          {"outputs", to_array(row.outputs)},
          {"saved_bytes", row.saved_bytes},
          {"forward_flops", row.forward_flops},
          {"backward_flops", row.backward_flops},
          {"collectives", std::move(traffic)}};
}

boost::json::object to_object(const WholeActivation& whole) {
  return {{"module", whole.module},
          {"operation", whole.operation},
          {"maker", whole.maker},
          {"type", whole.type},
          {"axes", whole.mesh_axes},
          {"reason", whole.reason},
          {"constraint", whole.constraint},
          {"as_it_is", whole.as_it_is},
          {"cure", whole.cure()},
          {"bytes_per_device", whole.bytes_per_device},
          {"file", whole.where.file_name()},
          {"line", whole.where.line()}};
}

}  // namespace

ActivationTable::ActivationTable(std::vector<ActivationRow> rows, std::vector<WholeActivation> whole)
    : rows_(std::move(rows)), whole_(std::move(whole)) {}

const ActivationRow& ActivationTable::row(std::string_view path) const {
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const ActivationRow& r) { return r.path == path; });
  if (found != rows_.end()) return *found;
  std::vector<std::string> paths;
  for (const ActivationRow& r : rows_) paths.push_back(r.path);
  fail(ErrorKind::invalid_argument, "activation_summary",
       "\"{}\" given, expected a module that took part. Nearest: {}.", path,
       fmt::join(tessera::detail::closest_matches(path, paths), ", "));
}

std::string ActivationTable::to_json() const {
  boost::json::array modules, whole;
  for (const ActivationRow& row : rows_) modules.push_back(to_object(row));
  for (const WholeActivation& w : whole_) whole.push_back(to_object(w));
  return boost::json::serialize(boost::json::object{{"modules", std::move(modules)}, {"whole", std::move(whole)}});
}

// ---- text and Markdown

namespace {

// Lists each type once: float32[8@data,64] x 2.
std::string types_of(const std::vector<ModuleArray>& activations) {
  std::vector<std::pair<std::string, int>> types;
  for (const ModuleArray& x : activations) {
    const auto known = std::find_if(types.begin(), types.end(), [&](const auto& t) { return t.first == x.type; });
    known == types.end() ? types.emplace_back(x.type, 1), 0 : ++known->second;
  }
  std::vector<std::string> parts;
  for (const auto& [type, count] : types) parts.push_back(count == 1 ? type : fmt::format("{} x {}", type, count));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string pass_of(const std::vector<ModuleTraffic>& traffic, bool backward) {
  std::vector<std::string> parts;
  for (const ModuleTraffic& t : traffic)
    if (t.backward == backward)
      parts.push_back(fmt::format("{} {} ({})", t.num_collectives, t.kind, with_commas(t.bytes)));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string description_of(const std::vector<ModuleTraffic>& traffic) {
  const std::string forward = pass_of(traffic, false), back = pass_of(traffic, true);
  if (traffic.empty()) return "-";
  return forward + (back.empty() ? "" : (forward.empty() ? "back: " : "; back: ") + back);
}

void add(std::vector<ModuleTraffic>& sums, const std::vector<ModuleTraffic>& traffic) {
  for (const ModuleTraffic& t : traffic) {
    const auto sum = std::find_if(sums.begin(), sums.end(),
                                  [&](const auto& s) { return s.kind == t.kind && s.backward == t.backward; });
    if (sum == sums.end())
      sums.push_back(t);
    else
      sum->num_collectives += t.num_collectives, sum->bytes += t.bytes;
  }
}

// Returns the first row with the sums of all.
ActivationRow sum_of(const std::vector<ActivationRow>& rows, const std::vector<size_t>& members) {
  ActivationRow sum = rows[members[0]];
  for (size_t i = 1; i < members.size(); ++i) {
    const ActivationRow& row = rows[members[i]];
    sum.saved_bytes += row.saved_bytes;
    sum.forward_flops += row.forward_flops, sum.backward_flops += row.backward_flops;
    add(sum.traffic, row.traffic);
  }
  return sum;
}

std::vector<ActivationRow> shown(const ActivationTable& table, const ActivationTableOptions& format) {
  std::vector<ActivationRow> rows;
  for (const ActivationRow& row : table.rows()) {
    const auto names = row.path.empty() ? 0 : 1 + std::count(row.path.begin(), row.path.end(), '.');
    if (!format.depth || names <= *format.depth) rows.push_back(row);
  }
  if (!format.fold) return rows;
  std::vector<std::string> paths, looks;
  for (const ActivationRow& row : rows) {
    paths.push_back(row.path);
    looks.push_back(fmt::format("{}|{}|{}", row.module, types_of(row.inputs), types_of(row.outputs)));
  }
  std::vector<ActivationRow> folded;
  for (const detail::Folded& f : detail::fold_paths(paths, looks)) {
    folded.push_back(sum_of(rows, f.members));
    folded.back().path = f.path;
  }
  return folded;
}

Table table_of(const ActivationTable& activations, const ActivationTableOptions& format) {
  Table table({"module", "type", "in", "out", "saved, bytes", "FLOPs", "back", "collectives"}, "<<<<,gg<");
  for (const ActivationRow& row : shown(activations, format))
    table.add({row.path.empty() ? "all" : row.path, row.module, types_of(row.inputs), types_of(row.outputs),
               row.saved_bytes, row.forward_flops, row.backward_flops, description_of(row.traffic)});
  return table;
}

std::string owner_of(const WholeActivation& whole) {
  return whole.maker.empty() ? whole.type : fmt::format("{} of {}", whole.type, whole.maker);
}

// Returns the activations that are silently replicated, one entry for those that differ only in numbers of layers.
std::vector<std::string> entries_of(const std::vector<WholeActivation>& all, bool fold) {
  std::vector<std::string> owners, looks, entries;
  for (const WholeActivation& w : all) {
    owners.push_back(fold ? w.maker : fmt::format("{} {}", w.maker, owners.size()));
    looks.push_back(fmt::format("{}|{}|{}|{}|{}", w.type, w.mesh_axes, w.operation, line_name(w.where), w.constraint));
  }
  for (const detail::Folded& f : detail::fold_paths(owners, looks)) {
    WholeActivation w = all[f.members[0]];
    if (f.members.size() > 1) w.maker = f.path, w.module = "";
    std::string text =
        fmt::format("{} is replicated over {} for {} at {}{}, {} bytes on each device: {}.", owner_of(w), w.mesh_axes,
                    w.operation, line_name(w.where), w.module.empty() ? "" : fmt::format(" in {}", w.module),
                    with_commas(w.bytes_per_device), w.reason);
    text += w.constraint.empty() ? " No constraint would keep it sharded there"
                                 : fmt::format(" {} keeps it sharded", w.cure());
    text += fmt::format("; {} marks it as intentionally replicated.", w.as_it_is);
    entries.push_back(std::move(text));
  }
  return entries;
}

}  // namespace

std::string WholeActivation::cure() const {
  if (constraint.empty()) return "";
  const bool within = !maker.empty() && maker == module;  // no constraint fits between its operations
  return fmt::format("with_sharding_constraint(x, {}) {} {} at {}", constraint, within ? "on the result of" : "before",
                     within ? maker : operation, line_name(where));
}

std::string ActivationTable::to_text(const ActivationTableOptions& format) const {
  std::string text = table_of(*this, format).to_text();
  for (const std::string& entry : entries_of(whole_, format.fold)) text += entry + '\n';
  return text;
}

std::string ActivationTable::to_markdown(const ActivationTableOptions& format) const {
  std::string text = table_of(*this, format).to_markdown();
  const std::vector<std::string> entries = entries_of(whole_, format.fold);
  for (const std::string& entry : entries) text += (&entry == &entries[0] ? "\n- " : "- ") + entry + '\n';
  return text;
}

}  // namespace tessera::nn
