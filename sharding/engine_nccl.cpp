// The verbs of groups of GPUs: queued on one stream behind what is computed, watched while they are queued.
#include "sharding/engine_nccl.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>

#include "sharding/accelerator.h"
#include "sharding/device_groups.h"
#include "sharding/error.h"
#include "sharding/gpu_watch.h"
#include "sharding/joined.h"
#include "sharding/nccl_communicator.h"
#include "sharding/wait.h"

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

size_t bytes_of(const at::Tensor& t) { return static_cast<size_t>(t.numel()) * t.itemsize(); }

std::vector<int> everyone() {
  std::vector<int> all(joined().count);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// `mine` of every process, in their order, by the processes' own memory.
template <class T>
std::vector<T> of_all(const T& mine) {
  ProcessGroup& group = process_group(everyone());
  at::Tensor here = at::empty({sizeof(T)}, at::kByte), all = at::empty({group.size(), sizeof(T)}, at::kByte);
  std::memcpy(here.mutable_data_ptr(), &mine, sizeof(T));
  group.all_gather(here, all, {.operation = "initialize", .where = {}});
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
                   joined().index, joined().count, before, found,
                   result == cudaSuccess ? "" : fmt::format(" (CUDA says: {})", cudaGetErrorString(result))));
}

// Collectives that were begun together, and the tensors that they hold.
struct GpuWork {
  std::vector<at::Tensor> held;
  std::shared_ptr<void> done;  // a CUDA event behind them
};

class NcclGroup;

// What this process has of the GPUs. It is never destroyed: at exit the driver takes everything back, and NCCL's own
// end would wait for processes that may be no more.
struct Gpu {
  int device;
  cudaStream_t stream = nullptr;  // of all communication
  Joined joined;
  std::map<std::vector<int>, std::unique_ptr<NcclGroup>> groups;
  GpuWatch watch;

  cudaStream_t compute() const { return static_cast<cudaStream_t>(compute_stream(device)); }
  void abort();
};

class NcclGroup : public ProcessGroup {
 public:
  NcclGroup(Gpu& gpu, const std::vector<int>& processes)
      : gpu_(gpu),
        communicator_(place_in(processes, gpu.joined.index), static_cast<int>(processes.size()), gpu.stream),
        joined_(gpu.joined),
        waits_(with_transport(), processes, "GPUs") {}

  int size() const override { return communicator_.count(); }
  int index() const override { return communicator_.index(); }
  Communicator& communicator() { return communicator_; }

  void all_reduce(at::Tensor& x, Fold how, const Waiting& waiting) override {
    GpuWork work = queued_all_reduce(x, how, waiting);
    finish(work);
  }

  std::unique_ptr<Begun> begin_all_reduce(at::Tensor x, Fold how, const Waiting& waiting) override {
    struct Queued : Begun {
      NcclGroup* group = nullptr;
      GpuWork work;
      void finish() override { group->finish(work); }
    };
    auto queued = std::make_unique<Queued>();
    queued->group = this;
    queued->work = queued_all_reduce(x, how, waiting);
    return queued;
  }

  void all_gather(const at::Tensor& mine, at::Tensor& all, const Waiting& waiting) override {
    now(waiting, {mine, all}, [&](ncclComm_t comm, cudaStream_t stream) {
      check(ncclAllGather(mine.const_data_ptr(), all.mutable_data_ptr(), bytes_of(mine), ncclUint8, comm, stream));
    });
  }

  void reduce_scatter(const at::Tensor& parts, at::Tensor& mine, const Waiting& waiting) override {
    const ncclDataType_t type = type_of(mine);
    now(waiting, {parts, mine}, [&](ncclComm_t comm, cudaStream_t stream) {
      check(ncclReduceScatter(parts.const_data_ptr(), mine.mutable_data_ptr(), static_cast<size_t>(mine.numel()), type,
                              operation_of(Fold::sum, mine), comm, stream));
    });
  }

  void all_to_all(const at::Tensor& parts, at::Tensor& received, const Waiting& waiting) override {
    const auto each = static_cast<int64_t>(bytes_of(parts)) / size();
    std::vector<Parcel> sends, receives;
    for (int i = 0; i < size(); ++i) {
      sends.push_back({i, static_cast<char*>(parts.mutable_data_ptr()) + i * each, each});
      receives.push_back({i, static_cast<char*>(received.mutable_data_ptr()) + i * each, each});
    }
    swap(waiting, {parts, received}, sends, receives);
  }

  void exchange(const std::vector<Message>& sends, std::vector<Message>& receives, const Waiting& waiting) override {
    std::vector<at::Tensor> held;
    const auto parcels = [&](const std::vector<Message>& messages) {
      std::vector<Parcel> result;
      for (const auto& [peer, t] : messages) {
        held.push_back(t);
        result.push_back({peer, t.mutable_data_ptr(), static_cast<int64_t>(bytes_of(t))});
      }
      return result;
    };
    const std::vector<Parcel> out = parcels(sends), in = parcels(receives);
    swap(waiting, std::move(held), out, in);
  }

  // Until NCCL's threads have queued what was asked of it; `start` asks.
  template <class Start>
  void queue(const Waiting& waiting, Start start) {
    or_abort([&] {
      waits_.begin(waiting);
      start();
      waits_.until_done(waiting);
    });
  }

 private:
  GpuWork queued_all_reduce(const at::Tensor& x, Fold how, const Waiting& waiting) {
    const ncclDataType_t type = type_of(x);
    return begin(waiting, {x}, [&] {
      communicator_.start([&](ncclComm_t comm, cudaStream_t stream) {
        check(ncclAllReduce(x.const_data_ptr(), x.mutable_data_ptr(), static_cast<size_t>(x.numel()), type,
                            operation_of(how, x), comm, stream));
      });
    });
  }

  // What the compute stream queues from here on comes after the work, whose tensors are let go.
  void finish(GpuWork& work) {
    check(cudaStreamWaitEvent(gpu_.compute(), raw(work.done)));
    work = {};
  }

  static int place_in(const std::vector<int>& processes, int process) {
    const auto place = std::find(processes.begin(), processes.end(), process);
    if (place == processes.end())
      fail(ErrorKind::bad_argument, "process_group",
           fmt::format("process {} is not among those of its group.", process));
    return static_cast<int>(place - processes.begin());
  }

  // What its waits look at: this communicator beside the processes' own watch.
  const Joined& with_transport() {
    joined_.transport = &communicator_;
    return joined_;
  }

  void check_tensors(const std::vector<at::Tensor>& tensors) const {
    for (const at::Tensor& t : tensors)
      if (!t.is_contiguous() || !t.is_cuda() || t.get_device() != gpu_.device)
        fail(ErrorKind::bad_argument, "ProcessGroup",
             fmt::format("a tensor is not contiguous in the memory of GPU {}. Copy it first.", gpu_.device));
  }

  template <class Act>
  void or_abort(Act act) {
    try {
      act();
    } catch (...) {
      gpu_.abort();
      throw;
    }
  }

  // Behind what the compute stream has queued so far.
  template <class Start>
  GpuWork begin(const Waiting& waiting, std::vector<at::Tensor> held, Start start) {
    check_tensors(held);
    check(cudaSetDevice(gpu_.device));
    const std::shared_ptr<void> ready = new_event();
    check(cudaEventRecord(raw(ready), gpu_.compute()));
    check(cudaStreamWaitEvent(gpu_.stream, raw(ready)));
    queue(waiting, start);
    std::shared_ptr<void> done = new_event();
    check(cudaEventRecord(raw(done), gpu_.stream));
    gpu_.watch.add(waits_.lookout(), waiting, done);
    return {std::move(held), std::move(done)};
  }

  template <class Calls>
  void now(const Waiting& waiting, std::vector<at::Tensor> held, Calls calls) {
    GpuWork work = begin(waiting, std::move(held), [&] { communicator_.start(calls); });
    finish(work);
  }

  void swap(const Waiting& waiting, std::vector<at::Tensor> held, const std::vector<Parcel>& sends,
            const std::vector<Parcel>& receives) {
    GpuWork work = begin(waiting, std::move(held), [&] { communicator_.start(sends, receives); });
    finish(work);
  }

  Gpu& gpu_;
  Communicator communicator_;
  Joined joined_;
  Waits waits_;
};

void Gpu::abort() {
  watch.stop();
  for (auto& [processes, group] : groups) group->communicator().abort();
}

const Waiting joining{.operation = "initialize", .where = {}};

// A process that is alone watches nobody, but its waits end in time too.
Joined watched(const Joined& all) {
  if (all.peers) return all;
  Joined alone = all;
  alone.timeout = std::chrono::seconds(60);
  alone.peers = new Peers(1, alone.timeout);
  return alone;
}

NcclGroup& added(Gpu& gpu, const std::vector<int>& processes) {
  return *(gpu.groups[processes] = std::make_unique<NcclGroup>(gpu, processes));
}

Gpu* new_gpu(c10::Device named) {
  const int device = chosen_device(named);
  check(cudaSetDevice(device));
  ncclUniqueId mine{};
  if (joined().index == 0) check(ncclGetUniqueId(&mine));
  const ncclUniqueId id = of_all(mine)[0];
  const Joined all_processes = watched(joined());
  auto* gpu = new Gpu{.device = device, .joined = all_processes, .groups = {}, .watch{device, all_processes.timeout}};
  ::on_exit([](int, void* it) { static_cast<Gpu*>(it)->watch.stop(); }, gpu);
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
