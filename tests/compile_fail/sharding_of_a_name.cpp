// expect: tessera: a NamedSharding needs a mesh and a spec
#include "sharding/placement.h"

tessera::NamedSharding place(tessera::Mesh mesh) { return tessera::NamedSharding(mesh, "data"); }
