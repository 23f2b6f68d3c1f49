// Prefetcher: makes items 0, 1, 2, ... in threads and hands them out in exactly that order.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "nn/tree/tree.h"

namespace tessera::data {

using AnyItem = std::shared_ptr<void>;

// An error on its way from the thread that met it to the one that reports it: plain values, so that no exception
// object is shared between threads.
struct Failure {
  ErrorKind kind = ErrorKind::other;
  std::string message;
};
using Outcome = std::variant<AnyItem, Failure>;

// In a catch handler: the current exception as a Failure: the kind and the words of an Error, the words of another
// std::exception (kind other), or a sentence that it was neither; "no memory left" where there is none for the words.
Failure current_failure() noexcept;

// make(), or the Failure that it threw.
Outcome attempt(const std::function<AnyItem()>& make);

// The item, or an Error made of the failure.
AnyItem item_or_throw(Outcome outcome);

// How many times this process and those before it forked while there were Prefetchers: another number than before means
// that the threads of before are in another process.
int64_t forks();

// `threads` workers run make(0), make(1), ... and stay at most `depth` items ahead of the consumer; next() returns the
// items in order, whichever worker finished first, and waits for one that is not ready. An item whose make() threw
// throws here, at its place in the order. One consumer; make() is called from the workers, several at a time.
// The destructor waits for the calls of make() in progress and drops what was not handed out.
//
// fork() copies no threads: in a child process nothing may be asked of it (is_of_this_process()), and the destructor
// waits for nobody and frees nothing.
class Prefetcher {
 public:
  // depth and threads at least 1; more threads than depth are not started. Memory grows with what lies ready, not with
  // depth. Error (other) if the system starts no more threads.
  Prefetcher(std::function<AnyItem(int64_t)> make, int depth, int threads);
  ~Prefetcher();

  bool is_of_this_process() const;

  // `timeout` 0 waits as long as it takes. After any other: nothing, where the item was not ready; it is still being
  // made, and the next call waits for it again.
  std::optional<AnyItem> next(std::chrono::milliseconds timeout = {});

  int ready() const;  // items that lie ready, none before them missing

 private:
  struct State;
  std::unique_ptr<State> state_;
  int64_t forks_;
};

}  // namespace tessera::data
