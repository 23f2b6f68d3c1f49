// expect: tessera: filter_shard takes a tree and a Layout, a NamedSharding, or a function of path and array that returns a NamedSharding: filter_shard(model, layout).
#include "nn/placement.h"

struct Line {
  tessera::nn::Param slope;
};

void place(const Line& line, const tessera::Layout& layout) { tessera::nn::filter_shard(layout, line); }
