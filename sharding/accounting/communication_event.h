// A communication as the files that move bytes announce it: to guards, budgets and ledgers.
#pragma once

#include "sharding/accounting/ledger.h"
#include "sharding/array/array_impl.h"

namespace tessera::detail {

// One collective, told before it happens. Types and texts are handles; words are made of them when someone reads.
struct Communication {
  const char* kind = "";  // all_reduce
  const MeshImpl* mesh = nullptr;
  AxisSet axes = 0;
  int64_t bytes = 0;  // of the result on one device
  Cause cause;
  const Type* from = nullptr;  // the operand before, and after
  const Type* to = nullptr;
  Text operand = {}, result = {};  // in place of the types where several arrays move together
  bool backward = false;
};

// What wants to know of communications: it does from its construction to its destruction, in its thread. Those that
// were made last are told first.
class Watcher {
 public:
  enum class Role : uint8_t { listens, may_prevent };
  explicit Watcher(Role role);
  virtual ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  virtual void ask(const Communication&) {}    // throws to prevent it; where its role is to listen it is not asked
  virtual void count(const Communication&) {}  // nobody has prevented it

 private:
  Role role_;
};

// Whether there is anyone to tell, and anyone to ask.
bool is_watched();
bool is_guarded();
// Asks all, then tells all, so that what one of them prevents nobody counts. What moves in several steps is asked about
// step by step before the first of them.
void ask(const Communication& communication);
void announce(Communication communication);

// Whether the user's own line moves this: a placement, a constraint, a value handed out.
bool is_asked_for(const Cause& cause);
// What the ledger writes.
CommRecord record_of(const Communication& communication);
// The operation of the reductions of parameters' gradients.
inline constexpr const char* gradients_operation = "gradients";

}  // namespace tessera::detail
