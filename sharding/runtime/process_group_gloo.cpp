// Gloo's collectives and local arithmetic, always in the members' order. The one file that knows c10d.
#include "sharding/runtime/process_group_gloo.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <future>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "sharding/base/fail.h"
#include "sharding/runtime/background_work.h"
#include "sharding/runtime/control_plane.h"
#include "sharding/runtime/fold.h"
#include "sharding/runtime/heartbeat.h"
#include "sharding/runtime/hierarchical_collectives.h"
#include "sharding/runtime/loopback.h"
#include "sharding/runtime/scoped_log_level.h"

namespace tessera::detail {
namespace {

using namespace std::chrono_literals;
using Duration = std::chrono::milliseconds;
using Gloo = c10d::ProcessGroupGloo;

std::string message_of(std::string_view text) { return std::string(cut_text(text)); }

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
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = is_keeper;
  options.waitWorkers = false;
  if (is_keeper && is_loopback(host)) options.masterListenFd = listen_on_loopback(host, port);
  options.timeout = std::max<Duration>(longest, 300s);  // of the connection; answer() has the other
  auto store = c10::make_intrusive<c10d::TCPStore>(host, options);
  client_ = std::make_shared<Client>(c10::make_intrusive<c10d::PrefixStore>(prefix, std::move(store)), longest);
}

// LibTorch's client waits for ever for one that is stopped, its own timeout or not: in a thread that nobody waits for.
// Of these there is one at a time.
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

// Every element type is bytes to those who only move it.
at::Tensor bytes_of(const at::Tensor& t) { return t.view({t.numel()}).view(at::kByte); }

// Where Gloo listens: at the address by which this machine reaches the others, which its own name need not be.
//
// Its thread asks the system again and again while another one holds a connection's lock. If it woke in the place of
// that one it would do so for its whole slice of time; a thread of batch scheduling never does. (A fully sharded step
// of two processes on two cores takes a fifth less.)
std::shared_ptr<gloo::transport::Device> gloo_device(const std::string& address) {
  static auto* device = new std::shared_ptr<gloo::transport::Device>;  // with a thread that lives to the very end
  const auto make = [&] {
    const sched_param no_priority{};
    ::pthread_setschedparam(::pthread_self(), SCHED_BATCH, &no_priority);  // and of the threads that this one makes
    const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
    if (!interface || !*interface)
      *device = Gloo::createDeviceForHostname(address);
    else
      try {
        *device = Gloo::createDeviceForInterface(interface);
      } catch (const std::exception&) {
        fail(ErrorKind::invalid_argument, "initialize",
             "GLOO_SOCKET_IFNAME=\"{}\", which is no interface of this machine that is up and has an address. Name "
             "one, or unset it.",
             interface);
      }
  };
  if (!*device) std::async(std::launch::async, make).get();
  return *device;
}

at::Tensor on_host(const at::Tensor& t) { return t.is_cpu() ? t : t.cpu(); }

}  // namespace

static std::atomic<int64_t> bytes_to_other_machines{0};

int64_t sent_between_machines() { return bytes_to_other_machines; }

class GlooGroup : public ProcessGroup {
 public:
  GlooGroup(const World& world, const std::string& name, const std::vector<int>& processes,
            std::shared_ptr<ProcessGroup> beside)
      : processes_(processes), control_(world.control), beside_(std::move(beside)) {
    const auto place = std::find(processes.begin(), processes.end(), world.index);
    index_ = static_cast<int>(place - processes.begin());
    if (place == processes.end())
      fail(ErrorKind::invalid_argument, "process_group", "process {} is not among those of its group.", world.index);
    std::vector<int> machines;
    for (const int process : processes) machines.push_back(world.machines[process]);
    stages_ = hierarchical_collectives(machines, index_);
    for (const int machine : machines) is_elsewhere_.push_back(machine != machines[index_]);
    if (size() == 1) return;
    // Gloo's own timeouts are none: how long to wait is the control plane's to say, of its beginning too.
    std::packaged_task<c10::intrusive_ptr<Gloo>()> connect(
        [keys = world.store->client_->keys, name, device = gloo_device(world.address), index = index_, n = size()] {
          const ScopedLogLevel quiet;
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

  // What is still under way, when an error ends the program, would be waited for.
  ~GlooGroup() override {
    if (*under_way_ > 0) gloo_.release();
  }

  int size() const override { return static_cast<int>(processes_.size()); }
  int index() const override { return index_; }
  ProcessGroup& beside() override { return beside_ ? *beside_ : *this; }

  // Small tensors: everyone gets all and folds them. Others: everyone folds one part, and sends it to the others.
  WorkPtr all_reduce(at::Tensor x, ReduceOp how, const WaitContext& waiting) override {
    check(waiting, {x});
    const at::Tensor here = on_host(x);
    const at::ScalarType type = fold_type(x, how);
    const at::Tensor flat = here.view({x.numel()});
    if (is_small(x, size()) || x.numel() < size()) {
      const at::Tensor all = at::empty({size(), x.numel()}, flat.options());
      return then(gathered(flat, all), waiting, {{x, here}}, [=] { fold(all.unbind(0), how, type, flat); });
    }
    if (stages_ && stages_->saves_in_all_reduce(type, x.scalar_type()))
      return in_stages(staged_all_reduce(*stages_, flat, how, type), waiting, {{x, here}});
    const std::vector<at::Tensor> parts = cut_evenly(flat, size());
    const at::Tensor mine = parts[index_];
    const int tag = take_tags(1);
    return divided(flat, parts, waiting, {{x, here}}, [=, this](const std::vector<at::Tensor>& of_mine) {
      fold(of_mine, how, type, mine);
      give_to_all(parts, tag);
    });
  }

  WorkPtr all_gather(at::Tensor mine, at::Tensor all, const WaitContext& waiting) override {
    check(waiting, {mine, all});
    const at::Tensor here = on_host(all);
    if (stages_ && !is_small(all))
      return in_stages(staged_all_gather(*stages_, on_host(mine), here), waiting, {{all, here}});
    return then(gathered(on_host(mine), here), waiting, {{all, here}});
  }

  WorkPtr reduce_scatter(at::Tensor parts, at::Tensor mine, const WaitContext& waiting) override {
    check(waiting, {parts, mine});
    const at::ScalarType type = fold_type(parts, ReduceOp::sum);
    const at::Tensor given = on_host(parts), here = on_host(mine);
    if (stages_ && !is_small(parts) && stages_->saves_in_reduce_scatter(type, parts.scalar_type()))
      return in_stages(staged_reduce_scatter(*stages_, given, here, type), waiting, {{mine, here}});
    const at::Tensor flat = given.view({size(), mine.numel()}), sum = here.view({mine.numel()});
    return divided(flat, flat.unbind(0), waiting, {{mine, here}},
                   [=](const std::vector<at::Tensor>& of_mine) { fold(of_mine, ReduceOp::sum, type, sum); });
  }

  WorkPtr all_to_all(at::Tensor parts, at::Tensor received, const WaitContext& waiting) override {
    check(waiting, {parts, received});
    const at::Tensor here = on_host(received);
    return then(transposed(on_host(parts), here), waiting, {{received, here}});
  }

  // By a thread of its own, which lives as long.
  WorkPtr gather_by_channel(int channel, const at::Tensor& mine, const at::Tensor& all, const WaitContext& waiting) {
    check(waiting, {mine, all});
    std::vector<at::Tensor> parts = all.unbind(0);
    parts[index_].copy_(mine);
    auto [begun, end] = begin(waiting, {}, [=, this] { give_to_all(parts, first_channel + channel); });
    std::thread(std::move(end), nullptr).detach();
    return std::move(begun);
  }

  // One block for each member, of its messages in their order.
  WorkPtr exchange(std::vector<Message> sends, std::vector<Message> receives, const WaitContext& waiting) override {
    BackgroundWork::Results results;
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
  static constexpr int first_channel = 1 << 24;  // tags below it are those of sums
  using C10dWork = c10::intrusive_ptr<c10d::Work>;
  using Counts = std::vector<int64_t>;

  // Whether so many of it are carried in the least time in the fewest messages.
  static bool is_small(const at::Tensor& x, int64_t times = 1) {
    return static_cast<int64_t>(x.nbytes()) * times <= small_bytes;
  }

  void check(const WaitContext& waiting, at::ArrayRef<at::Tensor> tensors) const {
    if (control_) control_->check_here(waiting);
    for (const at::Tensor& t : tensors)
      if (!t.is_contiguous())
        fail(ErrorKind::invalid_argument, "ProcessGroup", "a tensor is not contiguous in its memory. Copy it first.");
  }

  // Null where it is done at once.
  C10dWork gathered(const at::Tensor& mine, const at::Tensor& all) {
    at::Tensor in = bytes_of(mine), out = bytes_of(all);
    if (size() > 1) count_sent((index_ + 1) % size(), in.numel() * (size() - 1));  // round a ring
    if (size() > 1 && in.numel() > 0) return gloo_->_allgather_base(out, in);
    out.copy_(in);
    return nullptr;
  }

  // Bytes to each member and from each; none: as many to and from all.
  C10dWork transposed(const at::Tensor& parts, const at::Tensor& received, Counts out = {}, Counts in = {}) {
    at::Tensor from = bytes_of(parts), to = bytes_of(received);
    for (int peer = 0; peer < size(); ++peer) count_sent(peer, out.empty() ? from.numel() / size() : out[peer]);
    if (size() > 1 && (!out.empty() || from.numel() > 0)) return gloo_->alltoall_base(to, from, in, out);
    to.copy_(from);
    return nullptr;
  }

  // Everyone gets its part of this process's `given`, and `finish` all that are this one's, in the members' order. Of
  // two members each keeps its own where it lies.
  WorkPtr divided(const at::Tensor& given, const std::vector<at::Tensor>& parts, const WaitContext& waiting,
                  BackgroundWork::Results results, std::function<void(const std::vector<at::Tensor>&)> finish) {
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

  // parts[index_] goes to all others, and theirs come; on one of Gloo's threads, which waits.
  void give_to_all(const std::vector<at::Tensor>& parts, int tag) {
    std::vector<Swap> swaps;
    for (int peer = 0; peer < size(); ++peer)
      if (peer != index_) swaps.push_back({peer, parts[index_], parts[peer], 0});
    swap_all(swaps, tag);
  }

  void swap_all(const std::vector<Swap>& swaps, int tag) {
    std::vector<C10dWork> works;
    for (const Swap& swap : swaps) {
      std::vector<at::Tensor> sent{swap.sent}, received{swap.received};
      count_sent(swap.peer, static_cast<int64_t>(swap.sent.nbytes()));
      works.push_back(gloo_->recv(received, swap.peer, tag + swap.number));
      works.push_back(gloo_->send(sent, swap.peer, tag + swap.number));
    }
    for (const C10dWork& work : works) work->wait();
  }

  // The first of so many tags that nothing under way has. Members take them alike.
  int take_tags(int n) {
    if (tag_ + n > first_channel) tag_ = 0;
    return std::exchange(tag_, tag_ + n);
  }

  void count_sent(int peer, int64_t bytes) {
    if (is_elsewhere_[peer]) bytes_to_other_machines += bytes;
  }

  WorkPtr in_stages(StagedVerb verb, const WaitContext& waiting, BackgroundWork::Results results) {
    const int tag = take_tags(verb.numbers);
    return then(transposed(verb.sent, verb.received, verb.out, verb.in), waiting, std::move(results),
                [this, tag, finish = std::move(verb.finish)] {
                  finish([this, tag](const std::vector<Swap>& swaps) { swap_all(swaps, tag); });
                });
  }

  using End = BackgroundWork::End;
  std::pair<WorkPtr, End> begin(const WaitContext& waiting, BackgroundWork::Results results,
                                std::function<void()> finish) {
    return BackgroundWork::begin({control_, processes_, waiting, std::move(results), under_way_}, std::move(finish));
  }

  WorkPtr then(
      const C10dWork& work, const WaitContext& waiting, BackgroundWork::Results results,
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
  const std::shared_ptr<ProcessGroup> beside_;
  int index_ = 0, tag_ = 0;
  std::optional<HierarchicalCollectives> stages_;
  std::vector<bool> is_elsewhere_;  // each member: on another machine
  c10::intrusive_ptr<Gloo> gloo_;
  const std::shared_ptr<std::atomic<int>> under_way_ = std::make_shared<std::atomic<int>>(0);
};

ProcessGroup::WorkPtr gather_by_channel(ProcessGroup& gloo_group, int channel, const at::Tensor& mine,
                                        const at::Tensor& all, const WaitContext& waiting) {
  return dynamic_cast<GlooGroup&>(gloo_group).gather_by_channel(channel, mine, all, waiting);
}

std::shared_ptr<ProcessGroup> new_gloo_group(const World& world, const std::string& name,
                                             const std::vector<int>& processes, std::shared_ptr<ProcessGroup> beside) {
  return std::make_shared<GlooGroup>(world, name, processes, std::move(beside));
}

}  // namespace tessera::detail
