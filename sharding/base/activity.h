// ActivityScope: what a thread does beside its operations, as it is told to who measures the time of a step.
#pragma once

#include <chrono>
#include <cstdint>

#include "sharding/base/caller.h"

namespace tessera::detail {

// input: the program waits for a batch; device: for an accelerator; backward: the backward pass of a tape; update: that
// of an optimizer.
enum class Activity : uint8_t { input, device, backward, update };

// Called for the activities of its thread from its construction to its destruction, when they end.
class ActivityWatcher {
 public:
  using Moment = std::chrono::steady_clock::time_point;

  ActivityWatcher();
  virtual ~ActivityWatcher();
  ActivityWatcher(const ActivityWatcher&) = delete;
  ActivityWatcher& operator=(const ActivityWatcher&) = delete;
  virtual void did(Activity activity, const CallerLine& where, Moment began, Moment ended) = 0;
};

// An activity, as long as it lives. Where nobody watches, it costs two looks at a variable of the thread.
class ActivityScope {
 public:
  explicit ActivityScope(Activity activity);
  ~ActivityScope();
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;

 private:
  const Activity activity_;
  ActivityWatcher::Moment began_{};
};

}  // namespace tessera::detail
