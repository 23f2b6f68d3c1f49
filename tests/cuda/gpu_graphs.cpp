// Graphs of a GPU, which the engine for GPUs has.
#include "tests/device/graphs.h"

namespace tessera::testing {

std::string device_with_graphs() { return "cuda"; }
std::shared_ptr<void> has_graphs() { return nullptr; }

}  // namespace tessera::testing
