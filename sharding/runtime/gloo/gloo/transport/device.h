// What c10d's header of its process group over Gloo holds by pointers.
#pragma once

namespace gloo::transport {

class Device;

// As Gloo declares it.
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = 0;
};

}  // namespace gloo::transport
