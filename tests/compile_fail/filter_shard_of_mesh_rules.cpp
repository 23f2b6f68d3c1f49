// expect: tessera: filter_shard takes a tree, and a MeshRules, a NamedSharding, or a function of path and array that returns a NamedSharding: filter_shard(model, mesh_rules).
#include "nn/placement.h"

struct Line {
  tessera::nn::Param slope;
};

void place(const Line& line, const tessera::MeshRules& mesh_rules) { tessera::nn::filter_shard(mesh_rules, line); }
