// Votes: what all processes of the program decide together, from any thread, beside the engine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <thread>

namespace tessera::detail {

struct Loss;

// A ballot box that all processes have. They make their boxes in the same order, on one thread each; in one box they
// vote in the same order, from one thread at a time. The engine is not touched, so a thread that writes files may vote
// while the program computes. Alone: what it says is what all say.
//
// Every vote waits until all have voted; one that is long at a disk is given ten timeouts more than the first.
// Error (other) "[verb] what: process 2 ..." where one of them is lost or has ended: then the program ends, as it does
// in a collective.
class Votes {
 public:
  // `verb` and `what` (runs/7) begin the messages.
  Votes(const char* verb, std::string what);

  // Whether every process says yes.
  bool all(bool yes);
  // Error (inconsistent), on all, where not all have the same: "[verb] what: process 0 has ..., process 2 has ...", and
  // what to do. `mine` follows "has", on one line.
  void check_same(const std::string& mine, std::string_view what_to_do);

 private:
  std::string decide(const std::string& mine);
  [[noreturn]] void fail_with(const Loss& loss) const;

  const char* verb_;
  std::string what_;
  uint64_t box_ = 0;
  uint64_t number_ = 0;
  std::thread::id maker_;
};

}  // namespace tessera::detail
