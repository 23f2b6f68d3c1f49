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

// One wait for the members of a group: who is lost, has left, or does not come.
class Lookout {
 public:
  using Clock = std::chrono::steady_clock;
  // For verb `number` of the group of this name, which lives longer.
  Lookout(const Joined& joined, const std::vector<int>& members, uint64_t group, uint64_t number)
      : joined_(&joined), members_(&members), group_(group), number_(number) {}

  // Error (other) "[operation] file:line: mesh axis "data": process 2 ..." if a member is lost, or has left a while
  // ago. Each time that another timeout has passed, asks who has not come to the verb.
  void look_around(const Waiting& waiting, Clock::duration waited);
  [[noreturn]] void fail_with(const Waiting& waiting, const Loss& loss) const;

 private:
  const Joined* joined_;
  const std::vector<int>* members_;
  uint64_t group_, number_;
  int asked_ = 0;
  Clock::time_point left_at_{};  // when a member was seen to have left; zero if none
};

// The waits of one group. Short ones spin, longer ones yield and then sleep, so that processes may share a core.
class Waits {
 public:
  // `kind` tells apart groups of the same members whose engines differ. Those of the background do not take time from
  // what is computed, and are not what this process is said to do.
  Waits(const Joined& joined, std::vector<int> members, std::string_view kind = "", bool in_background = false);
  // Errors as of Lookout, and (other) where this process is apart.
  void begin(const Waiting& waiting);
  void start(const std::vector<Parcel>& sends, const std::vector<Parcel>& receives, const Waiting& waiting);
  void until_done(const Waiting& waiting);
  // For the verb that was begun last.
  Lookout lookout() const { return {joined_, members_, group_, number_}; }

 private:
  using Clock = std::chrono::steady_clock;
  bool is_done(const Waiting& waiting);
  void pause(Clock::duration waited) const;
  [[noreturn]] void fail_as_the_engine_does(const Waiting& waiting, const Error& error) const;

  const Joined& joined_;
  std::vector<int> members_;
  bool in_background_;
  uint64_t group_, number_ = 0;  // the group's name, and how many verbs have begun
};

}  // namespace tessera::detail
