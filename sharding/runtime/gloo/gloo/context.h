// The declarations of Gloo that c10d's header of its Gloo process group needs: LibTorch does not ship Gloo's headers.
#pragma once

#include <chrono>
#include <memory>

#include "gloo/transport/device.h"

namespace gloo {

// Declared as in Gloo.
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
