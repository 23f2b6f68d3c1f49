// The watch over what a GPU has still to do with others.
#include "sharding/gpu_watch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "sharding/nccl_communicator.h"

namespace tessera::detail {

using namespace std::chrono_literals;

namespace {

// An error of the GPU itself is for whoever calls it next.
bool is_done(const std::shared_ptr<void>& event) { return cudaEventQuery(raw(event)) != cudaErrorNotReady; }

}  // namespace

GpuWatch::GpuWatch(int device, std::chrono::milliseconds timeout)
    : timeout_(timeout), thread_([this, device] { run(device); }) {}

void GpuWatch::add(Lookout lookout, const Waiting& waiting, std::shared_ptr<void> done) {
  const std::lock_guard lock(mutex_);
  works_.push_back({std::move(lookout), waiting, std::move(done), Clock::now()});
}

void GpuWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool GpuWatch::is_stopped_within(Clock::duration time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return is_stopped_; });
}

GpuWatch::Work* GpuWatch::first_that_is_not_done() {
  const std::lock_guard lock(mutex_);
  while (!works_.empty() && is_done(works_.front().done)) {
    works_.pop_front();
    if (!works_.empty()) works_.front().since = Clock::now();
  }
  return works_.empty() ? nullptr : &works_.front();
}

void GpuWatch::run(int device) try {
  cudaSetDevice(device);
  while (!is_stopped_within(20ms))
    if (Work* work = first_that_is_not_done()) work->lookout.look_around(work->waiting, Clock::now() - work->since);
} catch (const Error& error) {
  if (is_stopped_within(std::min<Clock::duration>(timeout_ / 4, 1s))) return;
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", error.what());
  ::_exit(1);
}

}  // namespace tessera::detail
