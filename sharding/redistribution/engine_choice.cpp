// The choice of a mesh's engine.
#include "sharding/redistribution/engine.h"

namespace tessera::detail {

const Engine* choose_engine(const MeshImpl& mesh) {
  if (mesh.abstract) return &abstract_engine();
  return mesh.processes > 1 ? &processes_engine() : &local_engine();
}

}  // namespace tessera::detail
