// Finds the decisions of mesh rules for every array, and prints them as text and as JSON.
#include "nn/placement/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <set>

#include "nn/placement/filter_shard.h"
#include "nn/placement/paths.h"
#include "sharding/base/fail.h"
#include "sharding/base/table.h"
#include "sharding/base/text.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/resolver.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn {

using tessera::detail::with_commas;

namespace {

// ---- one array

bool is_used(const std::string& axis, const PartitionSpec& spec) {
  return std::any_of(spec.entries().begin(), spec.entries().end(), [&](const SpecEntry& entry) {
    return std::find(entry.axes().begin(), entry.axes().end(), axis) != entry.axes().end();
  });
}

std::vector<std::string> unused_axes(const Mesh& mesh, const Shape& shape, const PartitionSpec& spec) {
  std::vector<std::string> axes;
  for (const MeshAxis& axis : mesh.axes()) {
    const bool divides = std::any_of(shape.begin(), shape.end(), [&](int64_t n) { return n % axis.size == 0; });
    if (axis.size > 1 && divides && !is_used(axis.name, spec)) axes.push_back(axis.name);
  }
  return axes;
}

bool is_whole(const Mesh& mesh, const PartitionSpec& spec) {
  return mesh.size() > 1 && std::none_of(mesh.axes().begin(), mesh.axes().end(), [&](const MeshAxis& axis) {
           return axis.size > 1 && is_used(axis.name, spec);
         });
}

ExplainedArray explain_one(const Leaf& leaf, const MeshRules& mesh_rules) {
  const Array& x = *leaf.value;
  ExplainedArray row{.path = leaf.path, .axes = {}, .shape = x.shape(), .dtype = x.dtype()};
  row.bytes = x.size() * item_size(x.dtype());
  if (leaf.axes) {
    row.axes.emplace();
    for (const AxisName& name : *leaf.axes) row.axes->push_back(name.to_string());
  }
  try {
    RuleResolution resolution = resolve(leaf, mesh_rules);
    row.spec = NamedSharding(mesh_rules.mesh(), resolution.spec).spec();
    row.stage = detail::stage_name(mesh_rules.mesh());
    row.decisions = std::move(resolution.decisions);
  } catch (const Error& error) {
    row.error = error.what();
    return row;
  }
  if (x.is_committed() && x.sharding().spec() != row.spec) row.moved_to = x.sharding().spec();
  const PartitionSpec& where = row.moved_to ? *row.moved_to : row.spec;
  row.is_whole = is_whole(mesh_rules.mesh(), where);
  row.could_use = unused_axes(mesh_rules.mesh(), row.shape, where);
  return row;
}

// ---- rules

// The effect of a rule on all arrays of the tree.
struct Use {
  bool matched = false;
  std::string path, reason;  // the first array at which the rule was passed over, and why
};

std::set<std::string> logical_names(const Leaves& leaves) {
  std::set<std::string> names;
  for (const Leaf& leaf : leaves)
    if (leaf.axes && !leaf.value->is_absent())
      for (const AxisName& name : *leaf.axes)
        if (!name.is_none() && !name.is_mesh_axis()) names.insert(name.name());
  return names;
}

// Returns the uses by the rule's number in the mesh rules. A decision's number also counts the parameter's own rules,
// which come first.
std::map<size_t, Use> uses_of(const Leaves& leaves, const std::vector<ExplainedArray>& rows) {
  std::map<size_t, Use> uses;
  size_t row = 0;
  for (const Leaf& leaf : leaves) {
    if (leaf.value->is_absent()) continue;
    const size_t own = leaf.rules ? leaf.rules->size() : 0;
    for (const RuleResolution::Decision& d : rows[row].decisions) {
      if (d.number < own) continue;
      Use& use = uses[d.number - own];
      if (use.path.empty()) use.path = leaf.path, use.reason = d.reason;
      use.matched |= d.matched;
    }
    ++row;
  }
  return uses;
}

std::string missing_axes(const Rule& rule, const Mesh& mesh) {
  for (const std::string& axis : rule.all_mesh_axes())
    if (!mesh.has_axis(axis))
      return fmt::format("the mesh ({}) has no axis \"{}\"{}: it counts as size 1", mesh.to_string(), axis,
                         tessera::detail::nearest_axis(axis, mesh));
  return "";
}

std::string why_idle(const Rule& rule, const Use* use, const std::set<std::string>& names) {
  if (use) return use->matched ? "" : fmt::format("always skipped, first at {}: {}", use->path, use->reason);
  if (!rule.is_by_name()) return "no array has such a path";
  if (names.contains(rule.logical)) return "the arrays that have the name have errors";
  const std::string near = tessera::detail::nearest_words(rule.logical, {names.begin(), names.end()});
  return "no dim of these arrays has the name" + (near.empty() ? "; one of a batch or an activation may" : near);
}

std::vector<IdleRule> idle_rules(const Leaves& leaves, const MeshRules& mesh_rules,
                                 const std::vector<ExplainedArray>& rows) {
  const std::map<size_t, Use> uses = uses_of(leaves, rows);
  const std::set<std::string> names = logical_names(leaves);
  std::vector<IdleRule> idle;
  const auto add = [&idle](const Rule& rule, std::string reason) {
    if (!reason.empty()) idle.push_back({rule.to_string(), std::move(reason)});
  };
  for (size_t i = 0; i < mesh_rules.rules().size(); ++i) {
    const Rule& rule = mesh_rules.rules()[i];
    add(rule, missing_axes(rule, mesh_rules.mesh()));
    const auto use = uses.find(i);
    if (!detail::puts_on_stages(rule, leaves, mesh_rules))
      add(rule, why_idle(rule, use == uses.end() ? nullptr : &use->second, names));
  }
  return idle;
}

// Returns true if both mesh rules have the same rules, and are for one mesh or for sub-meshes of it.
bool are_of_one(const MeshRules& a, const MeshRules& b) {
  return whole_mesh(a.mesh()) == whole_mesh(b.mesh()) && a.rules() == b.rules() &&
         a.activations().rules() == b.activations().rules() &&
         a.optimizer_state().rules() == b.optimizer_state().rules();
}

}  // namespace

const ExplainedArray& Explanation::at(const std::string& path) const {
  const auto found = std::find_if(arrays_.begin(), arrays_.end(), [&](const auto& a) { return a.path == path; });
  if (found == arrays_.end())
    fail(ErrorKind::invalid_argument, "explain", "{}: no array has this path. See arrays().", path);
  return *found;
}

std::vector<ExplainedArray> Explanation::large_whole() const {
  double total = 0;
  for (const ExplainedArray& a : arrays_) total += static_cast<double>(a.bytes);
  std::vector<ExplainedArray> large;
  for (const ExplainedArray& a : arrays_)
    if (a.is_whole && a.bytes > 0 && static_cast<double>(a.bytes) >= options_.large_fraction * total)
      large.push_back(a);
  std::stable_sort(large.begin(), large.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  return large;
}

bool Explanation::has_errors() const {
  return std::any_of(arrays_.begin(), arrays_.end(), [](const auto& a) { return !a.error.empty(); });
}

Explanation explain(const Leaves& leaves, const MeshRules& mesh_rules, const ExplainOptions& options) {
  std::vector<ExplainedArray> rows;
  const std::vector<MeshRules> leaf_rules = detail::stage_mesh_rules(leaves, mesh_rules, "explain");
  for (size_t i = 0; i < leaves.size(); ++i)
    if (!leaves[i].value->is_absent()) rows.push_back(explain_one(leaves[i], leaf_rules[i]));
  std::vector<IdleRule> idle = idle_rules(leaves, mesh_rules, rows);
  return Explanation(std::move(rows), std::move(idle), mesh_rules.mesh().to_string(), options);
}

Explanation explain(const Leaves& leaves, const ExplainOptions& options) {
  std::optional<MeshRules> mesh_rules;
  const std::string* first = nullptr;
  for (const Leaf& leaf : leaves) {
    if (leaf.value->is_absent()) continue;
    const std::optional<MeshRules> own = mesh_rules_of(*leaf.value);
    if (!own)
      fail(ErrorKind::invalid_argument, "explain",
           "{}: no mesh rules placed it. Place the tree with filter_shard(tree, mesh_rules), or give the mesh rules.",
           leaf.path);
    if (mesh_rules && !are_of_one(*mesh_rules, *own))
      fail(ErrorKind::invalid_argument, "explain",
           "{} and {} were placed by two sets of mesh rules. Explain each part separately.", *first, leaf.path);
    if (!mesh_rules) first = &leaf.path;
    if (!mesh_rules || own->mesh() == whole_mesh(own->mesh())) mesh_rules = own;
  }
  if (!mesh_rules) fail(ErrorKind::invalid_argument, "explain", "the tree has no arrays. Give the mesh rules.");
  return explain(leaves, tessera::detail::on_other_mesh(*mesh_rules, whole_mesh(mesh_rules->mesh())), options);
}

// ---- text and JSON

namespace {

std::string names_of(const ExplainedArray& a) { return a.axes ? fmt::format("({}) ", fmt::join(*a.axes, ", ")) : ""; }

std::string dim_of(const ExplainedArray& a, int dim) {
  if (dim < 0) return "all dims";
  return fmt::format("dim {} = {}", dim, a.shape[dim]);
}

std::string line_of(const ExplainedArray& a, const RuleResolution::Decision& d) {
  if (d.matched) return fmt::format("    {}: {}\n", dim_of(a, d.dim), d.rule);
  return fmt::format("    {}: not {}: {}\n", dim_of(a, d.dim), d.rule, d.reason);
}

// Returns everything that an entry shows below its path.
std::string entry_of(const ExplainedArray& a) {
  std::string text =
      fmt::format("  {}{} {}: {}{}{}\n", names_of(a), name_of(a.dtype), to_string(a.shape),
                  a.error.empty() ? a.spec.to_string() : "an error, below", a.stage.empty() ? "" : " on ", a.stage);
  for (const RuleResolution::Decision& d : a.decisions) text += line_of(a, d);
  if (a.error.empty() && a.decisions.empty()) text += "    no rule applies to it\n";
  return text;
}

// Returns the lines of a section below its title; "" without lines.
std::string section(const std::string& title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  return fmt::format("\n{}\n  {}\n", title, fmt::join(lines, "\n  "));
}

// Returns a line for each array that has one; repeated layers share a line.
template <class LineOf>
std::vector<std::string> folded_lines(const std::vector<ExplainedArray>& arrays, LineOf line_of) {
  std::vector<std::string> paths, looks;
  for (const ExplainedArray& a : arrays)
    if (const std::string line = line_of(a); !line.empty()) paths.push_back(a.path), looks.push_back(line);
  std::vector<std::string> lines;
  for (const detail::Folded& f : detail::fold_paths(paths, looks)) lines.push_back(f.path + looks[f.members[0]]);
  return lines;
}

std::string whole_line(const ExplainedArray& a) {
  return fmt::format(": {} bytes on every device{}{}; {}", with_commas(a.bytes), a.stage.empty() ? "" : " of ", a.stage,
                     a.could_use.empty() ? "no mesh axis divides it"
                                         : fmt::format("could use \"{}\"", fmt::join(a.could_use, "\" or \"")));
}

boost::json::object to_object(const ExplainedArray& a) {
  boost::json::array decisions;
  for (const RuleResolution::Decision& d : a.decisions)
    decisions.push_back({{"dim", d.dim < 0 ? boost::json::value(nullptr) : boost::json::value(d.dim)},
                         {"rule", d.rule},
                         {"matched", d.matched},
                         {"reason", d.reason}});
  boost::json::object object{{"path", a.path}, {"axes", nullptr}};
  if (a.axes) object["axes"] = boost::json::array(a.axes->begin(), a.axes->end());
  object["shape"] = boost::json::array(a.shape.begin(), a.shape.end());
  object["dtype"] = name_of(a.dtype);
  object["bytes"] = a.bytes;
  object["spec"] = a.error.empty() ? boost::json::value(a.spec.to_string()) : boost::json::value(nullptr);
  object["stage"] = a.stage;
  object["error"] = a.error.empty() ? boost::json::value(nullptr) : boost::json::value(a.error);
  object["moved_to"] = a.moved_to ? boost::json::value(a.moved_to->to_string()) : boost::json::value(nullptr);
  object["whole"] = a.is_whole;
  object["could_use"] = boost::json::array(a.could_use.begin(), a.could_use.end());
  object["decisions"] = std::move(decisions);
  return object;
}

}  // namespace

std::string Explanation::to_text() const {
  std::vector<std::string> paths, looks, idle;
  for (const ExplainedArray& a : arrays_) paths.push_back(a.path), looks.push_back(entry_of(a));
  std::string text =
      fmt::format("{} on the mesh ({})\n\n", tessera::detail::counted(std::ssize(arrays_), "array"), mesh_);
  for (const detail::Folded& f : detail::fold_paths(paths, looks)) text += f.path + '\n' + looks[f.members[0]];
  for (const IdleRule& rule : idle_) idle.push_back(fmt::format("{}: {}", rule.rule, rule.reason));
  std::vector<std::string> errors;
  for (const ExplainedArray& a : arrays_)
    if (!a.error.empty()) errors.push_back(a.error);
  const auto elsewhere = folded_lines(arrays_, [](const ExplainedArray& a) {
    return a.moved_to ? fmt::format(": {}, the rules give {}", a.moved_to->to_string(), a.spec.to_string()) : "";
  });
  return text + section("Errors", errors) + section("Moved", elsewhere) + section("Rules that did nothing", idle) +
         section("Replicated although large", folded_lines(large_whole(), whole_line));
}

std::string Explanation::to_json() const {
  boost::json::array arrays, idle, large;
  for (const ExplainedArray& a : arrays_) arrays.push_back(to_object(a));
  for (const IdleRule& rule : idle_) idle.push_back({{"rule", rule.rule}, {"reason", rule.reason}});
  for (const ExplainedArray& a : large_whole()) large.push_back(boost::json::value(a.path));
  return boost::json::serialize(boost::json::object{{"mesh", mesh_},
                                                    {"arrays", std::move(arrays)},
                                                    {"idle_rules", std::move(idle)},
                                                    {"large_whole", std::move(large)}});
}

}  // namespace tessera::nn
