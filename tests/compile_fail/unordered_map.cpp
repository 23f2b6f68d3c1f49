// expect: tessera: a module holds no unordered_map, whose order is not fixed; use std::map.
#include <string>
#include <unordered_map>

#include "tests/compile_fail/module.h"

struct Model {
  std::unordered_map<std::string, Param> heads;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
