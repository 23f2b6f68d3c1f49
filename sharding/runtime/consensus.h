// Consensus: all processes of the program compare texts and votes, over a dedicated process group.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::detail {

struct WaitContext;

// Compares this process's text, line by line, with the texts of all other processes, which must call this at the same
// place. If they differ, throws inconsistent on all processes. The message begins with `verb` and shows the first line
// that differs between two processes, up to max_message_bytes of each. Costs 16 bytes from each process to each. Does
// nothing if `processes` is 1.
void check_agreement(const char* verb, int processes, const std::string& text);
// Compares the texts of these processes only, in ascending order, which include this one. Other processes need not call
// it.
void check_agreement(const WaitContext& waiting, const std::vector<int>& processes, const std::string& text);

// Return the texts, and the numbers, of all processes, in their order. All processes call them at the same place. A
// text has no zero byte. The message of an Error begins with `verb`.
// Errors
//   lost_process: another process is lost
//   other: a process sends a text of more than 64 MiB
std::vector<std::string> gather_texts(const char* verb, const std::string& mine);
std::vector<int64_t> gather_numbers(const char* verb, int64_t mine);

// Waits until all processes have reached the program's end. Throws lost_process if one of them is lost before.
void wait_for_the_end();

// Votes among all processes. Each process constructs its Votes in the same order, all on one thread. On one object, all
// processes vote in the same order, from one thread at a time. That may be any thread, for example one that writes
// files. With a single process, its own vote decides.
//
// A vote waits until all processes have voted, for up to eleven timeouts, because a process may wait for a disk. Throws
// lost_process, "[verb] what: process 2 ...", if a process is lost or has ended.
class Votes {
 public:
  // Messages begin with `verb` and `what` ("runs/7").
  Votes(const char* verb, std::string what);

  // Returns whether all processes vote yes.
  bool all(bool yes);
  // Throws inconsistent on all processes if `mine` differs: "[verb] what: process 0 has ..., process 2 has ...",
  // followed by `what_to_do`. `mine` must be one line that can follow "has".
  void check_same(const std::string& mine, std::string_view what_to_do);
  // Returns the texts of all processes, in their order; empty if they are equal.
  std::vector<std::string> texts(const std::string& mine);

 private:
  const char* verb_;
  std::string what_;
  int channel_;
};

}  // namespace tessera::detail
