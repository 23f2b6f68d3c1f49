// Consensus: texts and votes that all processes of the program compare, over a process group used for nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::detail {

struct WaitContext;

// Compares this process's text, line by line, with those of all other processes, which call this at the same place.
// Error (inconsistent), the same on all processes: it begins with `verb` and shows the first line that differs, as both
// processes have it, up to max_message_bytes of each. Costs 16 bytes from each process to each. Does nothing if
// `processes` is 1.
void check_agreement(const char* verb, int processes, const std::string& text);
// The same among these processes, in ascending order, of which this is one; others may be elsewhere in the program.
void check_agreement(const WaitContext& waiting, const std::vector<int>& processes, const std::string& text);

// The texts, and the numbers, of all processes, in their order, on each; all call it at the same place. `verb` begins
// the message of an Error (other): another process is lost, or sends a text of more than 64 MiB. A text has no zero
// byte.
std::vector<std::string> gather_texts(const char* verb, const std::string& mine);
std::vector<int64_t> gather_numbers(const char* verb, int64_t mine);

// Waits until all processes have reached the program's end. Error (other) if one of them is lost before.
void wait_for_the_end();

// A ballot box that all processes share. Every process makes its boxes in the same order, all on one thread. In one box
// it votes in the same order as the others, from one thread at a time, which may be another than the one that computes:
// a thread that writes files may vote. In a program of one process its own vote decides.
//
// A vote waits until all processes have voted, for up to eleven timeouts, since one of them may be long at a disk.
// Error (other) "[verb] what: process 2 ..." if one of them is lost or has ended.
class Votes {
 public:
  // `verb` and `what` ("runs/7") begin the messages.
  Votes(const char* verb, std::string what);

  // Whether every process says yes.
  bool all(bool yes);
  // Error (inconsistent), on all processes, unless `mine` is the same on all: "[verb] what: process 0 has ..., process
  // 2 has ...", followed by `what_to_do`. `mine` is one line that can follow the word "has".
  void check_same(const std::string& mine, std::string_view what_to_do);
  // The texts of all processes, in their order; empty if they are the same.
  std::vector<std::string> texts(const std::string& mine);

 private:
  const char* verb_;
  std::string what_;
  int channel_;
};

}  // namespace tessera::detail
