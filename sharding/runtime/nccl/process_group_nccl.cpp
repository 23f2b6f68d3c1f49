// Collectives of GPU groups: queued on one stream after the computation before them, and watched until they complete.
#include "sharding/runtime/nccl/process_group_nccl.h"

#include <ATen/ops/empty.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "sharding/base/fail.h"
#include "sharding/runtime/control_plane.h"
#include "sharding/runtime/graph.h"

namespace tessera::detail {
static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0), "Tessera needs NCCL >= 2.27");

namespace {

// Throw an Error (other, out_of_memory) with CUDA's or NCCL's message. A call of a non-blocking communicator may still
// be in progress.
void check(cudaError_t result) {
  if (result == cudaSuccess) return;
  const ErrorKind kind = result == cudaErrorMemoryAllocation ? ErrorKind::out_of_memory : ErrorKind::other;
  throw Error(kind, fmt::format("CUDA reports: {}", cudaGetErrorString(result)));
}

void check(ncclResult_t result) {
  if (result != ncclSuccess && result != ncclInProgress)
    throw Error(ErrorKind::other,
                fmt::format("NCCL reports: {} ({})", ncclGetErrorString(result), ncclGetLastError(nullptr)));
}

// Returns an event that orders streams; it has no timing.
std::shared_ptr<CUevent_st> new_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return {event, [](cudaEvent_t e) { cudaEventDestroy(e); }};
}

ncclConfig_t non_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

ncclDataType_t type_of(const at::Tensor& t) {
  switch (t.scalar_type()) {
    case at::kFloat:
      return ncclFloat32;
    case at::kDouble:
      return ncclFloat64;
    case at::kBFloat16:
      return ncclBfloat16;
    case at::kHalf:
      return ncclFloat16;
    case at::kChar:
      return ncclInt8;
    case at::kInt:
      return ncclInt32;
    case at::kLong:
      return ncclInt64;
    case at::kByte:
    case at::kBool:  // a byte of 0 or 1
      return ncclUint8;
    default:
      fail(ErrorKind::invalid_argument, "ProcessGroup", "NCCL cannot reduce {}. Cast it first.",
           c10::toString(t.scalar_type()));
  }
}

// Returns NCCL's operation. A sum of bool is "or", and a product is "and".
ncclRedOp_t operation_of(ReduceOp how, const at::Tensor& t) {
  const bool is_bool = t.scalar_type() == at::kBool;
  switch (how) {
    case ReduceOp::sum:
      return is_bool ? ncclMax : ncclSum;
    case ReduceOp::product:
      return is_bool ? ncclMin : ncclProd;
    case ReduceOp::max:
      return ncclMax;
    case ReduceOp::min:
      return ncclMin;
  }
  return ncclSum;
}

const WaitContext joining{.operation = "process_group", .where = {}};

// Returns the id that the first of these processes creates, through the host's memory.
ncclUniqueId id_of(const std::vector<int>& processes) {
  ProcessGroup& group = process_group(processes);
  ncclUniqueId id{};
  if (group.index() == 0) check(ncclGetUniqueId(&id));
  at::Tensor mine = at::empty({sizeof id}, at::kByte), all = at::empty({group.size(), sizeof id}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), &id, sizeof id);
  group.all_gather(mine, all, joining)->wait();
  std::memcpy(&id, all.const_data_ptr(), sizeof id);
  return id;
}

int chosen_device(c10::Device named) {
  int found = 0;
  const cudaError_t result = cudaGetDeviceCount(&found);
  if (result == cudaSuccess && named.has_index() && named.index() < found) return named.index();
  const int before = world().on_machine;
  if (result == cudaSuccess && found == 1) return 0;  // its launcher has assigned it one
  if (result == cudaSuccess && before < found) return before;
  fail(ErrorKind::invalid_argument, "initialize",
       "process {} of {} is number {} on its machine, where it sees {} GPUs{}. Start one process per GPU.",
       world().index, world().count, before, found,
       result == cudaSuccess ? "" : fmt::format(" (CUDA reports: {})", cudaGetErrorString(result)));
}

class NcclGroup;

// The GPU of this process and its groups. It is never destroyed: at exit the driver releases everything, and NCCL's
// destruction would wait for processes that may be gone.
struct Gpu {
  int device = 0;
  cudaStream_t stream = nullptr;  // stream of all communication, except p2p_channel()
  std::map<std::vector<int>, std::unique_ptr<NcclGroup>> groups;

  cudaStream_t compute() const { return static_cast<cudaStream_t>(compute_stream(device)); }
  void abort();
  // Holds the tensors of an abandoned work until it is done.
  void hold(std::vector<at::Tensor> tensors, std::shared_ptr<CUevent_st> done) {
    const std::lock_guard lock(holding);
    std::erase_if(held, [](const auto& one) { return cudaEventQuery(one.second.get()) != cudaErrorNotReady; });
    held.emplace_back(std::move(tensors), std::move(done));
  }

 private:
  std::mutex holding;  // guards `held`
  std::vector<std::pair<std::vector<at::Tensor>, std::shared_ptr<CUevent_st>>> held;
};

// Sets this thread's device to this GPU in its scope.
class OnGpu {
 public:
  explicit OnGpu(int device) {
    if (cudaGetDevice(&before_) == cudaSuccess && before_ != device) cudaSetDevice(device);
  }
  OnGpu(const OnGpu&) = delete;
  ~OnGpu() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

// Work queued on the communication stream, and its tensors.
class GpuWork : public Work {
 public:
  GpuWork(Gpu& gpu, std::vector<at::Tensor> held, std::shared_ptr<CUevent_st> done)
      : gpu_(gpu), held_(std::move(held)), done_(std::move(done)) {}

  // The GPU still uses the memory of an abandoned work. The next computation must not wait for it: a message may remain
  // in progress until the other process has computed further.
  ~GpuWork() override {
    if (held_.empty()) return;
    if (host_work()) {
      come_after();
    } else {
      gpu_.hold(std::move(held_), std::move(done_));
    }
  }

  // Orders later kernels of the compute stream after the work, and releases its tensors.
  void wait() override {
    check(come_after());
    held_.clear();
  }

 private:
  // Queues nothing if the work is done.
  cudaError_t come_after() const {
    const OnGpu here(gpu_.device);  // any thread may wait
    // An event inside a recording cannot be queried.
    const cudaError_t state = host_work() ? cudaErrorNotReady : cudaEventQuery(done_.get());
    return state == cudaErrorNotReady ? cudaStreamWaitEvent(gpu_.compute(), done_.get()) : state;
  }

  Gpu& gpu_;
  std::vector<at::Tensor> held_;
  std::shared_ptr<CUevent_st> done_;  // a CUDA event after the work
};

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

class NcclGroup : public ProcessGroup {
 public:
  NcclGroup(Gpu& gpu, const std::vector<int>& processes, cudaStream_t stream)
      : gpu_(gpu),
        stream_(stream),
        processes_(processes),
        index_(static_cast<int>(std::find(processes.begin(), processes.end(), world().index) - processes.begin())) {
    if (index_ == size())
      fail(ErrorKind::invalid_argument, "process_group", "process {} is not among those of its group.", world().index);
  }

  int size() const override { return static_cast<int>(processes_.size()); }
  int index() const override { return index_; }
  ProcessGroup& p2p_channel() override {
    if (!one_way_) {
      one_way_ = std::make_unique<NcclGroup>(gpu_, processes_, new_stream());
      one_way_->join();
    }
    return *one_way_;
  }

  void join() {
    const ncclUniqueId id = id_of(processes_);
    ncclConfig_t config = non_blocking();
    queue(joining, [&] { check(ncclCommInitRankConfig(&communicator_, size(), id, index_, &config)); });
  }
  void abort() {
    if (one_way_) one_way_->abort();
    if (communicator_) ncclCommAbort(std::exchange(communicator_, nullptr));
  }

  WorkPtr all_reduce(at::Tensor x, ReduceOp how, const WaitContext& waiting) override {
    const ncclDataType_t type = type_of(x);
    return begin(waiting, {x}, [&](ncclComm_t comm, cudaStream_t stream) {
      check(ncclAllReduce(x.const_data_ptr(), x.mutable_data_ptr(), static_cast<size_t>(x.numel()), type,
                          operation_of(how, x), comm, stream));
    });
  }

  WorkPtr all_gather(at::Tensor mine, at::Tensor all, const WaitContext& waiting) override {
    return begin(waiting, {mine, all}, [&](ncclComm_t comm, cudaStream_t stream) {
      check(ncclAllGather(mine.const_data_ptr(), all.mutable_data_ptr(), mine.nbytes(), ncclUint8, comm, stream));
    });
  }

  WorkPtr reduce_scatter(at::Tensor parts, at::Tensor mine, const WaitContext& waiting) override {
    const ncclDataType_t type = type_of(mine);
    return begin(waiting, {parts, mine}, [&](ncclComm_t comm, cudaStream_t stream) {
      check(ncclReduceScatter(parts.const_data_ptr(), mine.mutable_data_ptr(), static_cast<size_t>(mine.numel()), type,
                              operation_of(ReduceOp::sum, mine), comm, stream));
    });
  }

  WorkPtr all_to_all(at::Tensor parts, at::Tensor received, const WaitContext& waiting) override {
    std::vector<Message> sends, receives;
    for (int i = 0; i < size(); ++i) {
      sends.push_back({i, parts[i]});
      receives.push_back({i, received[i]});
    }
    return exchange(std::move(sends), std::move(receives), waiting);
  }

  WorkPtr exchange(std::vector<Message> sends, std::vector<Message> receives, const WaitContext& waiting) override {
    std::vector<at::Tensor> held;
    for (const std::vector<Message>* messages : {&sends, &receives})
      for (const Message& message : *messages) held.push_back(message.tensor);
    return begin(waiting, std::move(held), [&](ncclComm_t comm, cudaStream_t stream) {
      for (const auto& [peer, t] : receives)
        check(ncclRecv(t.mutable_data_ptr(), t.nbytes(), ncclUint8, peer, comm, stream));
      for (const auto& [peer, t] : sends)
        check(ncclSend(t.const_data_ptr(), t.nbytes(), ncclUint8, peer, comm, stream));
    });
  }

 private:
  bool is_queued() {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(communicator_, &state));
    check(state);
    return state != ncclInProgress;
  }

  // Calls `start`, then waits until NCCL's threads have queued its collectives.
  template <class Start>
  void queue(const WaitContext& waiting, Start start) {
    const auto is_done = [this](std::chrono::milliseconds longest) {
      const auto until = std::chrono::steady_clock::now() + longest;
      for (int turn = 0; !is_queued(); ++turn) {
        if (std::chrono::steady_clock::now() > until) return false;
        if (turn > 1000) std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      return true;
    };
    try {
      const auto& control = world().control;
      if (control) control->check_here(waiting);
      start();
      if (control) return control->wait(waiting, processes_, is_done);
      while (!is_done(std::chrono::seconds(1))) continue;
    } catch (...) {
      gpu_.abort();
      throw;
    }
  }

  void check_tensors(const std::vector<at::Tensor>& tensors) const {
    for (const at::Tensor& t : tensors)
      if (!t.is_contiguous() || !t.is_cuda() || t.get_device() != gpu_.device)
        fail(ErrorKind::invalid_argument, "ProcessGroup",
             "a tensor is not contiguous in the memory of GPU {}. Copy it first.", gpu_.device);
  }

  // Starts a collective after the kernels that the compute stream has queued so far.
  template <class Calls>
  WorkPtr begin(const WaitContext& waiting, std::vector<at::Tensor> held, Calls calls) {
    check_tensors(held);
    check(cudaSetDevice(gpu_.device));
    const auto ready = new_event(), done = new_event();
    check(cudaEventRecord(ready.get(), gpu_.compute()));
    check(cudaStreamWaitEvent(stream_, ready.get()));
    queue(waiting, [&] {
      check(ncclGroupStart());
      calls(communicator_, stream_);
      check(ncclGroupEnd());
    });
    check(cudaEventRecord(done.get(), stream_));
    if (world().control && !host_work())  // the next CUDA call reports errors of the GPU
      world().control->watch(waiting, processes_, [done, device = gpu_.device](std::chrono::milliseconds) {
        cudaSetDevice(device);
        return cudaEventQuery(done.get()) != cudaErrorNotReady;
      });
    return std::make_unique<GpuWork>(gpu_, std::move(held), done);
  }

  Gpu& gpu_;
  const cudaStream_t stream_;
  const std::vector<int> processes_;
  const int index_;
  std::unique_ptr<NcclGroup> one_way_;
  ncclComm_t communicator_ = nullptr;
};

void Gpu::abort() {
  for (auto& [processes, group] : groups) group->abort();
}

Gpu* new_gpu(c10::Device named) {
  auto* gpu = new Gpu;
  gpu->device = chosen_device(named);
  check(cudaSetDevice(gpu->device));
  gpu->stream = new_stream();
  return gpu;
}

}  // namespace

ProcessGroup& gpu_group(const std::vector<int>& processes, c10::Device device) {
  static Gpu* gpu = new_gpu(device);
  if (device.has_index() && device.index() != gpu->device)
    fail(ErrorKind::invalid_argument, "process_group",
         "a mesh across processes is on GPU {}, an earlier one on GPU {} of this process. Give each process one GPU.",
         static_cast<int>(device.index()), gpu->device);
  auto& group = gpu->groups[processes];
  if (!group) {
    group = std::make_unique<NcclGroup>(*gpu, processes, gpu->stream);
    group->join();
  }
  return *group;
}

namespace {

[[maybe_unused]] const bool registered =
    register_process_group(c10::kCUDA, [](const std::vector<int>& processes, c10::Device device) -> ProcessGroup& {
      return gpu_group(processes, device);
    });

}  // namespace

}  // namespace tessera::detail

// Programs that link tessera::nccl reference this name, so that the linker keeps this file.
extern "C" void tessera_use_nccl() {}
