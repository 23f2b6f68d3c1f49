// The observers of the thread, and activities.
#include "sharding/events/observer.h"

#include <algorithm>

namespace tessera::detail {

std::vector<Observer*>& thread_observers() {
  thread_local std::vector<Observer*> observers;
  return observers;
}

namespace {

void update_observed_events() {
  observed_events &= Events::new_thread;
  for (const Observer* o : thread_observers()) observed_events |= o->events();
}

}  // namespace

Observer::Observer(uint8_t events) : events_(events) {
  thread_observers().push_back(this);
  update_observed_events();
}

Observer::~Observer() {
  std::vector<Observer*>& observers = thread_observers();
  observers.erase(std::find(observers.begin(), observers.end(), this));
  update_observed_events();
}

ActivityScope::ActivityScope(Activity activity) : activity_(activity) {
  if (is_observed(Events::activities)) began_ = Clock::now();
}

ActivityScope::~ActivityScope() {
  if (began_ != Clock::time_point())
    emit(Events::activities, &Observer::spent, activity_, CallerLine(), began_, Clock::now());
}

}  // namespace tessera::detail
