// walk_rules: tries a list of rules on one array. RuleSurvey: what names a program asks them for.
#pragma once

#include <string>
#include <vector>

#include "sharding/base/scoped_value.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::detail {

// MeshRules::resolve, on any list of rules. Uneven::pad: each may pad.
RuleResolution walk_rules(Mesh mesh, const Rules& rules, const Axes& axes, const Shape& shape, std::string_view verb,
                          std::string_view path, Uneven uneven = Uneven::error);

// "; "model" is the nearest", if a mesh axis is near to that name.
std::string nearest_axis(const std::string& name, const Mesh& mesh);

// All rules of mesh rules on another mesh; an axis that it lacks counts as size one.
MeshRules on_other_mesh(const MeshRules& mesh_rules, const Mesh& mesh);

// An array that rules were asked to place.
struct NamedDims {
  std::string verb, path;  // of MeshRules::resolve
  Axes axes;
  Shape shape;
  bool had_rules = false;  // whether there were any, the mesh rules' or its own
};

// While one lives, walk_rules notes on this thread what it is asked, and a name in no rule is whole in place of an
// Error: so a program runs before anybody has written rules for it. Surveys nest; the inner one hears.
class RuleSurvey {
 public:
  RuleSurvey();
  const std::vector<NamedDims>& asked() const { return asked_; }

 private:
  std::vector<NamedDims> asked_;
  ScopedValue<std::vector<NamedDims>*> current_;
};

}  // namespace tessera::detail
