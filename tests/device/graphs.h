// The device on which tests record graphs: the pretended device or a GPU, depending on what the program is linked with.
#pragma once

#include <memory>
#include <string>

namespace tessera::testing {

std::string device_with_graphs();  // a device name for make_mesh
// The device has graphs while the returned object is held.
std::shared_ptr<void> has_graphs();

}  // namespace tessera::testing
