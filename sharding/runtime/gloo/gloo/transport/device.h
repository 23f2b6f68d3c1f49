// The classes that c10d's header of its Gloo process group holds by pointers.
#pragma once

namespace gloo::transport {

class Device;

// Declared as in Gloo.
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};

}  // namespace gloo::transport
