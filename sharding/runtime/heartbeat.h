// Heartbeat: what a process reports of itself to the others, and its text in the store that they share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::detail {

// Messages between processes are cut to this size. It is that of a line and a file's path, so a process that reads
// those of all others needs little memory.
inline constexpr size_t max_message_bytes = 4096;

// The text, without what exceeds `max_bytes`; a character of UTF-8 is not split.
std::string_view cut_text(std::string_view text, size_t max_bytes = max_message_bytes);

enum class ProcessState : char { waits = 'w', computes = 'c', left = 'l', failed = 'f', ended = 'e' };

struct Heartbeat {
  int64_t number = 0;       // the process's heartbeats are numbered from 1
  int64_t time = 0;         // milliseconds since 1970, by the clock of the process's machine
  int64_t collectives = 0;  // that the process has begun to wait for
  ProcessState state = ProcessState::computes;
  std::string description = {};  // follows "process 2 ", for example "has been computing for 3 s"
};

// Returns "7 1700000000000 12 w has been waiting in [all_reduce] train.cpp:41 for 3 s": the fields, separated by one
// space, of at most `max_message_bytes`; a longer description is cut.
std::string format_heartbeat(const Heartbeat& heartbeat);
// Returns the heartbeat that `text` describes. Returns nullopt if `text` is not exactly of that form: a longer text, a
// number that is negative or out of range, an unknown state.
std::optional<Heartbeat> parse_heartbeat(std::string_view text);

}  // namespace tessera::detail
