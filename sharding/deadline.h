// What ends a program that is stuck where no error can be raised: inside its engine's start and end.
#pragma once

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

// That this process has come so far, for those beside it of the same run, which `run` names on this host.
class Presence {
 public:
  Presence(std::string run, int index);
  ~Presence();
  // Seen on this host: 0, 1; stopped: 3; not seen: 2
  std::string words(int count) const;
  // Ends those beside it, of the same program and launcher, that are stopped: the launcher would wait for them for
  // ever.
  void end_stopped() const;
  // Another one beside it, of `count`, keeps these descriptors open until it ends, also when this process is no more.
  void lend(const std::vector<int>& descriptors, int count) const;

 private:
  std::string run_;
  int index_, fd_;
};

}  // namespace tessera::detail
