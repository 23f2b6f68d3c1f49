// Pipeline stages from the paths of leaves: layers.2.mlp.up.kernel is in element 2 of `layers`.
#include "sharding/redistribution/stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "nn/placement/paths.h"
#include "sharding/base/fail.h"
#include "sharding/base/text.h"
#include "sharding/placement/mesh.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/redistribution/stages.h"

namespace tessera::nn::detail {
namespace {

struct Element {
  std::string vector;             // its path: decoder.layers
  std::vector<std::string> axes;  // mesh axes over which a rule distributes its elements
  int64_t num_virtual_stages;     // of that rule
  int64_t number;
};

// Returns the vector of this name, if a rule maps it to mesh axes of more than one device; else one without axes.
Element vector_of(std::string_view name, const MeshRules& mesh_rules) {
  Element found{};
  for (const Rule& rule : mesh_rules.rules()) {
    if (!rule.is_by_name() || rule.logical != name || !found.axes.empty()) continue;
    found.num_virtual_stages = rule.num_virtual_stages;
    for (const std::string& axis : rule.mesh_axes)
      if (mesh_rules.mesh().has_axis(axis) && mesh_rules.mesh().size(axis) > 1) found.axes.push_back(axis);
  }
  return found;
}

// Returns the outermost element of such a vector that contains this leaf.
std::optional<Element> element_of(const std::string& path, const MeshRules& mesh_rules) {
  Element vector{};  // of the previous name
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    const std::optional number = vector.axes.empty() ? std::nullopt : tessera::detail::parse_number<int64_t>(part);
    if (number) return Element{path.substr(0, begin - 1), vector.axes, vector.num_virtual_stages, *number};
    vector = vector_of(part, mesh_rules);
    begin = end + 1;
  }
  return std::nullopt;
}

// Returns the rule that assigns arrays of this path to a stage; null if there is none.
const Rule* stage_rule(const std::string& path, const MeshRules& mesh_rules) {
  for (const Rule& rule : mesh_rules.rules())
    if (rule.stage && mesh_rules.mesh().has_axis(rule.mesh_axes[0]) && mesh_rules.mesh().size(rule.mesh_axes[0]) > 1 &&
        path_matches(path, rule.arrays.path))
      return &rule;
  return nullptr;
}

// Throws if the rule's stage and the vector's elements are along different mesh axes: activations pass from stage to
// stage along one mesh axis.
void check_along(const Rule& rule, const std::optional<Element>& dealt_out, const std::string& path,
                 std::string_view verb) {
  if (!dealt_out || dealt_out->axes[0] == rule.mesh_axes[0]) return;
  fail(ErrorKind::invalid_argument, verb,
       "{}: the rule {}, expected a stage of \"{}\", along which {} is split. Name that axis: on_stage(\"{}\", {}).",
       path, rule.to_string(), dealt_out->axes[0], dealt_out->vector, dealt_out->axes[0], *rule.stage);
}

Mesh stage_of(const Rule& rule, const Mesh& mesh, const std::string& path, std::string_view verb) {
  const int64_t stages = mesh.size(rule.mesh_axes[0]), at = *rule.stage;
  if (at < -stages || at >= stages)
    fail(ErrorKind::invalid_argument, verb, "{}: the rule {}, expected stages from {} to {}.", path, rule.to_string(),
         -stages, stages - 1);
  return sub_mesh(mesh, rule.mesh_axes[0], at < 0 ? at + stages : at);
}

MeshRules on(const Mesh& stage, const MeshRules& mesh_rules) {
  return MeshRules(tessera::detail::mesh_rules_on(mesh_rules.impl(), stage.impl()));
}

}  // namespace

std::vector<MeshRules> stage_mesh_rules(const Leaves& leaves, const MeshRules& mesh_rules, std::string_view verb) {
  std::vector<std::string> paths;
  for (const Leaf& leaf : leaves) paths.push_back(leaf.path);
  return stage_mesh_rules(paths, mesh_rules, verb);
}

std::vector<MeshRules> stage_mesh_rules(const std::vector<std::string>& paths, const MeshRules& mesh_rules,
                                        std::string_view verb) {
  std::vector<std::optional<Element>> elements;
  std::optional<Element> dealt_out;  // first vector element found
  std::map<std::string, int64_t> sizes;
  for (const std::string& path : paths) {
    elements.push_back(element_of(path, mesh_rules));
    if (const auto& e = elements.back()) sizes[e->vector] = std::max(sizes[e->vector], e->number + 1);
    if (!dealt_out) dealt_out = elements.back();
  }
  std::vector<MeshRules> leaf_rules;
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::optional<Element>& e = elements[i];
    if (!e) {
      const Rule* rule = stage_rule(paths[i], mesh_rules);
      if (rule) check_along(*rule, dealt_out, paths[i], verb);
      leaf_rules.push_back(rule ? on(stage_of(*rule, mesh_rules.mesh(), paths[i], verb), mesh_rules) : mesh_rules);
      continue;
    }
    if (e->axes.size() > 1)
      fail(ErrorKind::invalid_argument, verb,
           "{}: its rule names the mesh axes \"{}\", expected one, along which its elements are split. Give the "
           "others to the names of dims.",
           e->vector, fmt::join(e->axes, "\", \""));
    const int64_t stages = mesh_rules.mesh().size(e->axes[0]), size = sizes[e->vector];
    if (size < stages)
      fail(ErrorKind::not_divisible, verb,
           "{}: {} elements for mesh axis \"{}\" = {}, expected at least one for each stage. Change the rule or the "
           "mesh.",
           e->vector, size, e->axes[0], stages);
    const int64_t blocks = stages * e->num_virtual_stages;
    if (e->num_virtual_stages > 1 && size % blocks)
      fail(ErrorKind::not_divisible, verb,
           "{}: {} elements are not divisible by mesh axis \"{}\" = {} times {} virtual stages. Change the rule or the "
           "mesh.",
           e->vector, size, e->axes[0], stages, e->num_virtual_stages);
    const int64_t stage = e->number * blocks / size % stages;
    leaf_rules.push_back(on(sub_mesh(mesh_rules.mesh(), e->axes[0], stage), mesh_rules));
  }
  return leaf_rules;
}

bool puts_on_stages(const Rule& rule, const Leaves& leaves, const MeshRules& mesh_rules) {
  const std::string& name = rule.logical;
  return std::any_of(leaves.begin(), leaves.end(), [&](const Leaf& leaf) {
    const std::optional<Element> e = element_of(leaf.path, mesh_rules);
    if (!e) return rule.stage && stage_rule(leaf.path, mesh_rules) == &rule;
    return rule.is_by_name() && (e->vector == name || e->vector.ends_with("." + name));
  });
}

std::string stage_name(const Mesh& mesh) {
  const auto& impl = *mesh.impl();
  return impl.parent ? fmt::format("{}[{}]", impl.axes[impl.cut_axis].name, impl.cut_at) : "";
}

}  // namespace tessera::nn::detail
