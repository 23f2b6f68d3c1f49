// Emits events of communication.
#include "sharding/accounting/communication_event.h"

#include <atomic>

#include "sharding/base/caller.h"

namespace tessera::detail {

void check_allowed(const Communication& communication) { emit(Events::permissions, &Observer::check, communication); }

int64_t notify(Communication communication) {
  static std::atomic<int64_t> count = 0;  // of the process: an observer may receive the events of several threads
  communication.cause.where = CallerLine(communication.cause.where);
  if (!communication.cause.path && !communication.backward) communication.cause.path = current_module_path();
  communication.number = count++;
  check_allowed(communication);
  emit(Events::communication, &Observer::communicated, communication);
  return communication.number;
}

void notify_awaited(int64_t number) { emit(Events::communication, &Observer::awaited, number); }
void notify_arrived(int64_t number) { emit(Events::communication, &Observer::arrived, number); }

bool is_explicit(const Provenance& cause) {
  return cause.reason == explicit_reason() || cause.reason == returned_value_reason();
}

}  // namespace tessera::detail
