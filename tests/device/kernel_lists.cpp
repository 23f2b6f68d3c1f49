// Graphs of the pretended device, implemented as lists of its kernels.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "sharding/array/host_sync.h"
#include "sharding/runtime/graph.h"
#include "tests/device/graphs.h"
#include "tests/device/pretended_device.h"

namespace tessera::testing {
namespace {

// Replays the recorded kernels, in order, on the memory that they used. As with CUDA, recording runs no kernel, and the
// step must neither read from the device nor copy host memory to it.
class KernelList : public detail::Graph, DeviceWatcher {
 public:
  void record(const std::function<void()>& f) override {
    const std::unique_ptr<void, std::function<void(void*)>> end(this, [](void* self) {
      static_cast<KernelList*>(self)->memory_.end();
      watch_device(nullptr);
    });
    watch_device(this);
    memory_.begin();
    f();
  }
  void replay() override {
    for (const auto& kernel : kernels_) kernel();
  }

 private:
  void kernel(const std::string& name, std::function<void()> again) override {
    EXPECT_EQ(name.find("between the memories"), std::string::npos)
        << name << " in " << detail::latest_operation().name << " at " << detail::latest_line();
    kernels_.push_back(std::move(again));
  }
  void allocation(const at::Tensor&) override {}

  std::vector<std::function<void()>> kernels_;
  RecordedMemory memory_;
};

}  // namespace

std::string device_with_graphs() { return pretended_device(); }

std::shared_ptr<void> has_graphs() {
  return std::make_shared<detail::ScopedValue<detail::MakeGraph>>(
      detail::graphs_of(c10::kPrivateUse1),
      [](c10::DeviceIndex) -> std::unique_ptr<detail::Graph> { return std::make_unique<KernelList>(); });
}

}  // namespace tessera::testing
