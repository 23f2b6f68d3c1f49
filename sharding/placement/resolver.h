// walk_rules: tries a list of rules on one array. RuleSurvey: what names a program asks them for.
#pragma once

#include <string>
#include <vector>

#include "sharding/diagnostics/scoped_value.h"
#include "sharding/placement/layout.h"

namespace tessera::detail {

// Layout::resolve, on any list of rules. uneven::pad: each may pad.
Resolution walk_rules(Mesh mesh, const Rules& rules, const Axes& axes, const Shape& shape, std::string_view verb,
                      std::string_view path, tessera::uneven uneven = tessera::uneven::error);

// "; "model" is the nearest", if a mesh axis is near to that name.
std::string nearest_axis(const std::string& name, const Mesh& mesh);

// All rules of a layout on another mesh; an axis that it lacks counts as size one.
Layout on_other_mesh(const Layout& layout, const Mesh& mesh);

// An array that rules were asked to place.
struct NamedDims {
  std::string verb, path;  // of Layout::resolve
  Axes axes;
  Shape shape;
  bool had_rules = false;  // whether there were any, the layout's or its own
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
