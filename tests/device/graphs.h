// The device on which tests record graphs: the one that pretends, or a GPU, as the program is linked.
#pragma once

#include <memory>
#include <string>

namespace tessera::testing {

std::string device_with_graphs();  // for make_mesh
// It has graphs as long as this is held.
std::shared_ptr<void> has_graphs();

}  // namespace tessera::testing
