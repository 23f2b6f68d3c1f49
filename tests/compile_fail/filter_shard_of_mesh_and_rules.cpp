// expect: tessera: pass the mesh and the rules as one MeshRules: filter_shard(model, MeshRules(mesh, rules)).
#include "nn/placement.h"

struct Line {
  tessera::nn::Param slope;
};

void place(const Line& line, tessera::Mesh mesh) { tessera::nn::filter_shard(line, mesh, {{"batch", "data"}}); }
