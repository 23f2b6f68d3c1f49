// fsdp: fully sharded data parallelism as a table of rules.
#pragma once

#include <string>

#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

struct FsdpOptions {
  int64_t min_size = 1024;  // a parameter of fewer elements stays whole on every device: biases, scales of norms
  // Rules by name for the dims of the batch, and for dims that other mesh axes divide first (tensor parallelism). A dim
  // whose name is not here stays whole, unless it is the longest dim, which fsdp divides.
  Rules rules = {};
};

// The mesh rules that shard each parameter over `mesh_axis`, along the longest dim that is still free and that
// the axis divides:
//   const MeshRules mesh_rules = nn::fsdp(mesh, "data", {.rules = {{"batch", "data"}, {"embed", replicated}}});
//   auto model = nn::filter_shard(Model::init(Key(0)), mesh_rules);
// Its rules, in this order: those of options.rules that name a mesh axis, {ParamPattern{.min_size = n},
// longest_dim(mesh_axis)}, the others of options.rules, {ParamPattern{}, replicated}. Errors: an axis that the mesh
// does not have (unknown_axis).
MeshRules fsdp(Mesh mesh, const std::string& mesh_axis, const FsdpOptions& options = {});

}  // namespace tessera::nn
