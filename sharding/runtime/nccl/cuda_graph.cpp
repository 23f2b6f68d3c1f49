// Graphs of CUDA, by LibTorch's, whose allocator gives each the memory of its own that it needs.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>

#include "sharding/runtime/graph.h"

namespace tessera::detail {
namespace {

// One for all recordings of this thread: of each stream cuBLAS keeps a workspace.
c10::cuda::CUDAStream recording_stream(c10::DeviceIndex device) {
  thread_local std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  return streams.try_emplace(device, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)).first->second;
}

class CudaGraph : public Graph {
 public:
  explicit CudaGraph(c10::DeviceIndex device) : device_(device) {}

  // On another stream, since the default one cannot be recorded; other threads' calls of CUDA go on. What the step kept
  // of memory when it ran plainly, the recording cannot use.
  void record(const std::function<void()>& f) override {
    const c10::cuda::CUDAGuard here(device_);
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    const c10::cuda::CUDAStreamGuard recorded(recording_stream(device_));
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
    try {
      f();
    } catch (...) {
      try {
        graph_.capture_end();
      } catch (...) {  // what broke off the function is what is said
      }
      throw;
    }
    graph_.capture_end();
  }

  void replay() override {
    const c10::cuda::CUDAGuard here(device_);
    graph_.replay();
  }

 private:
  c10::DeviceIndex device_;
  at::cuda::CUDAGraph graph_;
};

const bool known = [] {
  graphs_of(c10::kCUDA) = [](c10::DeviceIndex device) -> std::unique_ptr<Graph> {
    return std::make_unique<CudaGraph>(device);
  };
  return true;
}();

}  // namespace

// Whoever is linked with the engine for GPUs takes this file for its name.
extern "C" void tessera_use_cuda_graphs() {}

}  // namespace tessera::detail
