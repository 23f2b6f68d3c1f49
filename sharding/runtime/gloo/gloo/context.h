// What c10d's header of its process group over Gloo needs of Gloo, whose headers LibTorch does not ship.
#pragma once

#include <chrono>
#include <memory>

#include "gloo/transport/device.h"

namespace gloo {

// As Gloo declares it.
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
