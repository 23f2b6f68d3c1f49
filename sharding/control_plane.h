// Where each process of the program is: heartbeats in the store that all share, read by whoever waits in vain.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sharding/process_group_gloo.h"

namespace tessera::detail {

// A thread of each process puts down once a second that it lives, and what it does: which operation of which line it
// waits in, or after which it computes; or its last words. Whoever fails reads them all, says who is lost, and leaves
// that for the others, who then say the same.
class ControlPlane {
 public:
  using Duration = std::chrono::milliseconds;
  // Puts down the first heartbeat of process `index` of `count`. `keeper` keeps the store: "process 0".
  ControlPlane(const Store& store, int index, int count, Duration timeout, std::string keeper);
  ~ControlPlane() { stop(); }

  // Until is_done(longest) is true, which waits so long at most, and throws in its engine's words. Error (other)
  // "[operation] file:line: mesh axis "data": process 2 ..." where somebody is lost, or a member has left or does not
  // come in time. Where waiting.longest is the longest there is, members may have left.
  using IsDone = std::function<bool(Duration)>;
  void wait(const Waiting& waiting, const std::vector<int>& members, const IsDone& is_done);

  // The same Error where this process cannot act with the others any more: it is a child of fork, or at its end.
  void check_here(const Waiting& waiting) const;

  // The same Error now, where somebody is lost or a member does not come: for those that wait without a wait().
  void look_around(const Waiting& waiting, const std::vector<int>& members, Duration waited);

  // The program ends, well or with these words; the one that keeps the store waits until the others have read them.
  void leave(const std::string& last_words);
  // No heartbeats any more, and nothing acts with the others.
  void stop();

  // Those that have not put down a heartbeat yet.
  std::vector<int> missing() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Sign : char { waits = 'w', computes = 'c', left = 'l', failed = 'f', ended = 'e' };
  enum class Evidence : uint8_t { none, late, broken };  // that somebody is lost
  struct Beat {
    int64_t number = -1, time = 0;  // milliseconds of its machine's clock
    Sign sign = Sign::computes;
    std::string words;
    Clock::time_point since{};  // when this process has seen that number first
  };
  // What this process does.
  struct Standing {
    Sign sign = Sign::computes;
    std::string words;  // the verb that it waits in, or has come from
    Clock::time_point since = Clock::now();
  };

  void run();
  void beat();
  void stand(Sign sign, std::string words);
  std::string look();
  std::optional<std::string> loss_of(const std::vector<int>& members, const Waiting& waiting, Evidence evidence,
                                     bool is_last_look);
  std::string who_is_elsewhere(const std::vector<int>& members, const Waiting& waiting, Duration waited);
  [[noreturn]] void diagnose(const Waiting& waiting, const std::vector<int>& members, Duration waited,
                             const char* engine_words);
  [[noreturn]] void fail_with(const Waiting& waiting, const std::string& loss);
  void linger();

  const Store beating_, looking_;  // a connection for each thread
  const int index_, count_;
  const Duration timeout_, period_;
  const std::string keeper_;
  const pid_t pid_;
  const std::thread::id computing_;  // that joined, and computes
  std::vector<std::string> keys_;

  mutable std::mutex standing_mutex_;  // of what follows
  Standing standing_;
  int64_t number_ = 0;
  bool is_stopped_ = false;
  std::condition_variable stopped_;

  std::mutex looking_mutex_;  // of what follows
  std::vector<Beat> beats_;
  std::atomic<bool> has_store_{true};

  std::thread thread_;
};

}  // namespace tessera::detail
