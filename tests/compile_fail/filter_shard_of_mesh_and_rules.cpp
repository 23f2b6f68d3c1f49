// expect: tessera: a mesh and rules are one Layout: filter_shard(model, Layout(mesh, rules)).
#include "nn/placement.h"

struct Line {
  tessera::nn::Param slope;
};

void place(const Line& line, tessera::Mesh mesh) { tessera::nn::filter_shard(line, mesh, {{"batch", "data"}}); }
