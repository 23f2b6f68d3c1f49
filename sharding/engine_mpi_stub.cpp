// In place of engine_mpi.cpp in a build without MPI.
#include "sharding/transport.h"

namespace tessera::detail {

std::unique_ptr<Transport> join_by_mpi() { return nullptr; }

}  // namespace tessera::detail
