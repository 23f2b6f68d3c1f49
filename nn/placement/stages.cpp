// Stages by the paths of the leaves: layers.2.mlp.up.kernel lies in element 2 of `layers`.
#include "nn/placement/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "sharding/diagnostics/fail.h"
#include "sharding/diagnostics/parse_number.h"
#include "sharding/placement/mesh_impl.h"
#include "sharding/placement/sub_mesh.h"
#include "sharding/redistribution/stages.h"

namespace tessera::nn::detail {
namespace {

struct Element {
  std::string vector;  // its path: decoder.layers
  std::string axis;
  int64_t number;
};

// The mesh axis of more than one device to which a rule sends this name; empty without one.
std::string axis_of(std::string_view name, const Layout& layout) {
  for (const Rule& rule : layout.rules())
    if (rule.is_by_name() && rule.logical == name && rule.mesh_axes.size() == 1 &&
        layout.mesh().has_axis(rule.mesh_axes[0]) && layout.mesh().size(rule.mesh_axes[0]) > 1)
      return rule.mesh_axes[0];
  return {};
}

// The outermost element of such a vector in which this leaf lies.
std::optional<Element> element_of(const std::string& path, const Layout& layout) {
  std::string name, axis;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string part = path.substr(begin, end - begin);
    const std::optional number = axis.empty() ? std::nullopt : tessera::detail::parse_number<int64_t>(part);
    if (number) return Element{path.substr(0, begin - 1), axis, *number};
    axis = axis_of(part, layout);
    begin = end + 1;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Layout> stage_layouts(const Leaves& leaves, const Layout& layout, std::string_view verb) {
  std::vector<std::optional<Element>> elements;
  std::map<std::string, int64_t> sizes;
  for (const Leaf& leaf : leaves) {
    elements.push_back(element_of(leaf.path, layout));
    if (const auto& e = elements.back()) sizes[e->vector] = std::max(sizes[e->vector], e->number + 1);
  }
  std::vector<Layout> layouts;
  for (const std::optional<Element>& e : elements) {
    if (!e) {
      layouts.push_back(layout);
      continue;
    }
    const int64_t stages = layout.mesh().size(e->axis), size = sizes[e->vector];
    if (size < stages)
      fail(ErrorKind::uneven, verb,
           "{}: {} elements for mesh axis \"{}\" = {}, expected at least one for each stage. Change the rule or the "
           "mesh.",
           e->vector, size, e->axis, stages);
    const Mesh stage = sub_mesh(layout.mesh(), e->axis, e->number * stages / size);
    layouts.emplace_back(tessera::detail::layout_on(layout.impl(), stage.impl()));
  }
  return layouts;
}

bool is_on_stages(const Leaves& leaves, const Layout& layout, const std::string& name) {
  return std::any_of(leaves.begin(), leaves.end(), [&](const Leaf& leaf) {
    const std::optional<Element> e = element_of(leaf.path, layout);
    return e && (e->vector == name || e->vector.ends_with("." + name));
  });
}

std::string stage_name(const Mesh& mesh) {
  const auto& impl = *mesh.impl();
  return impl.parent ? fmt::format("{}[{}]", impl.axes[impl.cut_axis].name, impl.cut_at) : "";
}

}  // namespace tessera::nn::detail
