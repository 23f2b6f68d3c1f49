// The watch over what a GPU has still to do with others.
#include "sharding/gpu_watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "sharding/error.h"
#include "sharding/nccl_communicator.h"

namespace tessera::detail {

using namespace std::chrono_literals;

namespace {

// An error of the GPU itself is for whoever calls it next.
bool is_done(const std::shared_ptr<void>& event) { return cudaEventQuery(raw(event)) != cudaErrorNotReady; }

}  // namespace

GpuWatchdog::GpuWatchdog(int device, std::shared_ptr<ControlPlane> control, std::chrono::milliseconds timeout)
    : control_(std::move(control)), timeout_(timeout) {
  if (control_) thread_ = std::thread([this, device] { run(device); });
}

void GpuWatchdog::add(const std::vector<int>& members, const Waiting& waiting, std::shared_ptr<void> done) {
  if (!control_) return;
  const std::lock_guard lock(mutex_);
  queued_.push_back({&members, waiting, std::move(done), Clock::now()});
}

void GpuWatchdog::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

bool GpuWatchdog::is_stopped_within(Clock::duration time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return is_stopped_; });
}

GpuWatchdog::Queued* GpuWatchdog::first_that_is_not_done() {
  const std::lock_guard lock(mutex_);
  while (!queued_.empty() && is_done(queued_.front().done)) {
    queued_.pop_front();
    if (!queued_.empty()) queued_.front().since = Clock::now();
  }
  return queued_.empty() ? nullptr : &queued_.front();
}

void GpuWatchdog::run(int device) try {
  cudaSetDevice(device);
  while (!is_stopped_within(std::min<Clock::duration>(timeout_ / 10, 500ms)))
    if (const Queued* first = first_that_is_not_done())
      control_->look_around(first->waiting, *first->members,
                            std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - first->since));
} catch (const Error& error) {
  if (is_stopped_within(std::min<Clock::duration>(timeout_ / 4, 1s))) return;
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", error.what());
  ::_exit(1);
}

}  // namespace tessera::detail
