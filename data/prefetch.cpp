// A ring of slots under one mutex: workers claim tickets in order, the consumer takes them in order.
#include "data/prefetch.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace tessera::data {

Failure current_failure() {
  try {
    throw;
  } catch (const Error& error) {
    return {error.kind(), error.what()};
  } catch (const std::exception& error) {
    return {ErrorKind::other, error.what()};
  } catch (...) {
    return {ErrorKind::other, "an exception that is not a std::exception"};
  }
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

struct Prefetcher::State {
  std::function<AnyItem(int64_t)> make;
  std::vector<std::optional<Outcome>> slots;
  std::mutex mutex;
  std::condition_variable slot_free, item_ready;
  int64_t claimed = 0;
  int64_t handed_out = 0;
  bool stopping = false;
  std::vector<std::thread> workers;

  std::optional<Outcome>& slot(int64_t ticket) { return slots[static_cast<size_t>(ticket) % slots.size()]; }

  std::optional<int64_t> claim() {
    std::unique_lock lock(mutex);
    slot_free.wait(lock, [&] { return stopping || claimed < handed_out + static_cast<int64_t>(slots.size()); });
    if (stopping) return std::nullopt;
    return claimed++;
  }

  void put(int64_t ticket, Outcome outcome) {
    const std::lock_guard lock(mutex);
    slot(ticket) = std::move(outcome);
    item_ready.notify_one();
  }

  void work() {
    while (const auto ticket = claim()) put(*ticket, attempt([&] { return make(*ticket); }));
  }

  std::optional<Outcome> take(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex);
    const auto is_ready = [&] { return slot(handed_out).has_value(); };
    if (timeout.count() == 0)
      item_ready.wait(lock, is_ready);
    else if (!item_ready.wait_for(lock, timeout, is_ready))
      return std::nullopt;
    Outcome outcome = *std::exchange(slot(handed_out), std::nullopt);
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
    : state_(std::make_unique<State>()) {
  state_->make = std::move(make);
  state_->slots.resize(static_cast<size_t>(depth));
  for (int i = 0; i < std::min(depth, threads); ++i) {
    state_->workers.emplace_back([state = state_.get()] { state->work(); });
  }
}

Prefetcher::~Prefetcher() { state_->stop(); }

std::optional<AnyItem> Prefetcher::next(std::chrono::milliseconds timeout) {
  auto outcome = state_->take(timeout);
  return outcome ? std::optional<AnyItem>(item_or_throw(std::move(*outcome))) : std::nullopt;
}

int Prefetcher::ready() const {
  const std::lock_guard lock(state_->mutex);
  int count = 0;
  while (count < static_cast<int>(state_->slots.size()) && state_->slot(state_->handed_out + count)) ++count;
  return count;
}

}  // namespace tessera::data
