// cut_further: a placement cut over more mesh axes, as ZeRO-1 cuts an optimizer's state and its gradients.
#pragma once

#include <string>
#include <vector>

#include "sharding/placement/type.h"

namespace tessera::detail {

// `type` cut further over the mesh axes of these names on the first dim that they divide, without those that it uses;
// `type` itself if there is no such dim.
const Type* cut_further(const Type* type, const std::vector<std::string>& axes);

// Errors, which begin with `verb` and name `option`: an axis that the mesh does not have (unknown_axis), or that is
// given twice (invalid_argument). Without a mesh only the latter.
void check_axes(const char* verb, const char* option, const std::vector<std::string>& axes, const MeshImpl* mesh);

}  // namespace tessera::detail
