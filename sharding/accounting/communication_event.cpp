// The thread's watchers, and how they are told.
#include "sharding/accounting/communication_event.h"

#include <algorithm>

#include "sharding/base/module_path.h"

namespace tessera::detail {
namespace {

thread_local std::vector<Watcher*> watchers;
thread_local int64_t announced = 0;
thread_local int guards = 0;  // of these, those that may prevent

}  // namespace

Watcher::Watcher(Role role) : role_(role) {
  watchers.push_back(this);
  guards += role_ == Role::may_prevent;
}

Watcher::~Watcher() {
  watchers.erase(std::find(watchers.begin(), watchers.end(), this));
  guards -= role_ == Role::may_prevent;
}

bool is_watched() { return !watchers.empty(); }
bool is_guarded() { return guards > 0; }

void ask(const Communication& communication) {
  if (!is_guarded()) return;
  for (auto w = watchers.rbegin(); w != watchers.rend(); ++w) (*w)->ask(communication);
}

int64_t announce(Communication communication) {
  communication.cause.where = CallerLine(communication.cause.where);
  if (!communication.cause.path && !communication.backward) communication.cause.path = current_module_path();
  communication.number = announced++;
  ask(communication);
  for (auto w = watchers.rbegin(); w != watchers.rend(); ++w) (*w)->count(communication);
  return communication.number;
}

void announce_awaited(int64_t number) {
  for (Watcher* w : watchers) w->await(number);
}

void announce_arrived(int64_t number) {
  for (Watcher* w : watchers) w->arrive(number);
}

void announce(const UnplacedArray& unplaced) {
  for (Watcher* w : watchers) w->see(unplaced);
}

bool is_asked_for(const Provenance& cause) { return cause.reason == asked_for() || cause.reason == handed_out(); }

}  // namespace tessera::detail
