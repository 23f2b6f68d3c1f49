// walk_rules: tries a list of rules on one array. RuleSurvey: records the arrays for which a program resolves rules.
#pragma once

#include <string>
#include <vector>

#include "sharding/base/thread_state.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::detail {

// Implements MeshRules::resolve for any list of rules. With Uneven::pad every rule may pad.
RuleResolution walk_rules(Mesh mesh, const Rules& rules, const Axes& axes, const Shape& shape, std::string_view verb,
                          std::string_view path, Uneven uneven = Uneven::error);

// Returns "; "model" is the nearest" if a mesh axis has a similar name, else "".
std::string nearest_axis(const std::string& name, const Mesh& mesh);

// Returns the same rules on another mesh, where an axis that the mesh lacks counts as size one.
MeshRules on_other_mesh(const MeshRules& mesh_rules, const Mesh& mesh);

// An array for which rules were resolved.
struct NamedDims {
  std::string verb, path;  // arguments of MeshRules::resolve
  Axes axes;
  Shape shape;
  bool had_rules = false;  // whether the mesh rules or the parameter had any rules
};

// While a survey is alive, walk_rules records its calls on this thread. A dimension whose name has no rule is then
// replicated instead of throwing an Error, so a program can run before it has rules. Surveys nest; only the innermost
// one records.
class RuleSurvey {
 public:
  RuleSurvey();
  const std::vector<NamedDims>& asked() const { return asked_; }

 private:
  std::vector<NamedDims> asked_;
  ScopedValue<std::vector<NamedDims>*> current_;
};

}  // namespace tessera::detail
