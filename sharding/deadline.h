// What ends a program that is stuck where no error can be raised: inside its engine's start and end.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tessera::detail {

// If it is not destroyed in time, prints words(), and a little later, when others have seen this process once more,
// calls last() and ends it with status 1.
class Deadline {
 public:
  Deadline(std::chrono::milliseconds longest, std::function<std::string()> words, std::function<void()> last = {});
  ~Deadline();

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool is_done_ = false;
  std::thread thread_;
};

// The process that has started those of this run on this host: above it and the programs that wrap it.
pid_t launcher_pid();

// That this process has come so far, for those beside it of the same run, which `run` names on this host.
class Presence {
 public:
  Presence(std::string run, int index, bool has_launcher);
  ~Presence();
  // Seen on this host: 0, 1; stopped: 3; not seen: 2
  std::string words(int count) const;
  // Ends those of this run, of `count`, that are beside it and stopped, which their launcher would wait for for ever:
  // those that have come so far, and those of the same program that have the same launcher, or the same meeting place.
  void end_stopped(int count) const;
  // Another one beside it, of `count`, keeps these descriptors open until it ends, also when this process is no more.
  void lend(const std::vector<int>& descriptors, int count) const;

 private:
  std::string run_;
  int index_, fd_;
  bool has_launcher_;
};

}  // namespace tessera::detail
