// Waiting for other processes, and the error when one of them does not come.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include "sharding/error.h"
#include "sharding/joined.h"
#include "sharding/process_group.h"

namespace tessera::detail {

// The waits of one group. Short ones spin, longer ones yield and then sleep, so that processes may share a core.
class Waits {
 public:
  // `kind` tells apart groups of the same members whose engines differ. Those of the background do not take time from
  // what is computed, and are not what this process is said to do.
  Waits(const Joined& joined, std::vector<int> members, std::string_view kind = "", bool in_background = false);
  // Error (other) "[operation] file:line: mesh axis "data": process 2 ..." if a member is lost already.
  void begin(const Waiting& waiting);
  void start(const std::vector<Parcel>& sends, const std::vector<Parcel>& receives, const Waiting& waiting);
  void until_done(const Waiting& waiting);

 private:
  using Clock = std::chrono::steady_clock;
  void look_around(const Waiting& waiting, Clock::duration waited);
  bool is_done(const Waiting& waiting);
  void pause(Clock::duration waited) const;
  [[noreturn]] void fail_with(const Waiting& waiting, const Loss& loss) const;
  [[noreturn]] void fail_as_the_engine_does(const Waiting& waiting, const Error& error);

  const Joined& joined_;
  std::vector<int> members_;
  bool in_background_;
  uint64_t group_, number_ = 0;  // the group's name, and how many verbs have begun
  int asked_ = 0;                // how often in this wait
  Clock::time_point left_at_{};  // when a member was seen to have left; zero if none
};

}  // namespace tessera::detail
