// Observer: the interface through which ledgers, guards, profiles and checks receive a thread's events.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "sharding/base/caller.h"

namespace tessera {
class Array;
struct UnplacedArray;
}  // namespace tessera

namespace tessera::detail {

struct ArrayImpl;
struct BackwardCall;
struct Communication;
struct OperationArrays;
struct OperationCall;

using Clock = std::chrono::steady_clock;

// Time that a thread spends outside single operations:
// - input: it waits for a batch
// - device: it waits for an accelerator
// - backward: the backward pass of a tape
// - update: an optimizer update
enum class Activity : uint8_t { input, device, backward, update };

// The reason for which the host waits for an accelerator. read: the host reads a value that the accelerator computed.
// upload: the host passes memory and waits until the accelerator has read it.
enum class HostSync : uint8_t { read, upload };

// The kinds of events, as bits.
struct Events {
  static constexpr uint8_t none = 0, operations = 1, communication = 2, permissions = 4, activities = 8,
                           host_syncs = 16;
  static constexpr uint8_t new_thread = 128;  // set until the thread's first operation: see are_operations_observed
};

// The kinds of events that some observer of this thread receives. An unobserved operation costs one read of it.
inline constinit thread_local uint8_t observed_events = Events::new_thread;

inline bool is_observed(uint8_t events) { return (observed_events & events) != 0; }

// Receives the events of its thread that are in `events`, from its construction to its destruction. The most recently
// constructed observer is notified first.
class Observer {
 public:
  explicit Observer(uint8_t events);
  virtual ~Observer();
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;

  // Events::operations.
  // - computed: an operation has computed its results.
  // - differentiated: one function of its backward pass, or all of it, has run.
  // - moved: the program has placed an array (`from` and `to` are equal if it was there already).
  // An operation inside another one (shard_map, a function with its own gradient) is reported before the outer one.
  // Operations that throw and creations are not reported. Implicit resharding of operands is only reported as
  // communication.
  virtual void computed(const OperationCall&, const OperationArrays&) {}
  virtual void differentiated(const OperationCall&, const BackwardCall&) {}
  virtual void moved(const ArrayImpl& /*from*/, const Array& /*to*/) {}

  // Events::permissions, with Events::communication: throws to forbid a communication.
  virtual void check(const Communication&) {}

  // Events::communication. communicated: a collective that no observer forbids. awaited: the program starts to wait for
  // its result. arrived: the result is there. found_unplaced: value_and_grad received an array that was never placed.
  virtual void communicated(const Communication&) {}
  virtual void awaited(int64_t /*number*/) {}
  virtual void arrived(int64_t /*number*/) {}
  virtual void found_unplaced(const UnplacedArray&) {}

  // Events::activities: an activity has ended.
  virtual void spent(Activity, const CallerLine&, Clock::time_point /*began*/, Clock::time_point /*ended*/) {}

  // Events::host_syncs: the host waits in LibTorch's operator `kernel`, for example "aten::_local_scalar_dense".
  virtual void waited(HostSync, const std::string& /*kernel*/) {}

  uint8_t events() const { return events_; }

 private:
  const uint8_t events_;
};

std::vector<Observer*>& thread_observers();
// Return this thread's innermost DetectNonFinite and CommunicationGuard; null outside of them.
inline const Observer*& innermost_check() {
  thread_local const Observer* check = nullptr;
  return check;
}
inline const Observer*& innermost_guard() {
  thread_local const Observer* guard = nullptr;
  return guard;
}

// Calls `event` of each observer of this thread that receives events of this kind.
template <class... Parameters, class... Arguments>
void emit(uint8_t kind, void (Observer::*event)(Parameters...), const Arguments&... arguments) {
  if (!is_observed(kind)) return;
  const std::vector<Observer*>& observers = thread_observers();
  for (auto o = observers.rbegin(); o != observers.rend(); ++o)
    if ((*o)->events() & kind) ((*o)->*event)(arguments...);
}

// Reports an activity that lasts as long as the scope. An unobserved activity costs two tests.
class ActivityScope {
 public:
  explicit ActivityScope(Activity activity);
  ~ActivityScope();
  ActivityScope(const ActivityScope&) = delete;
  ActivityScope& operator=(const ActivityScope&) = delete;

 private:
  const Activity activity_;
  Clock::time_point began_{};
};

}  // namespace tessera::detail
