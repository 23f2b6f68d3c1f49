// Communication: the event of one collective, which guards, budgets and ledgers receive before data is communicated.
#pragma once

#include <algorithm>
#include <optional>

#include "sharding/accounting/ledger.h"
#include "sharding/array/array_impl.h"
#include "sharding/events/observer.h"

namespace tessera::detail {

// One collective. Types and texts are handles, formatted only when they are read.
struct Communication {
  const char* kind = "";  // all_reduce
  const MeshImpl* mesh = nullptr;
  AxisSet axes = 0;
  int64_t bytes = 0;  // bytes of the result on one device
  Provenance cause;
  const Type* from = nullptr;  // the operand's type before, and after
  const Type* to = nullptr;
  Text operand = {}, result = {};  // replace the types if several arrays are communicated together
  bool backward = false;
  Clock::time_point began = {};  // set if it began before its event; the wait begins with the event
  int64_t number = 0;            // the thread's count of communications; notify sets it
};

// Returns the index of communication `number` among those that an observer received, in their order; std::nullopt if it
// began before the observer was constructed.
template <class Received>
std::optional<size_t> index_of(int64_t number, const Received& received) {
  const auto found = std::lower_bound(received.begin(), received.end(), number,
                                      [](const auto& r, int64_t n) { return r.communication.number < n; });
  if (found == received.end() || found->communication.number != number) return std::nullopt;
  return static_cast<size_t>(found - received.begin());
}

// Returns whether an observer of this thread may forbid communication.
inline bool is_guarded() { return is_observed(Events::permissions); }
// Throws if an observer forbids the communication. Resharding in several steps calls it for each step before the first
// one begins.
void check_allowed(const Communication& communication);
// Checks that the communication is allowed, then emits its event. If one observer forbids it, no observer counts it.
// Returns its number. The wait begins immediately, unless notify_awaited is called later.
int64_t notify(Communication communication);
void notify_awaited(int64_t number);
void notify_arrived(int64_t number);

// Returns whether the user's line requests this communication: a placement, a constraint, or reading a value.
bool is_explicit(const Provenance& cause);
// Returns the record of the communication in a ledger.
CommRecord record_of(const Communication& communication);
// The Provenance::operation of reductions of parameter gradients.
inline constexpr const char* gradients_operation = "gradients";

}  // namespace tessera::detail
