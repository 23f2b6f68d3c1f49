// ControlPlane, World: what the joined processes of a program share, and how each learns that another is lost.
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

#include "sharding/runtime/heartbeat.h"
#include "sharding/runtime/process_group_gloo.h"

namespace tessera::detail {

// Heartbeats. Once a second a thread of each process writes into the store that the process lives, and what it does:
// the collective and the user's line that it waits in, or after which it computes; or its last words. A process whose
// wait fails reads them all, finds out who is lost, and writes that into the store for the others to report.
class ControlPlane {
 public:
  using Duration = std::chrono::milliseconds;
  // Writes the first heartbeat of process `index` of `count`. `beating` and `looking` are two connections to the store;
  // `keeper` is who keeps it, for messages: "process 0".
  ControlPlane(Store beating, Store looking, int index, int count, Duration timeout, std::string keeper);
  ~ControlPlane() { stop(); }

  // Returns when is_done(longest) is true; is_done waits at most `longest`, and throws in its own words if a
  // connection breaks. Error (other) "[operation] file:line: mesh axis "data": process 2 ..." if a process is lost, or
  // a member has left or does not come in time. With waiting.longest = Duration::max() members may have left.
  using IsDone = std::function<bool(Duration)>;
  void wait(const WaitContext& waiting, const std::vector<int>& members, const IsDone& is_done);
  // For waits on a GPU, in which the waiting thread cannot look at heartbeats: the heartbeat thread watches them, one
  // after another in the order given. In place of throwing the Error it gives the program a moment to throw one itself,
  // then prints it and ends this process with status 1.
  void watch(const WaitContext& waiting, const std::vector<int>& members, IsDone is_done);

  // Error (other) if this process cannot communicate any more: it is a child of fork, or at its end.
  void check_here(const WaitContext& waiting) const;
  // The program ends: well (`exit_reason` is empty), or with these words. In that case the process that keeps the store
  // waits until the others have read them.
  void leave(const std::string& exit_reason);
  // Ends the heartbeats; after it nothing communicates with the others.
  void stop();
  // The processes that have not written a heartbeat yet.
  std::vector<int> missing() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Evidence : uint8_t { none, late, broken };  // that a process is lost
  // The last heartbeat of another process; before the first, number 0 and this process's start.
  struct Beat : Heartbeat {
    Clock::time_point since{}, left{};  // when this process first saw it, and that the other has left
  };
  // What this process does.
  struct Standing {
    ProcessState state = ProcessState::computes;
    std::string words;  // the collective that it waits in, or has come from
    Clock::time_point since = Clock::now();
    int64_t verbs = 0;  // collectives that it has begun to wait for: equal on processes that have come to one place
  };
  struct Watched {
    WaitContext waiting;
    const std::vector<int>* members;
    IsDone is_done;
    Clock::time_point since;
  };

  void run();
  void beat();
  void stand(ProcessState state, std::string words);
  void look_after_watched();
  void look_around(const WaitContext& waiting, const std::vector<int>& members, Duration waited);
  std::string look();
  std::optional<std::string> loss_of(const std::vector<int>& members, const WaitContext& waiting, Evidence evidence,
                                     bool is_last_look);
  std::string who_is_elsewhere(const std::vector<int>& members, const WaitContext& waiting);
  Standing standing() const;
  Duration longest_of(const WaitContext& waiting) const;
  [[noreturn]] void diagnose(const WaitContext& waiting, const std::vector<int>& members, const char* words_of_failure);
  [[noreturn]] void fail_with(const WaitContext& waiting, const std::string& loss);
  void linger();

  const Store beating_, looking_;
  const int index_, count_;
  const Duration timeout_, period_;
  const std::string keeper_;
  const pid_t pid_ = ::getpid();
  const std::thread::id computing_ = std::this_thread::get_id();  // the thread that joined, and computes
  std::vector<std::string> keys_;

  std::mutex beating_mutex_;  // one heartbeat after another
  int64_t number_ = 0;

  mutable std::mutex mutex_;  // guards the members down to stopped_
  Standing standing_;
  std::deque<Watched> watched_;
  bool is_stopped_ = false;
  std::condition_variable stopped_;

  std::mutex looking_mutex_;  // guards the two below
  std::vector<Beat> beats_;
  std::optional<Clock::time_point> silent_since_;  // when the store was asked and did not answer
  std::atomic<bool> has_store_{true};

  std::thread thread_;
};

struct World {
  int index = 0, count = 1;
  int on_machine = 0;               // this process's number among those of its machine, from 0
  std::vector<int> machines = {0};  // of each process, numbered from 0 in the order of their first processes
  std::chrono::milliseconds timeout{};
  std::string address = {};  // of this machine, by which it reaches the store
  // Null where this process is alone:
  std::shared_ptr<const Store> store = {};
  std::shared_ptr<ControlPlane> control = {};
  std::shared_ptr<ProcessGroup> agreement = {};  // all processes, for consensus.h alone
};

// Joins the processes first if the program has not.
const World& world();

}  // namespace tessera::detail
