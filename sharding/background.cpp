// A queue and a thread that lives to the very end.
#include "sharding/background.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace tessera::detail {
namespace {

class Queue {
 public:
  Queue() {
    std::thread([this] { work(); }).detach();
  }

  std::future<void> add(std::function<void()> act) {
    std::packaged_task<void()> task(std::move(act));
    std::future<void> begun = task.get_future();
    {
      std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    filled_.notify_one();
    return begun;
  }

 private:
  [[noreturn]] void work() {
    while (true) {
      std::unique_lock lock(mutex_);
      filled_.wait(lock, [this] { return !tasks_.empty(); });
      std::packaged_task<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable filled_;
  std::deque<std::packaged_task<void()>> tasks_;
};

std::atomic<int> awaiting{0};

}  // namespace

std::future<void> begin_in_background(std::function<void()> act) {
  static Queue* queue = new Queue;
  return queue->add(std::move(act));
}

void await(std::future<void>& begun) {
  struct Awaiting {
    Awaiting() { ++awaiting; }
    ~Awaiting() { --awaiting; }
  } now;
  begun.get();
}

bool is_awaited() { return awaiting.load(std::memory_order_relaxed) > 0; }

}  // namespace tessera::detail
