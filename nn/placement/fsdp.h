// fsdp: fully sharded data parallelism as a table of rules.
#pragma once

#include <string>

#include "sharding/placement/layout.h"

namespace tessera::nn {

struct FsdpOptions {
  int64_t min_size = 1024;  // a parameter of fewer elements stays whole on every device: biases, scales of norms
  // Rules by name: those of the batch, and of dims that are divided over other axes before this one (tensor
  // parallelism). A name that is not here stays whole, apart from the parameter's longest dim.
  Rules rules = {};
};

// The layout that divides each parameter over `axis` along its longest dim that is free and divides:
//   const Layout layout = nn::fsdp(mesh, "data", {.rules = {{"batch", "data"}, {"embed", replicated}}});
//   auto model = nn::filter_shard(Model::init(Key(0)), layout);
// Its rules, in this order: those of options.rules that cut, {Arrays{.min_size = n}, longest_dim(axis)}, the others of
// options.rules, {Arrays{}, replicated}. Errors: an axis that the mesh does not have (unknown_axis).
Layout fsdp(Mesh mesh, const std::string& axis, const FsdpOptions& options = {});

}  // namespace tessera::nn
