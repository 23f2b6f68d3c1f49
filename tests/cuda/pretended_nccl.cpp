// The part of NCCL that the library uses, for pretended GPUs: non-blocking communicators over shared memory.
//
// As strict as NCCL's documentation: a call on a communicator that is still busy is refused, and queued calls run only
// on the thread of their stream, in call order. If the members' calls differ, the program aborts at once, where NCCL
// would hang or return garbage.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cuda/pretended_cuda.h"
#include "tests/device/pretended_memory.h"

namespace {

using namespace std::chrono_literals;

// Describes a call. Labels must be equal on all members of a collective, or on both ends of a message.
struct Label {
  char call[16] = {};
  int type = 0, how = 0;
  uint64_t bytes = 0;
  bool operator==(const Label&) const = default;
};

// One piece of a message on its way from one member to another.
struct Mailbox {
  static constexpr size_t size = size_t{64} << 10;
  std::atomic<bool> is_full;
  size_t bytes;
  Label label;
  char data[size];
};

// Shared memory of a communicator's members; initially zero.
struct Shared {
  alignas(Mailbox) std::atomic<int> arrived;
  Mailbox* boxes() { return reinterpret_cast<Mailbox*>(this + 1); }  // [from][to]
};

struct Message {
  int peer;
  char* data;
  Label label;
  size_t moved = 0;
  bool is_begun = false;
  bool is_over() const { return is_begun && moved == label.bytes; }
};

}  // namespace

// A communicator. NCCL only declares this type.
struct ncclComm {
  std::string name;
  int index, count;
  Shared* shared = nullptr;
  std::atomic<ncclResult_t> state{ncclInProgress};
  std::atomic<bool> is_aborted{false};

  Mailbox& box(int from, int to) const { return shared->boxes()[from * count + to]; }
};

namespace {

thread_local std::string last_error;

ncclResult_t refuse(std::string words) {
  last_error = std::move(words);
  return ncclInvalidUsage;
}

bool is_busy(ncclComm_t comm) { return comm->state == ncclInProgress; }

// Runs `act` on a thread, as NCCL does for slow calls. The communicator is busy until `act` returns.
ncclResult_t later(ncclComm_t comm, std::function<void()> act) {
  comm->state = ncclInProgress;
  std::thread([comm, act = std::move(act)] {
    std::this_thread::sleep_for(100us);
    act();
    comm->state = ncclSuccess;
  }).detach();
  return ncclInProgress;
}

template <class Condition>
void wait_for(ncclComm_t comm, Condition is_so) {
  for (int turn = 0; !comm->is_aborted && !is_so(); ++turn)
    turn < 100 ? std::this_thread::yield() : std::this_thread::sleep_for(20us);
}

// ---- messages

[[noreturn]] void end_program(ncclComm_t comm, int peer, const Label& mine, const Label& theirs) {
  const auto words = [](const Label& label) {
    return std::string(label.call) + " of " + std::to_string(label.bytes) + " bytes of type " +
           std::to_string(label.type);
  };
  std::fprintf(stderr, "pretended NCCL: member %d calls %s, member %d calls %s\n", comm->index, words(mine).c_str(),
               peer, words(theirs).c_str());
  std::abort();
}

// Calls `act` with the first unfinished message for each peer.
template <class Act>
void for_firsts(std::vector<Message>& messages, Act act) {
  std::vector<int> seen;
  for (Message& message : messages) {
    if (message.is_over() || std::find(seen.begin(), seen.end(), message.peer) != seen.end()) continue;
    seen.push_back(message.peer);
    act(message);
  }
}

void put(ncclComm_t comm, Message& message) {
  Mailbox& box = comm->box(comm->index, message.peer);
  if (box.is_full) return;
  box.bytes = std::min(Mailbox::size, message.label.bytes - message.moved);
  box.label = message.label;
  std::memcpy(box.data, message.data + message.moved, box.bytes);
  message.moved += box.bytes;
  message.is_begun = true;
  box.is_full = true;
}

void take(ncclComm_t comm, Message& message) {
  Mailbox& box = comm->box(message.peer, comm->index);
  if (!box.is_full) return;
  if (!(box.label == message.label)) end_program(comm, message.peer, message.label, box.label);
  std::memcpy(message.data + message.moved, box.data, box.bytes);
  message.moved += box.bytes;
  message.is_begun = true;
  box.is_full = false;
}

void move_all(ncclComm_t comm, std::vector<Message> sends, std::vector<Message> receives) {
  const auto over = [](const std::vector<Message>& messages) {
    return std::all_of(messages.begin(), messages.end(), [](const Message& m) { return m.is_over(); });
  };
  wait_for(comm, [&] {
    for_firsts(sends, [&](Message& m) { put(comm, m); });
    for_firsts(receives, [&](Message& m) { take(comm, m); });
    return over(sends) && over(receives);
  });
}

// ---- collectives

size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt64:
    case ncclFloat64:
      return 8;
    default:
      return 4;
  }
}

template <class T>
void fold_as(char* total, const char* part, size_t n, ncclRedOp_t how) {
  T* to = reinterpret_cast<T*>(total);
  const T* from = reinterpret_cast<const T*>(part);
  for (size_t i = 0; i < n; ++i)
    to[i] = how == ncclSum    ? static_cast<T>(to[i] + from[i])
            : how == ncclProd ? static_cast<T>(to[i] * from[i])
            : how == ncclMax  ? std::max(to[i], from[i])
                              : std::min(to[i], from[i]);
}

void fold(char* total, const char* part, size_t n, ncclDataType_t type, ncclRedOp_t how) {
  switch (type) {
    case ncclInt8:
      return fold_as<int8_t>(total, part, n, how);
    case ncclUint8:
      return fold_as<uint8_t>(total, part, n, how);
    case ncclInt32:
      return fold_as<int32_t>(total, part, n, how);
    case ncclInt64:
      return fold_as<int64_t>(total, part, n, how);
    case ncclFloat32:
      return fold_as<float>(total, part, n, how);
    case ncclFloat64:
      return fold_as<double>(total, part, n, how);
    case ncclFloat16:
      return fold_as<c10::Half>(total, part, n, how);
    case ncclBfloat16:
      return fold_as<c10::BFloat16>(total, part, n, how);
    default:
      std::abort();
  }
}

Label label(const char* call, ncclDataType_t type, int how, size_t bytes) {
  Label result{.type = type, .how = how, .bytes = bytes};
  std::snprintf(result.call, sizeof result.call, "%s", call);
  return result;
}

// Sends to(i) to every other member i, and stores in from(i) the data that member i sends.
template <class To, class From>
void swap_all(ncclComm_t comm, const Label& label, To to, From from) {
  std::vector<Message> sends, receives;
  for (int i = 0; i < comm->count; ++i)
    if (i != comm->index) {
      sends.push_back({.peer = i, .data = to(i), .label = label});
      receives.push_back({.peer = i, .data = from(i), .label = label});
    }
  move_all(comm, std::move(sends), std::move(receives));
}

// Sends mine(i) to each member i, and folds the received parts in the order of the members.
template <class Mine>
std::vector<char> folded(ncclComm_t comm, const Label& label, ncclDataType_t type, ncclRedOp_t how, Mine mine) {
  std::vector<std::vector<char>> parts(comm->count, std::vector<char>(label.bytes));
  std::memcpy(parts[comm->index].data(), mine(comm->index), label.bytes);
  swap_all(comm, label, mine, [&](int i) { return parts[i].data(); });
  for (int i = 1; i < comm->count; ++i) fold(parts[0].data(), parts[i].data(), label.bytes / size_of(type), type, how);
  return std::move(parts[0]);
}

char* real(const void* shown) { return tessera::testing::pretended_memory().real_now(shown); }

// ---- groups of calls

struct Group {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<std::function<void()>> calls;
  std::vector<Message> sends, receives;
};
thread_local Group group;

ncclResult_t end_group() {
  Group all = std::exchange(group, {});
  if (!all.comm) return ncclSuccess;
  return later(all.comm, [all] {
    all.stream->add([all] {
      for (const auto& call : all.calls) call();
      move_all(all.comm, all.sends, all.receives);
    });
  });
}

template <class Add>
ncclResult_t add_to_group(ncclComm_t comm, cudaStream_t stream, Add add) {
  if (is_busy(comm)) return refuse("a call on a communicator that is busy with another");
  if (group.comm && (group.comm != comm || group.stream != stream)) return refuse("a group of two communicators");
  ncclGroupStart();
  group.comm = comm, group.stream = stream;
  add(group);
  return ncclGroupEnd();
}

ncclResult_t add_call(ncclComm_t comm, cudaStream_t stream, std::function<void()> call) {
  return add_to_group(comm, stream, [&](Group& all) { all.calls.push_back(std::move(call)); });
}

// ---- communicators

// Waits until all members have joined. Then member 0 unlinks the shared memory's name.
void meet(ncclComm_t comm) {
  const size_t bytes = sizeof(Shared) + sizeof(Mailbox) * comm->count * comm->count;
  const int file = shm_open(comm->name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) std::abort();
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) std::abort();
  close(file);
  comm->shared = static_cast<Shared*>(memory);
  ++comm->shared->arrived;
  wait_for(comm, [comm] { return comm->shared->arrived == comm->count; });
  if (comm->index == 0) shm_unlink(comm->name.c_str());
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : result == ncclInvalidUsage ? "invalid usage" : "an error";
}
const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::random_device random;
  std::snprintf(id->internal, sizeof id->internal, "/pretended-nccl-%d-%08x", getpid(), random());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int count, ncclUniqueId id, int index, ncclConfig_t* config) {
  if (config->blocking != 0) return refuse("a communicator that blocks");
  *comm = new ncclComm{.name = id.internal, .index = index, .count = count};
  return later(*comm, [made = *comm] { meet(made); });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->is_aborted = true;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) return refuse("the end of a group that was not started");
  return --group.depth > 0 ? ncclSuccess : end_group();
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t n, ncclDataType_t type, ncclRedOp_t how, ncclComm_t comm,
                           cudaStream_t stream) {
  return add_call(comm, stream, [=] {
    const Label all = label("all_reduce", type, how, n * size_of(type));
    const std::vector<char> total = folded(comm, all, type, how, [&](int) { return real(from); });
    if (!comm->is_aborted) std::memcpy(real(to), total.data(), total.size());
  });
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t n, ncclDataType_t type, ncclRedOp_t how,
                               ncclComm_t comm, cudaStream_t stream) {
  return add_call(comm, stream, [=] {
    const Label part = label("reduce_scatter", type, how, n * size_of(type));
    const std::vector<char> total = folded(comm, part, type, how, [&](int i) { return real(from) + i * part.bytes; });
    if (!comm->is_aborted) std::memcpy(real(to), total.data(), total.size());
  });
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t n, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return add_call(comm, stream, [=] {
    const Label part = label("all_gather", type, 0, n * size_of(type));
    const auto place = [&](int i) { return real(to) + i * part.bytes; };
    std::memmove(place(comm->index), real(from), part.bytes);
    swap_all(
        comm, part, [&](int) { return real(from); }, place);
  });
}

ncclResult_t ncclSend(const void* data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add_to_group(comm, stream, [&](Group& all) {
    all.sends.push_back({.peer = peer, .data = real(data), .label = label("message", type, 0, n * size_of(type))});
  });
}

ncclResult_t ncclRecv(void* data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
  return add_to_group(comm, stream, [&](Group& all) {
    all.receives.push_back({.peer = peer, .data = real(data), .label = label("message", type, 0, n * size_of(type))});
  });
}

}  // extern "C"
