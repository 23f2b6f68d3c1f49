// expect: tessera: a module cannot have an unordered_map, because its order is not fixed. Use std::map.
#include <string>
#include <unordered_map>

#include "tests/compile_fail/module.h"

struct Model {
  std::unordered_map<std::string, Param> heads;
};

nn::Leaves walk(Model& tree) { return nn::leaves(tree); }
