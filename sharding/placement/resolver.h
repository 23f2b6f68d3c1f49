// walk_rules: tries a list of rules on one array.
#pragma once

#include "sharding/placement/layout.h"

namespace tessera::detail {

// Layout::resolve, on any list of rules.
Resolution walk_rules(Mesh mesh, const Rules& rules, const Axes& axes, const Shape& shape, std::string_view verb,
                      std::string_view path);

// All rules of a layout on another mesh; an axis that it lacks counts as size one.
Layout on_other_mesh(const Layout& layout, const Mesh& mesh);

}  // namespace tessera::detail
