// expect: tessera: rules are a list, also of one: {{"batch", "data"}}.
#include "sharding/placement.h"

tessera::MeshRules place(tessera::Mesh mesh) { return {mesh, {"batch", "data"}}; }
