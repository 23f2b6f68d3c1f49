// Heartbeat: the state that a process reports to the others, and its text in the shared store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::detail {

// The maximum size of messages between processes, which fits a line and a file's path. Longer ones are truncated, so a
// process that reads the messages of all others needs little memory.
inline constexpr size_t max_message_bytes = 4096;

// Returns the text, truncated to `max_bytes` without splitting a UTF-8 character.
std::string_view cut_text(std::string_view text, size_t max_bytes = max_message_bytes);

enum class ProcessState : char { waits = 'w', computes = 'c', left = 'l', failed = 'f', ended = 'e' };

struct Heartbeat {
  int64_t number = 0;       // heartbeats of a process are numbered from 1
  int64_t time = 0;         // milliseconds since 1970, by the clock of its machine
  int64_t collectives = 0;  // waits for collectives so far
  ProcessState state = ProcessState::computes;
  std::string description = {};  // follows "process 2 ", for example "has been computing for 3 s"
};

// Returns "7 1700000000000 12 w has been waiting in [all_reduce] train.cpp:41 for 3 s": the fields, separated by one
// space. A description that exceeds `max_message_bytes` is truncated.
std::string format_heartbeat(const Heartbeat& heartbeat);
// Returns the heartbeat in `text`; std::nullopt unless `text` has exactly that form. Rejects longer texts, negative or
// out-of-range numbers, and unknown states.
std::optional<Heartbeat> parse_heartbeat(std::string_view text);

}  // namespace tessera::detail
