// The processes of this program, joined: what they share, and where each of them is.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "sharding/distributed/process_group_gloo.h"

namespace tessera::detail {

// Heartbeats. A thread of each process puts down in the store once a second that it lives, and what it does: which
// operation of which line it waits in, or after which it computes; or its last words. Whoever fails reads them all,
// says who is lost, and leaves that for the others, who then say the same.
class ControlPlane {
 public:
  using Duration = std::chrono::milliseconds;
  // Puts down the first heartbeat of process `index` of `count`. Two connections to the store, which `keeper` keeps:
  // "process 0".
  ControlPlane(Store beating, Store looking, int index, int count, Duration timeout, std::string keeper);
  ~ControlPlane() { stop(); }

  // Until is_done(longest) is true, which waits so long at most, and throws in its engine's words. Error (other)
  // "[operation] file:line: mesh axis "data": process 2 ..." where somebody is lost, or a member has left or does not
  // come in time. Where waiting.longest is the longest there is, members may have left.
  using IsDone = std::function<bool(Duration)>;
  void wait(const Waiting& waiting, const std::vector<int>& members, const IsDone& is_done);
  // For those who wait where nobody can look around, for a GPU: the thread does, behind what it was given before. In
  // place of the Error it gives the program a moment to raise one itself, says it, and ends this process with status 1.
  void watch(const Waiting& waiting, const std::vector<int>& members, IsDone is_done);

  // The same Error where this process cannot act with the others any more: it is a child of fork, or at its end.
  void check_here(const Waiting& waiting) const;
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
    int64_t number = -1;
    int64_t time = 0;   // milliseconds of its machine's clock
    int64_t verbs = 0;  // that it has begun to wait for
    Sign sign = Sign::computes;
    std::string words;
    Clock::time_point since{}, left{};  // when this process has seen that number first, and that it has left
  };
  // What this process does.
  struct Standing {
    Sign sign = Sign::computes;
    std::string words;  // the verb that it waits in, or has come from
    Clock::time_point since = Clock::now();
    int64_t verbs = 0;  // that it has begun to wait for: as many on all processes that have come to one place
  };
  struct Watched {
    Waiting waiting;
    const std::vector<int>* members;
    IsDone is_done;
    Clock::time_point since;
  };

  void run();
  void beat();
  void stand(Sign sign, std::string words);
  void look_after_watched();
  void look_around(const Waiting& waiting, const std::vector<int>& members, Duration waited);
  std::string look();
  std::optional<std::string> loss_of(const std::vector<int>& members, const Waiting& waiting, Evidence evidence,
                                     bool is_last_look);
  std::string who_is_elsewhere(const std::vector<int>& members, const Waiting& waiting);
  int64_t verbs() const;
  Duration longest_of(const Waiting& waiting) const;
  [[noreturn]] void diagnose(const Waiting& waiting, const std::vector<int>& members, const char* engine_words);
  [[noreturn]] void fail_with(const Waiting& waiting, const std::string& loss);
  void linger();

  const Store beating_, looking_;
  const int index_, count_;
  const Duration timeout_, period_;
  const std::string keeper_;
  const pid_t pid_ = ::getpid();
  const std::thread::id computing_ = std::this_thread::get_id();  // that joined, and computes
  std::vector<std::string> keys_;

  mutable std::mutex mutex_;  // of what follows
  Standing standing_;
  int64_t number_ = 0;
  std::deque<Watched> watched_;
  bool is_stopped_ = false;
  std::condition_variable stopped_;

  std::mutex looking_mutex_;  // of what follows
  std::vector<Beat> beats_;
  std::atomic<bool> has_store_{true};

  std::thread thread_;
};

struct World {
  int index = 0, count = 1;
  int on_machine = 0;  // which of those on its machine, from 0
  std::chrono::milliseconds timeout{};
  std::string address = {};  // of this machine, by which the store is reached
  // Null where this process is alone:
  std::shared_ptr<const Store> store = {};
  std::shared_ptr<ControlPlane> control = {};
  std::shared_ptr<ProcessGroup> agreement = {};  // of all, which no verb of theirs uses
};

// Joins first if the program has not.
const World& world();

}  // namespace tessera::detail
