// Functions that need LibTorch's CUDA library: its compute stream, CUDA graphs, and the capability of a GPU.
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>

#include "sharding/runtime/graph.h"
#include "sharding/runtime/hardware.h"
#include "sharding/runtime/nccl/process_group_nccl.h"

namespace tessera::detail {

void* compute_stream(int device) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device)).stream();
}

namespace {

// Returns the stream of all recordings of this thread: a single one, because cuBLAS keeps a workspace per stream.
c10::cuda::CUDAStream recording_stream(c10::DeviceIndex device) {
  thread_local std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  return streams.try_emplace(device, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)).first->second;
}

class CudaGraph : public Graph {
 public:
  explicit CudaGraph(c10::DeviceIndex device) : device_(device) {}

  // Records on another stream, because the default one cannot be recorded; other threads may call CUDA meanwhile.
  // Empties the cache first: the recording cannot use memory that the step cached in its ordinary run.
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
      } catch (...) {  // ignored in favor of the exception of f
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
  compute_capability_of(c10::kCUDA) = [](c10::DeviceIndex device) {
    const cudaDeviceProp* gpu = at::cuda::getDeviceProperties(device);
    return 10 * gpu->major + gpu->minor;
  };
  return true;
}();

}  // namespace

// Programs linked with the engine for GPUs refer to this name, so that the linker keeps this file.
extern "C" void tessera_use_cuda_graphs() {}

}  // namespace tessera::detail
