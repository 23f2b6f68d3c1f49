// Prefetcher: makes items 0, 1, 2, ... in threads and hands them out in exactly that order.
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

// An error that one thread passes to another, which reports it: plain values, so that no exception object is shared
// between threads.
struct Failure {
  ErrorKind kind = ErrorKind::other;
  std::string message;
};
using Outcome = std::variant<AnyItem, Failure>;

// To be called in a catch handler: the current exception as a Failure, with the kind and message of an Error, or kind
// `other` and the message of another std::exception, or a sentence that it was neither; "no memory left" if there is
// none for the message.
Failure current_failure() noexcept;

// make(), or the Failure that it threw.
Outcome attempt(const std::function<AnyItem()>& make);

// The item, or an Error made of the failure.
AnyItem item_or_throw(Outcome outcome);

// How many times this process and its ancestors forked while there were Prefetchers: a number that has changed means
// that threads started before are in another process.
int64_t forks();

// `threads` workers run make(0), make(1), ... and stay at most `depth` items ahead of the consumer; next() returns the
// items in order, whichever worker finished first, and waits for one that is not ready. An item whose make() threw
// throws here, at its place in the order. One consumer; make() is called from the workers, several at a time.
// The destructor waits for the calls of make() in progress and drops what was not handed out.
//
// fork() copies no threads: in a child process a Prefetcher must not be used (is_of_this_process() is false), and its
// destructor waits for nothing and frees nothing.
class Prefetcher {
 public:
  // depth and threads are at least 1; more threads than depth are not started. Memory grows with the items that are
  // ready, not with depth. Error (other) if the system starts no more threads.
  Prefetcher(std::function<AnyItem(int64_t)> make, int depth, int threads);
  ~Prefetcher();

  bool is_of_this_process() const;

  // The next item. A `timeout` of 0 waits forever; otherwise std::nullopt if the item is not ready in time: it is still
  // being made, and the next call waits for it again.
  std::optional<AnyItem> next(std::chrono::milliseconds timeout = {});

  int ready() const;  // how many of the next items are ready, up to the first that is not

 private:
  struct State;
  std::unique_ptr<State> state_;
  int64_t forks_;
};

}  // namespace tessera::data
