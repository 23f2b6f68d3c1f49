// Gloo process groups and the store. Reductions are local arithmetic in the order of members. Only this file uses c10d.
#include "sharding/runtime/process_group_gloo.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <c10/util/Logging.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <future>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "sharding/base/fail.h"
#include "sharding/runtime/addresses.h"
#include "sharding/runtime/control_plane.h"
#include "sharding/runtime/heartbeat.h"

namespace tessera::detail {
namespace {

using namespace std::chrono_literals;
using Duration = std::chrono::milliseconds;
using Gloo = c10d::ProcessGroupGloo;

std::string message_of(std::string_view text) { return std::string(cut_text(text)); }

// While the object exists, LibTorch logs only errors. Its client of the store also logs each exception with a stack
// trace.
class ScopedLogLevel {
 public:
  ScopedLogLevel() {
    const std::lock_guard lock(mutex());
    if (depth_++ == 0) before_ = std::exchange(FLAGS_caffe2_log_level, c10::GLOG_ERROR);
  }
  ~ScopedLogLevel() {
    const std::lock_guard lock(mutex());
    if (--depth_ == 0) FLAGS_caffe2_log_level = before_;
  }
  ScopedLogLevel(const ScopedLogLevel&) = delete;

 private:
  static std::mutex& mutex() {
    static auto* mutex = new std::mutex;  // detached threads may use it during exit
    return *mutex;
  }
  static inline int depth_ = 0, before_ = 0;
};

// While the object exists, SIGPIPE is blocked in this thread and in the threads that it creates. Gloo writes to the
// connection of a process that may have ended, and by default SIGPIPE would end this process, too, without a message.
class ScopedSigpipeBlock {
 public:
  ScopedSigpipeBlock() {
    ::sigemptyset(&sigpipe_);
    ::sigaddset(&sigpipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &sigpipe_, &before_);
  }
  ~ScopedSigpipeBlock() {
    const timespec no_time{};
    if (!::sigismember(&before_, SIGPIPE)) ::sigtimedwait(&sigpipe_, nullptr, &no_time);  // removes a pending one
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  ScopedSigpipeBlock(const ScopedSigpipeBlock&) = delete;

 private:
  sigset_t sigpipe_, before_;
};

}  // namespace

// ---- The store

struct Store::Client {
  c10::intrusive_ptr<c10d::Store> keys;
  Duration longest;
  std::mutex asking = {};  // guards `last`
  std::shared_future<void> last = {};
};

Store::Store(const std::string& host, int port, bool is_keeper, Duration longest, const std::string& prefix) {
  const ScopedLogLevel quiet;
  const ScopedSigpipeBlock no_sigpipe;
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = is_keeper;
  options.waitWorkers = false;
  if (is_keeper && is_loopback(host)) options.masterListenFd = listen_on_loopback(host, port);
  options.timeout = std::max<Duration>(longest, 300s);  // timeout of the connection; answer() enforces `longest`
  auto store = c10::make_intrusive<c10d::TCPStore>(host, options);
  client_ = std::make_shared<Client>(c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(store)), longest);
}

// Runs a request to the store in a detached thread, one at a time: LibTorch's client waits forever for a stopped store,
// whatever its timeout is.
template <class Ask>
auto Store::answer(Ask ask) const {
  const std::lock_guard lock(client_->asking);
  const auto until = std::chrono::steady_clock::now() + client_->longest;
  const auto check = [&](const auto& answer) {
    if (answer.wait_until(until) != std::future_status::ready)
      throw std::runtime_error(fmt::format("no answer within the timeout of {} ms", client_->longest.count()));
  };
  if (client_->last.valid()) check(client_->last);
  const auto answered = std::make_shared<std::promise<void>>();
  std::packaged_task<decltype(ask(*client_->keys))()> task([client = client_, ask] {
    const ScopedLogLevel quiet;
    return ask(*client->keys);
  });
  auto answer = task.get_future();
  client_->last = answered->get_future();
  std::thread([task = std::move(task), answered]() mutable {
    task();
    answered->set_value();
  }).detach();
  check(answer);
  return answer.get();
}

void Store::set(const std::string& key, const std::string& value) const {
  answer([key, message = message_of(value)](c10d::Store& store) { store.set(key, message); });
}

std::vector<std::string> Store::get(const std::vector<std::string>& keys) const {
  std::vector<std::string> values;
  for (const std::vector<uint8_t>& bytes : answer([keys](c10d::Store& store) { return store.multiGet(keys); }))
    values.push_back(message_of({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  return values;
}

bool Store::has(const std::string& key) const {
  return answer([key](c10d::Store& store) { return store.check({key}); });
}

int64_t Store::add(const std::string& key, int64_t n) const {
  return answer([key, n](c10d::Store& store) { return store.add(key, n); });
}

std::string Store::first(const std::string& key, const std::string& value) const {
  return message_of(
      answer([key, message = message_of(value)](c10d::Store& store) { return store.compareSet(key, "", message); }));
}

// ---- Groups

namespace {

// Returns the elements as bytes, for collectives without arithmetic.
at::Tensor bytes_of(const at::Tensor& t) { return t.view({t.numel()}).view(at::kByte); }

// Returns Gloo's device, at the address by which this machine reaches the others. That may differ from the address of
// its host name.
//
// Gloo's thread polls while another thread holds a connection's lock. With default scheduling it could preempt that
// thread and poll for its whole time slice; with batch scheduling it never preempts. (This makes a fully sharded step
// of two processes on two cores a fifth faster.)
std::shared_ptr<gloo::transport::Device> gloo_device(const std::string& address) {
  static auto* device = new std::shared_ptr<gloo::transport::Device>;  // never destroyed: its thread runs until exit
  const auto make = [&] {
    const ScopedSigpipeBlock no_sigpipe;
    const sched_param no_priority{};
    ::pthread_setschedparam(::pthread_self(), SCHED_BATCH, &no_priority);  // inherited by threads that it creates
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    if (!interface || !*interface)
      *device = Gloo::createDeviceForHostname(address);
    else
      try {
        *device = Gloo::createDeviceForInterface(interface);
      } catch (const std::exception&) {
        fail(ErrorKind::invalid_argument, "initialize",
             "GLOO_SOCKET_IFNAME=\"{}\", which is not an interface of this machine that is up and has an address. Name "
             "one, or unset it.",
             interface);
      }
  };
  if (!*device) std::async(std::launch::async, make).get();
  return *device;
}

at::Tensor on_host(const at::Tensor& t) { return t.is_cpu() ? t : t.cpu(); }

// ---- Reductions

// Returns the element type in which tensors like t are reduced. As in the local engine, small sums use double, and
// larger sums of half precision float.
at::ScalarType reduction_type(const at::Tensor& t, ReduceOp how) {
  if (how != ReduceOp::sum || !t.is_floating_point() || t.itemsize() == 8) return t.scalar_type();
  return t.numel() <= max_small_elements ? at::kDouble : at::kFloat;
}

void reduce_into(at::Tensor& total, const at::Tensor& part, ReduceOp how) {
  if (how == ReduceOp::sum) total.add_(part);
  if (how == ReduceOp::max) at::maximum_out(total, total, part);
  if (how == ReduceOp::min) at::minimum_out(total, total, part);
  if (how == ReduceOp::product) total.mul_(part);
}

// Reduces the parts in their order and in this type, and rounds the result once. `result` must not be among the parts,
// unless it is the first, or the second of two. Overwrites the first part.
void ordered_reduce(const std::vector<at::Tensor>& parts, ReduceOp how, at::ScalarType type, at::Tensor result) {
  const at::AutoGradMode off(false);
  if (how == ReduceOp::sum && parts.size() == 2 && type == result.scalar_type())
    return void(at::add_out(result, parts[0], parts[1]));
  at::Tensor total = parts[0].to(type);
  for (size_t i = 1; i < parts.size(); ++i) reduce_into(total, parts[i], how);
  if (!total.is_same(result)) result.copy_(total);
}

// Returns n consecutive views of a flat tensor, whose lengths differ by at most one.
std::vector<at::Tensor> cut_evenly(const at::Tensor& flat, int64_t n) {
  std::vector<at::Tensor> parts;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t from = flat.numel() * i / n;
    parts.push_back(flat.narrow(0, from, flat.numel() * (i + 1) / n - from));
  }
  return parts;
}

// ---- Collectives in progress

// A collective that the transport's threads execute.
class PendingWork : public Work {
 public:
  using Results = std::vector<std::pair<at::Tensor, at::Tensor>>;  // on the device, and on the host
  using End = std::function<void(const std::exception_ptr&)>;

  struct Setting {
    std::shared_ptr<ControlPlane> control;  // null in a group of one process, whose work is complete immediately
    std::vector<int> members;
    WaitContext waiting;
    Results results;
    std::shared_ptr<std::atomic<int>> under_way;  // the number of works in progress
  };

  // Returns a work and its end function. The thread that completes the work calls the end function once, with the error
  // or null. The end function calls `finish`, which is part of the work.
  static std::pair<std::unique_ptr<Work>, End> begin(Setting setting, std::function<void()> finish) {
    const auto done = std::make_shared<std::promise<void>>();
    const auto under_way = setting.under_way;
    ++*under_way;
    return {std::unique_ptr<Work>(new PendingWork(std::move(setting), done->get_future())),
            [done, finish = std::move(finish), under_way](const std::exception_ptr& error) {
              try {
                if (error) std::rethrow_exception(error);
                finish();
                done->set_value();
              } catch (...) {
                done->set_exception(std::current_exception());
              }
              --*under_way;
            }};
  }

  void wait() override {
    const auto is_done = [this](Duration longest) {
      const bool is_ready = done_.wait_for(longest) == std::future_status::ready;
      if (is_ready) done_.get();
      return is_ready;
    };
    if (setting_.control)
      setting_.control->wait(setting_.waiting, setting_.members, is_done);
    else
      is_done(Duration::zero());
    for (const auto& [result, here] : setting_.results)
      if (!result.is_same(here)) result.copy_(here);
  }

 private:
  PendingWork(Setting setting, std::future<void> done) : setting_(std::move(setting)), done_(std::move(done)) {}

  const Setting setting_;
  std::future<void> done_;
};

}  // namespace

class GlooGroup : public ProcessGroup {
 public:
  GlooGroup(const World& world, const std::string& name, const std::vector<int>& processes,
            std::shared_ptr<ProcessGroup> secondary)
      : processes_(processes), control_(world.control), secondary_(std::move(secondary)) {
    const auto place = std::find(processes.begin(), processes.end(), world.index);
    index_ = static_cast<int>(place - processes.begin());
    if (place == processes.end())
      fail(ErrorKind::invalid_argument, "process_group", "process {} is not among those of its group.", world.index);
    if (size() == 1) return;
    // The control plane enforces timeouts, also for the connection. So Gloo's own timeout is a year.
    std::packaged_task<c10::intrusive_ptr<Gloo>()> connect(
        [keys = world.store->client_->keys, name, device = gloo_device(world.address), index = index_, n = size()] {
          const ScopedLogLevel quiet;
          const ScopedSigpipeBlock no_sigpipe;
          const auto options = Gloo::Options::create(24h * 365);
          options->devices.push_back(device);
          return c10::make_intrusive<Gloo>(c10::make_intrusive<c10d::PrefixStore>("group/" + name, keys), index, n,
                                           options);
        });
    auto connected = connect.get_future();
    std::thread(std::move(connect)).detach();
    const char* operation = name == "agreement" ? "initialize" : "process_group";
    control_->wait({.operation = operation, .where = {}}, processes_, [&](Duration longest) {
      if (connected.wait_for(longest) != std::future_status::ready) return false;
      gloo_ = connected.get();
      return true;
    });
  }

  // After an error, the destructor of Gloo's group would wait for collectives in progress.
  ~GlooGroup() override {
    if (*under_way_ > 0) gloo_.release();
  }

  int size() const override { return static_cast<int>(processes_.size()); }
  int index() const override { return index_; }
  ProcessGroup& secondary() override { return secondary_ ? *secondary_ : *this; }

  // Reduces in two ways. Each member gathers and reduces all of a small tensor. For a larger tensor, each member
  // reduces one block and broadcasts it.
  WorkPtr all_reduce(at::Tensor x, ReduceOp how, const WaitContext& waiting) override {
    check(waiting, {x});
    const at::Tensor here = on_host(x);
    const at::ScalarType type = reduction_type(x, how);
    const at::Tensor flat = here.view({x.numel()});
    if (is_small(x, size()) || x.numel() < size()) {
      const at::Tensor all = at::empty({size(), x.numel()}, flat.options());
      return then(gathered(flat, all), waiting, {{x, here}}, [=] { ordered_reduce(all.unbind(0), how, type, flat); });
    }
    const std::vector<at::Tensor> parts = cut_evenly(flat, size());
    const at::Tensor mine = parts[index_];
    const int tag = next_tag();
    return scattered(flat, parts, waiting, {{x, here}}, [=, this](const std::vector<at::Tensor>& of_mine) {
      ordered_reduce(of_mine, how, type, mine);
      broadcast(parts, tag);
    });
  }

  WorkPtr all_gather(at::Tensor mine, at::Tensor all, const WaitContext& waiting) override {
    check(waiting, {mine, all});
    const at::Tensor here = on_host(all);
    return then(gathered(on_host(mine), here), waiting, {{all, here}});
  }

  WorkPtr reduce_scatter(at::Tensor parts, at::Tensor mine, const WaitContext& waiting) override {
    check(waiting, {parts, mine});
    const at::ScalarType type = reduction_type(parts, ReduceOp::sum);
    const at::Tensor given = on_host(parts), here = on_host(mine);
    const at::Tensor flat = given.view({size(), mine.numel()}), sum = here.view({mine.numel()});
    return scattered(flat, flat.unbind(0), waiting, {{mine, here}}, [=](const std::vector<at::Tensor>& of_mine) {
      ordered_reduce(of_mine, ReduceOp::sum, type, sum);
    });
  }

  WorkPtr all_to_all(at::Tensor parts, at::Tensor received, const WaitContext& waiting) override {
    check(waiting, {parts, received});
    const at::Tensor here = on_host(received);
    return then(transposed(on_host(parts), here), waiting, {{received, here}});
  }

  // Runs in a separate thread, which ends with the collective.
  WorkPtr gather_by_channel(int channel, const at::Tensor& mine, const at::Tensor& all, const WaitContext& waiting) {
    check(waiting, {mine, all});
    std::vector<at::Tensor> parts = all.unbind(0);
    parts[index_].copy_(mine);
    auto [begun, end] = begin(waiting, {}, [=, this] { broadcast(parts, first_channel + channel); });
    std::thread(std::move(end), nullptr).detach();
    return std::move(begun);
  }

  // Concatenates each member's messages, in their order, into one block of an all_to_all.
  WorkPtr exchange(std::vector<Message> sends, std::vector<Message> receives, const WaitContext& waiting) override {
    PendingWork::Results results;
    const auto by_peer = [&](std::vector<Message>& messages, Counts& bytes) {
      std::vector<at::Tensor> all;
      std::stable_sort(messages.begin(), messages.end(), [](const auto& a, const auto& b) { return a.peer < b.peer; });
      for (const Message& message : messages) {
        check(waiting, {message.tensor});
        const at::Tensor here = on_host(message.tensor);
        if (&messages == &receives) results.emplace_back(message.tensor, here);
        all.push_back(bytes_of(here));
        bytes.at(message.peer) += all.back().numel();
      }
      return all;
    };
    Counts out(processes_.size()), in(processes_.size());
    const std::vector<at::Tensor> given = by_peer(sends, out), wanted = by_peer(receives, in);
    const at::Tensor nothing = at::empty({0}, at::kByte);
    const at::Tensor sent = given.empty() ? nothing : given.size() == 1 ? given[0] : at::cat(given);
    if (wanted.size() == 1) return then(transposed(sent, wanted[0], out, in), waiting, std::move(results));
    const at::Tensor received = at::empty({std::accumulate(in.begin(), in.end(), int64_t{0})}, at::kByte);
    return then(transposed(sent, received, out, in), waiting, std::move(results), [=] {
      int64_t begin = 0;
      for (at::Tensor t : wanted) t.copy_(received.narrow(0, std::exchange(begin, begin + t.numel()), t.numel()));
    });
  }

 private:
  static constexpr int64_t small_bytes = 1 << 16;
  static constexpr int first_channel = 1 << 24;  // lower tags are for sums
  using C10dWork = c10::intrusive_ptr<c10d::Work>;
  using Counts = std::vector<int64_t>;

  // Returns whether `times` tensors like x are so small that fewer messages matter more than fewer bytes.
  static bool is_small(const at::Tensor& x, int64_t times) {
    return static_cast<int64_t>(x.nbytes()) * times <= small_bytes;
  }

  void check(const WaitContext& waiting, at::ArrayRef<at::Tensor> tensors) const {
    if (control_) control_->check_here(waiting);
    for (const at::Tensor& t : tensors)
      if (!t.is_contiguous())
        fail(ErrorKind::invalid_argument, "ProcessGroup", "a tensor is not contiguous in its memory. Copy it first.");
  }

  // Returns null if nothing has to be sent.
  C10dWork gathered(const at::Tensor& mine, const at::Tensor& all) {
    at::Tensor in = bytes_of(mine), out = bytes_of(all);
    if (size() > 1 && in.numel() > 0) return gloo_->_allgather_base(out, in);
    out.copy_(in);
    return nullptr;
  }

  // Starts an all_to_all. `out` and `in` are the bytes to and from each member; empty: the same for all.
  C10dWork transposed(const at::Tensor& parts, const at::Tensor& received, Counts out = {}, Counts in = {}) {
    at::Tensor from = bytes_of(parts), to = bytes_of(received);
    if (size() > 1 && (!out.empty() || from.numel() > 0)) return gloo_->alltoall_base(to, from, in, out);
    to.copy_(from);
    return nullptr;
  }

  // Sends each member its tensor of `given`, and calls `finish` with the members' tensors for this process, in the
  // members' order. With two members, this process's own tensor is not copied.
  WorkPtr scattered(const at::Tensor& given, const std::vector<at::Tensor>& parts, const WaitContext& waiting,
                    PendingWork::Results results, std::function<void(const std::vector<at::Tensor>&)> finish) {
    const at::Tensor& mine = parts[index_];
    if (size() == 2) {
      const at::Tensor other = parts[1 - index_], theirs = at::empty_like(mine);
      Counts to(2), from(2);
      to[1 - index_] = static_cast<int64_t>(other.nbytes());
      from[1 - index_] = static_cast<int64_t>(mine.nbytes());
      const auto in_order = index_ == 0 ? std::vector{mine, theirs} : std::vector{theirs, mine};
      return then(transposed(other, theirs, to, from), waiting, std::move(results), [=] { finish(in_order); });
    }
    Counts to;
    for (const at::Tensor& part : parts) to.push_back(static_cast<int64_t>(part.nbytes()));
    const at::Tensor received = at::empty({size(), mine.numel()}, mine.options());
    const Counts from(processes_.size(), to[index_]);
    return then(transposed(given, received, to, from), waiting, std::move(results),
                [=] { finish(received.unbind(0)); });
  }

  // Sends parts[index_] to all other members, and waits for theirs. Any thread may call it, and writes to connections.
  void broadcast(const std::vector<at::Tensor>& parts, int tag) {
    const ScopedSigpipeBlock no_sigpipe;
    std::vector<C10dWork> works;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == index_) continue;
      std::vector<at::Tensor> sent{parts[index_]}, received{parts[peer]};
      works.push_back(gloo_->recv(received, peer, tag));
      works.push_back(gloo_->send(sent, peer, tag));
    }
    for (const C10dWork& work : works) work->wait();
  }

  // Returns a tag that no collective in progress has. All members get the same.
  int next_tag() {
    if (tag_ + 1 > first_channel) tag_ = 0;
    return tag_++;
  }

  using End = PendingWork::End;
  std::pair<WorkPtr, End> begin(const WaitContext& waiting, PendingWork::Results results,
                                std::function<void()> finish) {
    return PendingWork::begin({control_, processes_, waiting, std::move(results), under_way_}, std::move(finish));
  }

  WorkPtr then(
      const C10dWork& work, const WaitContext& waiting, PendingWork::Results results,
      std::function<void()> finish = [] {}) {
    auto [begun, end] = begin(waiting, std::move(results), std::move(finish));
    if (!work) end(nullptr);
    if (work)
      work->getFuture()->addCallback([end = std::move(end)](c10::ivalue::Future& result) {
        end(result.hasError() ? result.exception_ptr() : nullptr);
      });
    return std::move(begun);
  }

  const std::vector<int> processes_;
  const std::shared_ptr<ControlPlane> control_;
  const std::shared_ptr<ProcessGroup> secondary_;
  int index_ = 0, tag_ = 0;
  c10::intrusive_ptr<Gloo> gloo_;
  const std::shared_ptr<std::atomic<int>> under_way_ = std::make_shared<std::atomic<int>>(0);
};

ProcessGroup::WorkPtr gather_by_channel(ProcessGroup& gloo_group, int channel, const at::Tensor& mine,
                                        const at::Tensor& all, const WaitContext& waiting) {
  return dynamic_cast<GlooGroup&>(gloo_group).gather_by_channel(channel, mine, all, waiting);
}

std::shared_ptr<ProcessGroup> new_gloo_group(const World& world, const std::string& name,
                                             const std::vector<int>& processes,
                                             std::shared_ptr<ProcessGroup> secondary) {
  return std::make_shared<GlooGroup>(world, name, processes, std::move(secondary));
}

}  // namespace tessera::detail
