// The pretended device: its name, an observer of its kernels, and the memory of graph recordings.
//
// Programs that call pretended_device() are linked with the device.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>

namespace tessera::testing {

// "pretended"; see pretended_device.cpp.
const char* pretended_device();

// Receives the events of the device, from any thread, one at a time.
struct DeviceWatcher {
  virtual ~DeviceWatcher() = default;
  // Called after a kernel has run. `again` runs it on the same memory, which it does not own. A list of tensors is one
  // kernel.
  virtual void kernel(const std::string& name, std::function<void()> again) = 0;
  // Called for each new tensor.
  virtual void allocation(const at::Tensor& made) = 0;
};
// The memory behavior of a graph recording, as in CUDA: after the recording no kernel has run, and memory allocated
// during it is reserved while this object lives.
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
// Gives the device a kernel for grouped products (aten::_grouped_mm), with the conditions of CUDA's, while the result
// exists. Rows after the last group, and sums without terms, are NaN.
std::shared_ptr<void> register_grouped_products();
// Returns the bytes that the device has taken from the system so far.
size_t memory_used();
// Returns the address at which a kernel reads or writes what this pointer of a tensor points to.
void* kernel_address(const void* shown);
// Sets the observer; null: none.
void watch_device(DeviceWatcher* watcher);

}  // namespace tessera::testing
