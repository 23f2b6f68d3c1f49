// expect: tessera: the mesh comes first: Layout(mesh, rules).
#include "sharding/placement.h"

tessera::Layout place(tessera::Mesh mesh) { return {{{"batch", "data"}}, mesh}; }
