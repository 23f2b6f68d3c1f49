// The mesh rules of a leaf: its own rules first, then the rules of the mesh.
#include "nn/placement/resolve.h"

namespace tessera::nn {

RuleResolution resolve(const Leaf& leaf, const MeshRules& mesh_rules, std::string_view verb) {
  const Shape& shape = leaf.value->shape();
  const Axes axes = leaf.axes ? *leaf.axes : Axes(std::vector<AxisName>(shape.size(), none));
  if (!leaf.rules || leaf.rules->empty()) return mesh_rules.resolve(axes, shape, verb, leaf.path);
  return mesh_rules.resolve(*leaf.rules, axes, shape, verb, leaf.path);
}

}  // namespace tessera::nn
