// Communication: one collective, as it is announced to guards, budgets and ledgers before it happens.
#pragma once

#include <algorithm>
#include <chrono>
#include <optional>

#include "sharding/accounting/ledger.h"
#include "sharding/array/array_impl.h"

namespace tessera::detail {

// One collective. Types and texts are handles; they are spelled out only when someone reads them.
struct Communication {
  const char* kind = "";  // all_reduce
  const MeshImpl* mesh = nullptr;
  AxisSet axes = 0;
  int64_t bytes = 0;  // of the result on one device
  Provenance cause;
  const Type* from = nullptr;  // the operand's type before, and after
  const Type* to = nullptr;
  Text operand = {}, result = {};  // in place of the types where several arrays move together
  bool backward = false;
  std::chrono::steady_clock::time_point began = {};  // if before it is announced; then it is awaited from there on
  int64_t number = 0;                                // of its thread's; announce fills it in
};

// A guard, a budget or a ledger: called for the communications of its thread from its construction to its destruction.
// Watchers that were made last are called first.
class Watcher {
 public:
  enum class Role : uint8_t { listens, may_prevent };
  explicit Watcher(Role role);
  virtual ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  virtual void ask(const Communication&) {}    // throws to prevent the communication; only one that may_prevent does
  virtual void count(const Communication&) {}  // no watcher has prevented it
  virtual void await(int64_t) {}               // the program needs the one of this number
  virtual void arrive(int64_t) {}              // it is there
  virtual void see(const UnplacedArray&) {}

 private:
  Role role_;
};

// Where a watcher has that one, among those that it heard in their order; none: it began before the watcher.
template <class Heard>
std::optional<size_t> place_of(int64_t number, const Heard& heard) {
  const auto found = std::lower_bound(heard.begin(), heard.end(), number,
                                      [](const auto& h, int64_t n) { return h.communication.number < n; });
  if (found == heard.end() || found->communication.number != number) return std::nullopt;
  return static_cast<size_t>(found - heard.begin());
}

// Whether this thread has a watcher, and whether it has one that may prevent.
bool is_watched();
bool is_guarded();
// announce asks all watchers, then counts with all, so that a communication which one of them prevents is counted by
// none. For a move of several steps, `ask` is called for every step before the first one moves anything.
void ask(const Communication& communication);
// Returns its number. It is awaited from its begin, unless announce_awaited says later when.
int64_t announce(Communication communication);
void announce_awaited(int64_t number);
void announce_arrived(int64_t number);
void announce(const UnplacedArray& unplaced);

// Whether the user's own line asks for this move: a placement, a constraint, a value handed out.
bool is_asked_for(const Provenance& cause);
// The record of it in a ledger.
CommRecord record_of(const Communication& communication);
// Cause::operation of the reductions of parameters' gradients.
inline constexpr const char* gradients_operation = "gradients";

}  // namespace tessera::detail
