// expect: tessera: a NamedSharding has a mesh and a spec
#include "sharding/placement.h"

tessera::NamedSharding place(tessera::Mesh mesh) { return tessera::NamedSharding(mesh, "data"); }
