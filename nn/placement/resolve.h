// resolve: the spec that mesh rules give to a leaf of a tree.
#pragma once

#include <string_view>

#include "nn/tree/tree.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// Returns the spec that mesh rules give to a leaf, and the reasons. `verb` begins the message of an error.
RuleResolution resolve(const Leaf& leaf, const MeshRules& mesh_rules, std::string_view verb = "filter_shard");

}  // namespace tessera::nn
