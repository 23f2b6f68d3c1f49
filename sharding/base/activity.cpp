// The thread's watchers of activities.
#include "sharding/base/activity.h"

#include <algorithm>
#include <vector>

namespace tessera::detail {
namespace {

using Clock = std::chrono::steady_clock;

thread_local std::vector<ActivityWatcher*> activity_watchers;

}  // namespace

ActivityWatcher::ActivityWatcher() { activity_watchers.push_back(this); }

ActivityWatcher::~ActivityWatcher() {
  activity_watchers.erase(std::find(activity_watchers.begin(), activity_watchers.end(), this));
}

ActivityScope::ActivityScope(Activity activity) : activity_(activity) {
  if (!activity_watchers.empty()) began_ = Clock::now();
}

ActivityScope::~ActivityScope() {
  if (activity_watchers.empty() || began_ == ActivityWatcher::Moment()) return;
  const auto ended = Clock::now();
  for (ActivityWatcher* w : activity_watchers) w->did(activity_, CallerLine(), began_, ended);
}

}  // namespace tessera::detail
