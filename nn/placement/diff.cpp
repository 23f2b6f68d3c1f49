// Rows paired by path and compared column by column.
#include "nn/placement/diff.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json.hpp>
#include <map>
#include <ostream>

#include "nn/placement/path_folding.h"
#include "sharding/base/table.h"
#include "sharding/files/json.h"

namespace tessera::nn {

using tessera::detail::with_commas;

namespace {

std::string names_of(const PlacementRow& row) {
  return row.axes ? fmt::format("({})", fmt::join(*row.axes, ", ")) : "none";
}

std::string mesh_of(const PlacementRow& row) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : row.mesh) axes.push_back(fmt::format("{}={}", axis.name, axis.size));
  return axes.empty() ? "none" : fmt::format("({})", fmt::join(axes, ", "));
}

std::string summary(const PlacementRow& row) {
  return fmt::format("{} {}, {}, bytes/device {}", name_of(row.dtype), to_string(row.shape), row.spec,
                     with_commas(row.bytes_per_device));
}

// The columns that differ, each from what to what.
std::string comparison(const PlacementRow& a, const PlacementRow& b) {
  std::string text;
  const auto compare = [&text](const char* column, const std::string& before, const std::string& after) {
    if (before != after) text += fmt::format("{}{} {} -> {}", text.empty() ? "" : "; ", column, before, after);
  };
  compare("axes", names_of(a), names_of(b));
  compare("dtype", std::string(name_of(a.dtype)), std::string(name_of(b.dtype)));
  compare("shape", to_string(a.shape), to_string(b.shape));
  compare("mesh", mesh_of(a), mesh_of(b));
  compare("spec", a.spec, b.spec);
  compare("bytes/device", with_commas(a.bytes_per_device), with_commas(b.bytes_per_device));
  compare("replicas", with_commas(a.num_replicas), with_commas(b.num_replicas));
  return text;
}

std::string sign_of(const PlacementChange& change) { return !change.before ? "+ " : !change.after ? "- " : "~ "; }

std::string look_of(const PlacementChange& change) {
  if (change.before && change.after) return comparison(*change.before, *change.after);
  return summary(change.before ? *change.before : *change.after);
}

boost::json::value row_of(const std::optional<PlacementRow>& row) {
  if (!row) return nullptr;
  return parse_json(PlacementTable({*row}).to_json(), "diff_placement", row->path).at("rows").at(0);
}

std::map<std::string, const PlacementRow*> by_path(const PlacementTable& table) {
  std::map<std::string, const PlacementRow*> rows;
  for (const PlacementRow& row : table.rows()) rows[row.path] = &row;
  return rows;
}

}  // namespace

std::string PlacementDiff::to_text() const {
  if (empty()) return "";
  std::vector<std::string> paths, looks;
  for (const PlacementChange& change : changes_)
    paths.push_back(sign_of(change) + change.path), looks.push_back(look_of(change));
  std::string text;
  for (const detail::Folded& f : detail::fold_paths(paths, looks))
    text += fmt::format("{}: {}\n", f.path, looks[f.members[0]]);
  return text + fmt::format("bytes per device: {} -> {}\n", with_commas(bytes_before_), with_commas(bytes_after_));
}

std::string PlacementDiff::to_json() const {
  boost::json::array changes;
  for (const PlacementChange& c : changes_)
    changes.push_back({{"path", c.path}, {"before", row_of(c.before)}, {"after", row_of(c.after)}});
  return boost::json::serialize(boost::json::object{
      {"changes", std::move(changes)}, {"bytes_per_device", {{"before", bytes_before_}, {"after", bytes_after_}}}});
}

std::ostream& operator<<(std::ostream& out, const PlacementDiff& diff) { return out << diff.to_text(); }

PlacementDiff diff_placement(const PlacementTable& before, const PlacementTable& after) {
  std::map<std::string, const PlacementRow*> old = by_path(before);
  std::vector<PlacementChange> changes;
  for (const PlacementRow& row : after.rows()) {
    const auto found = old.find(row.path);
    if (found == old.end())
      changes.push_back({row.path, std::nullopt, row});
    else if (*found->second != row)
      changes.push_back({row.path, *found->second, row});
    if (found != old.end()) old.erase(found);
  }
  for (const PlacementRow& row : before.rows())
    if (old.contains(row.path)) changes.push_back({row.path, row, std::nullopt});
  return PlacementDiff(std::move(changes), before.bytes_per_device(), after.bytes_per_device());
}

}  // namespace tessera::nn
