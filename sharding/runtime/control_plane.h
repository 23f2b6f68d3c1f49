// ControlPlane: detects lost processes by heartbeats. World: the state shared by the joined processes of a program.
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

// Detects lost processes by heartbeats. Once a second, a thread of each process writes its state into the store: the
// collective and the user's line in which it waits or after which it computes, or its exit reason. A process whose wait
// fails reads all heartbeats, determines which process is lost, and stores that for the others to report.
class ControlPlane {
 public:
  using Duration = std::chrono::milliseconds;
  // Writes the first heartbeat of process `index` of `count`. `beating` and `looking` are two connections to the store.
  // `keeper` names the process that keeps it, for messages: "process 0".
  ControlPlane(Store beating, Store looking, int index, int count, Duration timeout, std::string keeper);
  ~ControlPlane() { stop(); }

  // Returns when is_done(longest) returns true. is_done waits at most `longest`, and throws if a connection breaks.
  // Throws lost_process, "[operation] file:line: mesh axis "data": process 2 ...", if a process is lost, has left, or
  // does not arrive in time. With waiting.longest = Duration::max(), members may have left.
  using IsDone = std::function<bool(Duration)>;
  void wait(const WaitContext& waiting, const std::vector<int>& members, const IsDone& is_done);
  // Watches a wait on a GPU, in which the waiting thread cannot read heartbeats. The heartbeat thread watches such
  // waits one after another, in the given order. It does not throw: it gives the program a moment to throw an Error
  // itself, then prints the Error and exits this process with status 1.
  void watch(const WaitContext& waiting, const std::vector<int>& members, IsDone is_done);

  // Throws if this process can no longer communicate: `other` in a child of fork, `stopped` after the program's end.
  void check_here(const WaitContext& waiting) const;
  // Reports that the program ends: normally if `exit_reason` is empty, else with that reason. After a failure, the
  // process that keeps the store waits until the others have read it.
  void leave(const std::string& exit_reason);
  // Stops the heartbeats. This process cannot communicate with the others afterwards.
  void stop();
  // Returns the processes that have not written a heartbeat yet.
  std::vector<int> missing() const;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Evidence : uint8_t { none, late, broken };  // the evidence that a process is lost
  // The last heartbeat of another process. Before the first one: number 0 and this process's start time.
  struct Beat : Heartbeat {
    Clock::time_point since{}, left{};  // when this process saw the heartbeat first, and saw the sender leave
  };
  // The current activity of this process.
  struct Standing {
    ProcessState state = ProcessState::computes;
    std::string words;  // the collective in which it waits, or the previous one
    Clock::time_point since = Clock::now();
    int64_t verbs = 0;  // waits for collectives so far; equal on processes at the same place
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

  std::mutex beating_mutex_;  // serializes heartbeats
  int64_t number_ = 0;

  mutable std::mutex mutex_;  // guards the members down to stopped_
  Standing standing_;
  std::deque<Watched> watched_;
  bool is_stopped_ = false;
  std::condition_variable stopped_;

  std::mutex looking_mutex_;  // guards beats_ and silent_since_
  std::vector<Beat> beats_;
  std::optional<Clock::time_point> silent_since_;  // since when the store does not answer
  std::atomic<bool> has_store_{true};

  std::thread thread_;
};

struct World {
  int index = 0, count = 1;
  int on_machine = 0;               // this process's number on its machine, from 0
  std::vector<int> machines = {0};  // one per process, numbered in the order of first appearance
  std::chrono::milliseconds timeout{};
  std::string address = {};  // this machine's address towards the store
  // Null in a program of one process:
  std::shared_ptr<const Store> store = {};
  std::shared_ptr<ControlPlane> control = {};
  std::shared_ptr<ProcessGroup> agreement = {};  // all processes, for consensus.h only
};

// Returns the World. Joins the processes first, if the program has not.
const World& world();

}  // namespace tessera::detail
