// Consensus: what all processes of the program compare, and decide together, by a group that nothing else uses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::detail {

// Compares a text of this process, line by line, with those of all other processes, which call it at the same place.
// Error (inconsistent), the same on all, which begins with `verb` and shows the first line that differs, as both have
// it. What it costs: 16 bytes from each process to each. Nothing to compare where one process is alone.
void check_agreement(const char* verb, int processes, const std::string& text);

// Waits until all processes have come to the program's end. Error (other) where one of them is lost before.
void wait_for_the_end();

// A ballot box that all processes have. They make their boxes in the same order, on one thread each; in one box they
// vote in the same order, from one thread at a time, and need not be where the program computes: a thread that writes
// files may vote. Alone: what it says is what all say.
//
// Every vote waits until all have voted; one that is long at a disk is given ten timeouts more than the first.
// Error (other) "[verb] what: process 2 ..." where one of them is lost or has ended.
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
  std::vector<std::string> of_all(const std::string& mine);

  const char* verb_;
  std::string what_;
  int channel_;
};

}  // namespace tessera::detail
