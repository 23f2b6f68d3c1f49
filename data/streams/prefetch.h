// Prefetcher: makes items 0, 1, 2, ... in threads and returns them in exactly that order.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "sharding/base/error.h"

namespace tessera::data {

using AnyItem = std::shared_ptr<void>;

// An error that one thread passes to another, which throws it. It holds plain values, so that threads share no
// exception object.
struct Failure {
  ErrorKind kind = ErrorKind::other;
  std::string message;
};
using Outcome = std::variant<AnyItem, Failure>;

// Returns the current exception as a Failure; call it in a catch handler. An Error keeps its kind and message. Another
// std::exception gets kind `other` and keeps its message. Any other exception gets kind `other` and a fixed sentence.
// The message is "no memory left" if there is no memory for it.
Failure current_failure() noexcept;

// Returns make(), or the Failure that it threw.
Outcome attempt(const std::function<AnyItem()>& make);

// Returns the item, or throws the failure as an Error.
AnyItem item_or_throw(Outcome outcome);

// Returns how many times this process and its ancestors forked while there were Prefetchers. If the number has changed,
// threads started before are in another process.
int64_t forks();

// Runs make(0), make(1), ... in `threads` workers, at most `depth` items ahead of the consumer. next() returns the
// items in order and waits for one that is not ready. If make() threw for an item, next() throws at that item's turn.
// There is one consumer; several workers call make() concurrently. The destructor waits for the running calls of make()
// and drops the items that were not returned.
//
// fork() copies no threads: do not use a Prefetcher in a child process (is_of_this_process() is false there). Its
// destructor then waits for nothing and frees nothing.
class Prefetcher {
 public:
  // Starts the workers. `depth` and `threads` are at least 1; at most `depth` threads are started. Memory grows with
  // the items that are ready, not with `depth`. Error (other): the system starts no more threads.
  Prefetcher(std::function<AnyItem(int64_t)> make, int depth, int threads);
  ~Prefetcher();

  bool is_of_this_process() const;

  // Returns the next item, and waits forever if `timeout` is 0. Otherwise returns std::nullopt if the item is not ready
  // in time; the next call then waits for the same item.
  std::optional<AnyItem> next(std::chrono::milliseconds timeout = {});

  int ready() const;  // number of next items that are ready without a gap

 private:
  struct State;
  std::unique_ptr<State> state_;
  int64_t forks_;
};

}  // namespace tessera::data
