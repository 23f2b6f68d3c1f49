// The name of a device that LibTorch takes for an accelerator; a program that asks for it has it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>

namespace tessera::testing {

// "pretended": pretended_device.cpp says what it is.
const char* pretended_device();

// Is told of all that the device does, by whatever thread, one after the other.
struct DeviceWatcher {
  virtual ~DeviceWatcher() = default;
  // A kernel has run; `again` runs it on the same memory, which it does not keep. A list of tensors is one kernel.
  virtual void kernel(const std::string& name, std::function<void()> again) = 0;
  // `made` is new.
  virtual void allocation(const at::Tensor& made) = 0;
};
// What a graph does while it is recorded, as CUDA has it: no kernel has run when that is over, and what was taken of
// memory meanwhile is nobody else's as long as this lives.
class RecordedMemory {
 public:
  RecordedMemory();
  RecordedMemory(const RecordedMemory&) = delete;
  ~RecordedMemory();
  void begin();
  void end();

 private:
  int pool_;
  std::string before_;
};
// How much memory it has taken so far that nobody had before.
size_t memory_used();
// Null: nobody is told.
void watch_device(DeviceWatcher* watcher);

}  // namespace tessera::testing
