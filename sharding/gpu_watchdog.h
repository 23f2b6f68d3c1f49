// GpuWatchdog: looks around for the thread that waits for its GPU, and cannot do so itself.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "sharding/control_plane.h"

namespace tessera::detail {

// A thread that watches what is queued on a GPU and needs other processes. Where one of them is lost, has left, or does
// not come to it in time, the GPU waits for ever, and with it whoever reads a value: the thread says what an Error
// would say, with the operation, its line, the mesh axis and the process, and ends this process with status 1. Before
// that it gives the program a moment, which may come to its next verb and raise the Error itself.
class GpuWatchdog {
 public:
  GpuWatchdog(int device, std::shared_ptr<ControlPlane> control, std::chrono::milliseconds timeout);
  ~GpuWatchdog() { stop(); }
  GpuWatchdog(const GpuWatchdog&) = delete;

  // Something was queued behind what was added before, which these processes do; the event `done` is behind it.
  void add(const std::vector<int>& members, const Waiting& waiting, std::shared_ptr<void> done);
  // From then on nothing is watched.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;
  struct Queued {
    const std::vector<int>* members;
    Waiting waiting;
    std::shared_ptr<void> done;
    Clock::time_point since;  // when the GPU may have come to it, at the earliest
  };
  void run(int device);
  Queued* first_that_is_not_done();
  bool is_stopped_within(Clock::duration time);

  const std::shared_ptr<ControlPlane> control_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Queued> queued_;
  bool is_stopped_ = false;
  std::thread thread_;
};

}  // namespace tessera::detail
