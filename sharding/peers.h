// Who of the other processes is alive: heartbeats and last words over sockets of their own, beside any engine.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "sharding/sockets.h"

namespace tessera::detail {

// A process that the program has lost, -1 where nobody can tell which: "process 2 " + what.
struct Loss {
  int process;
  std::string what;
};
// One that has ended its program well, while others wait for it.
Loss left_early(int process);

// A thread of each process talks to process 0, which tells all others what it hears. So a process that is killed,
// crashes, raises or ends with a failure is known to all within milliseconds (its connection closes), and one that is
// stopped, or whose machine cannot be reached, when it has been silent for 0.8 of the timeout; process 0 included. The
// first loss that is known is the one that all are told, and none is forgotten. The thread never touches the engine. A
// process that has not ended by itself a timeout after a loss is ended by its thread.
class Peers {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = std::chrono::milliseconds;

  // Process 0 of `count`; the others join at address(), which they must be told.
  Peers(int count, Duration timeout);
  // Another one. Error (other) if process 0 is at none of its addresses; where somebody takes the connection, it asks
  // until it is answered.
  Peers(int index, int count, const std::string& address, Duration timeout, Duration start_timeout);
  ~Peers();
  const std::string& address() const { return address_; }
  // Known to all, from process 0.
  bool are_all_here() const { return here_ == count_ - 1; }

  // A verb of a group begins, `number` counted by the group from 1; its words are for the others' messages; without
  // them it is in the background.
  void begin(uint64_t group, uint64_t number, std::string words);
  void end();

  // Whether a process is lost or has left; cheap.
  bool has_news() const { return news_.load(std::memory_order_acquire); }
  std::optional<Loss> loss() const;
  bool has_left(int process) const;

  // This process has waited too long for these members: if one of them has not begun the verb, it is lost a moment
  // later.
  void ask_who_is_missing(uint64_t group, uint64_t number, const std::vector<int>& members);

  // The vote of this process, a line of text; `number` is counted by the box from 1. Process 0 counts. A process that
  // has not voted some timeouts after the first is lost: it may be long at a disk.
  void vote(uint64_t box, uint64_t number, const std::string& text);
  // Once all have voted: "" where all texts are the same, else "process 0 has TEXT, process 2 has TEXT". It is given
  // out once. Waits for at most so long.
  std::optional<std::string> verdict(uint64_t box, uint64_t number, Duration longest);

  // What this process has found out by itself, for all; the first loss counts.
  void report(const Loss& loss);

  // Last words: the program ends. A status other than 0 is a loss for all others.
  void leave(int status, const std::string& words);
  // Nobody is watched any more; all have left.
  void stop();
  // In a child of fork: lets go of the connections, which would seem open as long as the child lives.
  void close_in_child();

 private:
  struct Link {
    LineSocket socket;
    int process = -1;
    bool is_joined = false;  // this process has answered on it, and uses no other
    int pid = 0;
    std::string host;  // equal where a pid means the same
    Clock::time_point heard{};
  };
  struct Question {
    std::string text;
    std::vector<int> members;
    Clock::time_point asked;
    std::map<int, std::pair<uint64_t, std::string>> begun;  // how many each has begun, and what it does
    uint64_t number;
  };

  struct Tally {
    uint64_t box, number;
    Clock::time_point since;
    std::map<int, std::string> texts;
  };

  void join(int fd, Duration longest);
  void run();
  void serve();
  void welcome_new();
  void read(Link& link);
  void hear(Link& link, const std::string& line);
  void answer(std::string_view question);
  void count_answer(int process, const std::string& text);
  void ask(const std::string& text);
  void decide(Clock::time_point now);
  void count_vote(int process, const std::string& line);
  void settle(const std::string& line);
  void watch_votes(Clock::time_point now);
  void watch_silence(Clock::time_point now);
  void end_if_stuck(Clock::time_point now);
  void lose(int process, std::string what);
  void set_arrived(int process);
  void set_left(int process);
  void tell(const std::string& line);
  void post(std::string line);

  const int index_, count_;
  const Duration timeout_, period_;
  std::string address_, token_;
  int listener_ = -1, wake_ = -1;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<Question> questions_;
  std::vector<Tally> tallies_;
  Clock::time_point turned_{}, beaten_{}, known_{};

  mutable std::mutex mutex_;  // of what follows
  std::optional<Loss> loss_;
  std::vector<char> left_, arrived_;
  std::map<uint64_t, uint64_t> begun_;
  std::string doing_;
  std::vector<std::string> posted_;
  std::map<std::pair<uint64_t, uint64_t>, std::string> verdicts_;
  std::condition_variable settled_;

  std::atomic<int> here_{0};
  std::atomic<bool> news_{false}, stopping_{false};
  std::thread thread_;
};

}  // namespace tessera::detail
