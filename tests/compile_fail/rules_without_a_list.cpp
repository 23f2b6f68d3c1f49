// expect: tessera: rules must be a list, even for one rule: {{"batch", "data"}}.
#include "sharding/placement.h"

tessera::MeshRules place(tessera::Mesh mesh) { return {mesh, {"batch", "data"}}; }
