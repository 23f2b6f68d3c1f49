// The rows of an activation table, and the table as JSON.
#include "nn/report/activations.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>

#include "sharding/base/closest_matches.h"
#include "sharding/base/fail.h"

namespace tessera::nn {

namespace detail {

bool is_in_module(std::string_view path, std::string_view top) {
  return top.empty() || (path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '.'));
}

}  // namespace detail

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

}  // namespace tessera::nn
