// A queue of slots under one mutex: workers claim tickets in order, and the consumer takes them in order.
#include "data/streams/prefetch.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "sharding/base/fail.h"
#include "sharding/base/threads.h"

namespace tessera::data {
namespace {

std::string kept(const char* words) noexcept try { return words; } catch (const std::bad_alloc&) {
  return "no memory left";  // short enough to need no allocation
}

}  // namespace

Failure current_failure() noexcept try { throw; } catch (const Error& error) {
  return {error.kind(), kept(error.what())};
} catch (const std::exception& error) {
  return {ErrorKind::other, kept(error.what())};
} catch (...) {
  return {ErrorKind::other, kept("an exception that is not a std::exception")};
}

Outcome attempt(const std::function<AnyItem()>& make) {
  try {
    return make();
  } catch (...) {
    return current_failure();
  }
}

AnyItem item_or_throw(Outcome outcome) {
  if (auto* failure = std::get_if<Failure>(&outcome)) throw Error(failure->kind, failure->message);
  return std::get<AnyItem>(std::move(outcome));
}

int64_t forks() {
  static std::atomic<int64_t> count = 0;
  static const int registered = ::pthread_atfork(nullptr, nullptr, [] { ++count; });
  static_cast<void>(registered);
  return count.load(std::memory_order_relaxed);
}

struct Prefetcher::State {
  std::function<AnyItem(int64_t)> make;
  size_t depth = 1;
  std::deque<std::optional<Outcome>> slots;  // outcomes of the claimed tickets, from handed_out on
  std::mutex mutex;
  std::condition_variable slot_free, item_ready;
  int64_t handed_out = 0;
  bool stopping = false;
  std::optional<Failure> lost;  // why a worker ended early: its item never comes
  std::vector<std::thread> workers;

  std::optional<int64_t> claim() {
    std::unique_lock lock(mutex);
    slot_free.wait(lock, [&] { return stopping || slots.size() < depth; });
    if (stopping) return std::nullopt;
    slots.emplace_back();
    return handed_out + static_cast<int64_t>(slots.size()) - 1;
  }

  void put(int64_t ticket, Outcome outcome) {
    const std::lock_guard lock(mutex);
    slots[static_cast<size_t>(ticket - handed_out)] = std::move(outcome);
    item_ready.notify_one();
  }

  Outcome made(int64_t ticket) {
    const tessera::detail::BackgroundThreadCount busy;
    return attempt([&] { return make(ticket); });
  }

  void work() {
    try {
      while (const auto ticket = claim()) put(*ticket, made(*ticket));
    } catch (...) {  // no memory for a slot
      const std::lock_guard lock(mutex);
      lost = current_failure();
      item_ready.notify_one();
    }
  }

  std::optional<Outcome> take(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex);
    const auto is_ready = [&] { return !slots.empty() && slots.front().has_value(); };
    const auto is_decided = [&] { return is_ready() || lost; };
    if (timeout.count() == 0)
      item_ready.wait(lock, is_decided);
    else if (!item_ready.wait_for(lock, timeout, is_decided))
      return std::nullopt;
    if (!is_ready()) return *lost;
    Outcome outcome = *std::move(slots.front());
    slots.pop_front();
    ++handed_out;
    slot_free.notify_one();
    return outcome;
  }

  void stop() {
    {
      const std::lock_guard lock(mutex);
      stopping = true;
      slot_free.notify_all();
    }
    for (auto& worker : workers) worker.join();
  }
};

Prefetcher::Prefetcher(std::function<AnyItem(int64_t)> make, int depth, int threads)
    : state_(std::make_unique<State>()), forks_(forks()) {
  state_->make = std::move(make);
  state_->depth = static_cast<size_t>(depth);
  const int wanted = std::min(depth, threads);
  try {
    for (int i = 0; i < wanted; ++i) state_->workers.emplace_back([state = state_.get()] { state->work(); });
  } catch (const std::exception& error) {  // std::system_error, or no memory for the thread's own record
    const size_t started = state_->workers.size();
    state_->stop();
    fail(ErrorKind::other, "next", "the system starts {} threads of {} ({}); use fewer LoaderOptions::num_threads",
         started, wanted, error.what());
  }
}

Prefetcher::~Prefetcher() {
  if (is_of_this_process())
    state_->stop();
  else
    static_cast<void>(state_.release());
}

bool Prefetcher::is_of_this_process() const { return forks_ == forks(); }

std::optional<AnyItem> Prefetcher::next(std::chrono::milliseconds timeout) {
  auto outcome = state_->take(timeout);
  return outcome ? std::optional<AnyItem>(item_or_throw(std::move(*outcome))) : std::nullopt;
}

int Prefetcher::ready() const {
  const std::lock_guard lock(state_->mutex);
  const auto& slots = state_->slots;
  return static_cast<int>(std::find(slots.begin(), slots.end(), std::nullopt) - slots.begin());
}

}  // namespace tessera::data
