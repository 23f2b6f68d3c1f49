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

Outcome attempt(const std::function<AnyItem()>& make) {
  try {
    return make();
  } catch (const Error& error) {
    return Failure{error.kind(), error.what()};
  } catch (const std::exception& error) {
    return Failure{ErrorKind::other, error.what()};
  } catch (...) {
    return Failure{ErrorKind::other, "an exception that is not a std::exception"};
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

  Outcome take() {
    std::unique_lock lock(mutex);
    item_ready.wait(lock, [&] { return slot(handed_out).has_value(); });
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

AnyItem Prefetcher::next() { return item_or_throw(state_->take()); }

}  // namespace tessera::data
