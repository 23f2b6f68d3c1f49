// The verbs of groups of GPUs: queued on one stream behind what is computed, watched while they are queued.
#include "sharding/engine_nccl.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <utility>

#include "sharding/accelerator.h"
#include "sharding/error.h"
#include "sharding/control_plane.h"
#include "sharding/gpu_watchdog.h"
#include "sharding/nccl_communicator.h"
#include "sharding/world.h"

namespace tessera::detail {
namespace {

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
      fail(ErrorKind::bad_argument, "ProcessGroup",
           fmt::format("NCCL does not fold {}. Cast it first.", c10::toString(t.scalar_type())));
  }
}

// Of bool a sum is "or", and a product is "and".
ncclRedOp_t operation_of(Fold how, const at::Tensor& t) {
  const bool is_bool = t.scalar_type() == at::kBool;
  switch (how) {
    case Fold::sum:
      return is_bool ? ncclMax : ncclSum;
    case Fold::product:
      return is_bool ? ncclMin : ncclProd;
    case Fold::max:
      return ncclMax;
    case Fold::min:
      return ncclMin;
  }
  return ncclSum;
}

const Waiting joining{.operation = "initialize", .where = {}};

// `mine` of every process, in their order, by the processes' own memory.
template <class T>
std::vector<T> of_all(const T& mine) {
  ProcessGroup& group = process_group(everyone());
  at::Tensor here = at::empty({sizeof(T)}, at::kByte), all = at::empty({group.size(), sizeof(T)}, at::kByte);
  std::memcpy(here.mutable_data_ptr(), &mine, sizeof(T));
  group.all_gather(here, all, joining)->wait();
  std::vector<T> result(group.size());
  std::memcpy(result.data(), all.const_data_ptr(), result.size() * sizeof(T));
  return result;
}

int chosen_device(c10::Device named) {
  int found = 0;
  const cudaError_t result = cudaGetDeviceCount(&found);
  if (result == cudaSuccess && named.has_index() && named.index() < found) return named.index();
  const int before = number_on_machine();
  if (result == cudaSuccess && found == 1) return 0;  // its launcher has given it one
  if (result == cudaSuccess && before < found) return before;
  fail(ErrorKind::bad_argument, "initialize",
       fmt::format("process {} of {} is number {} on its machine, where it sees {} GPUs{}. Start one process per GPU.",
                   world().index, world().count, before, found,
                   result == cudaSuccess ? "" : fmt::format(" (CUDA says: {})", cudaGetErrorString(result))));
}

class NcclGroup;

// What this process has of the GPUs. It is never destroyed: at exit the driver takes everything back, and NCCL's own
// end would wait for processes that may be no more.
struct Gpu {
  int device;
  cudaStream_t stream = nullptr;  // of all communication
  std::map<std::vector<int>, std::unique_ptr<NcclGroup>> groups;
  GpuWatchdog watchdog;

  cudaStream_t compute() const { return static_cast<cudaStream_t>(compute_stream(device)); }
  void abort();
};

// What is queued on the communication stream, and the tensors that it holds.
class GpuWork : public Work {
 public:
  GpuWork(const Gpu& gpu, std::vector<at::Tensor> held, std::shared_ptr<void> done)
      : gpu_(gpu), held_(std::move(held)), done_(std::move(done)) {}

  // What the compute stream queues from here on comes after the work, whose tensors are let go.
  void wait() override {
    check(cudaStreamWaitEvent(gpu_.compute(), raw(done_)));
    held_.clear();
  }

 private:
  const Gpu& gpu_;
  std::vector<at::Tensor> held_;
  std::shared_ptr<void> done_;  // a CUDA event behind it
};

class NcclGroup : public ProcessGroup {
 public:
  NcclGroup(Gpu& gpu, const std::vector<int>& processes)
      : gpu_(gpu),
        processes_(processes),
        communicator_(place_in(processes, world().index), static_cast<int>(processes.size()), gpu.stream) {}

  int size() const override { return communicator_.count(); }
  int index() const override { return communicator_.index(); }
  Communicator& communicator() { return communicator_; }

  Begun all_reduce(at::Tensor x, Fold how, const Waiting& waiting) override {
    const ncclDataType_t type = type_of(x);
    return begin(waiting, {x}, [&](ncclComm_t comm, cudaStream_t stream) {
      check(ncclAllReduce(x.const_data_ptr(), x.mutable_data_ptr(), static_cast<size_t>(x.numel()), type,
                          operation_of(how, x), comm, stream));
    });
  }

  Begun all_gather(at::Tensor mine, at::Tensor all, const Waiting& waiting) override {
    return begin(waiting, {mine, all}, [&](ncclComm_t comm, cudaStream_t stream) {
      check(ncclAllGather(mine.const_data_ptr(), all.mutable_data_ptr(), mine.nbytes(), ncclUint8, comm, stream));
    });
  }

  Begun reduce_scatter(at::Tensor parts, at::Tensor mine, const Waiting& waiting) override {
    const ncclDataType_t type = type_of(mine);
    return begin(waiting, {parts, mine}, [&](ncclComm_t comm, cudaStream_t stream) {
      check(ncclReduceScatter(parts.const_data_ptr(), mine.mutable_data_ptr(), static_cast<size_t>(mine.numel()), type,
                              operation_of(Fold::sum, mine), comm, stream));
    });
  }

  Begun all_to_all(at::Tensor parts, at::Tensor received, const Waiting& waiting) override {
    std::vector<Message> sends, receives;
    for (int i = 0; i < size(); ++i) {
      sends.push_back({i, parts[i]});
      receives.push_back({i, received[i]});
    }
    return exchange(std::move(sends), std::move(receives), waiting);
  }

  Begun exchange(std::vector<Message> sends, std::vector<Message> receives, const Waiting& waiting) override {
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

  // Until NCCL's threads have queued what was asked of it; `start` asks.
  template <class Start>
  void queue(const Waiting& waiting, Start start) {
    const auto is_queued = [this](std::chrono::milliseconds longest) {
      const auto until = std::chrono::steady_clock::now() + longest;
      for (int turn = 0; !communicator_.is_queued(); ++turn) {
        if (std::chrono::steady_clock::now() > until) return false;
        if (turn > 1000) std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      return true;
    };
    try {
      if (world().control) world().control->check_here(waiting);
      start();
      if (world().control) return world().control->wait(waiting, processes_, is_queued);
      while (!is_queued(std::chrono::seconds(1))) continue;
    } catch (...) {
      gpu_.abort();
      throw;
    }
  }

 private:
  static int place_in(const std::vector<int>& processes, int process) {
    const auto place = std::find(processes.begin(), processes.end(), process);
    if (place == processes.end())
      fail(ErrorKind::bad_argument, "process_group",
           fmt::format("process {} is not among those of its group.", process));
    return static_cast<int>(place - processes.begin());
  }

  void check_tensors(const std::vector<at::Tensor>& tensors) const {
    for (const at::Tensor& t : tensors)
      if (!t.is_contiguous() || !t.is_cuda() || t.get_device() != gpu_.device)
        fail(ErrorKind::bad_argument, "ProcessGroup",
             fmt::format("a tensor is not contiguous in the memory of GPU {}. Copy it first.", gpu_.device));
  }

  // Behind what the compute stream has queued so far.
  template <class Calls>
  Begun begin(const Waiting& waiting, std::vector<at::Tensor> held, Calls calls) {
    check_tensors(held);
    check(cudaSetDevice(gpu_.device));
    const std::shared_ptr<void> ready = new_event();
    check(cudaEventRecord(raw(ready), gpu_.compute()));
    check(cudaStreamWaitEvent(gpu_.stream, raw(ready)));
    queue(waiting, [&] { communicator_.start(calls); });
    std::shared_ptr<void> done = new_event();
    check(cudaEventRecord(raw(done), gpu_.stream));
    gpu_.watchdog.add(processes_, waiting, done);
    return std::make_unique<GpuWork>(gpu_, std::move(held), std::move(done));
  }

  Gpu& gpu_;
  const std::vector<int> processes_;
  Communicator communicator_;
};

void Gpu::abort() {
  watchdog.stop();
  for (auto& [processes, group] : groups) group->communicator().abort();
}

NcclGroup& added(Gpu& gpu, const std::vector<int>& processes) {
  return *(gpu.groups[processes] = std::make_unique<NcclGroup>(gpu, processes));
}

Gpu* new_gpu(c10::Device named) {
  const int device = chosen_device(named);
  check(cudaSetDevice(device));
  ncclUniqueId mine{};
  if (world().index == 0) check(ncclGetUniqueId(&mine));
  const ncclUniqueId id = of_all(mine)[0];
  auto* gpu = new Gpu{.device = device, .groups = {}, .watchdog{device, world().control, world().timeout}};
  ::on_exit([](int, void* it) { static_cast<Gpu*>(it)->watchdog.stop(); }, gpu);
  check(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking));
  NcclGroup& all = added(*gpu, everyone());
  all.queue(joining, [&] { all.communicator().join(id); });
  return gpu;
}

}  // namespace

ProcessGroup& gpu_group(const std::vector<int>& processes, c10::Device device) {
  static Gpu* gpu = new_gpu(device);
  if (device.has_index() && device.index() != gpu->device)
    fail(ErrorKind::bad_argument, "make_mesh",
         fmt::format("a mesh across processes lies on GPU {}, an earlier one on GPU {} of this process. Give each "
                     "process one GPU.",
                     static_cast<int>(device.index()), gpu->device));
  if (const auto found = gpu->groups.find(processes); found != gpu->groups.end()) return *found->second;
  NcclGroup& all = *gpu->groups.at(everyone());
  NcclGroup& part = added(*gpu, processes);
  const int colour = *std::min_element(processes.begin(), processes.end());
  all.queue(joining, [&] { part.communicator().split_from(all.communicator(), colour); });
  part.queue(joining, [] {});
  return part;
}

namespace {

[[maybe_unused]] const bool registered =
    use_engine(c10::kCUDA, [](const std::vector<int>& processes, c10::Device device) -> ProcessGroup& {
      return gpu_group(processes, device);
    });

}  // namespace

}  // namespace tessera::detail

// Programs that are linked with tessera::nccl ask for this name, so that they have this file.
extern "C" void tessera_use_nccl() {}
