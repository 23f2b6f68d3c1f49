// walk_rules: tries a list of rules on one array.
#pragma once

#include "sharding/placement/layout.h"

namespace tessera::detail {

// Layout::resolve, on any list of rules.
Resolution walk_rules(Mesh mesh, const Rules& rules, const Axes& axes, const Shape& shape, std::string_view verb,
                      std::string_view path);

}  // namespace tessera::detail
