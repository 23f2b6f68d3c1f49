// Formats and parses heartbeats. Parsing is strict, because any process that reaches the store can write them.
#include "sharding/runtime/heartbeat.h"

#include <fmt/format.h>

#include <array>

#include "sharding/base/text.h"

namespace tessera::detail {
std::string_view cut_text(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xc0) == 0x80) --max_bytes;
  return text.substr(0, max_bytes);
}

std::string format_heartbeat(const Heartbeat& heartbeat) {
  const std::string text = fmt::format("{} {} {} {} {}", heartbeat.number, heartbeat.time, heartbeat.collectives,
                                       static_cast<char>(heartbeat.state), heartbeat.description);
  return std::string(cut_text(text));
}

std::optional<Heartbeat> parse_heartbeat(std::string_view text) {
  if (text.size() > max_message_bytes) return std::nullopt;
  std::array<std::string_view, 4> fields;
  for (std::string_view& field : fields) {
    const size_t end = text.find(' ');
    if (end == std::string_view::npos) return std::nullopt;
    field = text.substr(0, end);
    text.remove_prefix(end + 1);
  }
  const auto number = [&](size_t i, int64_t least) {
    const std::optional n = parse_number<int64_t>(fields[i]);
    return n && *n >= least ? n : std::nullopt;
  };
  const std::optional beat = number(0, 1), time = number(1, 0), collectives = number(2, 0);
  const bool has_state = fields[3].size() == 1 && std::string_view("wclfe").find(fields[3]) != std::string_view::npos;
  if (!beat || !time || !collectives || !has_state) return std::nullopt;
  return Heartbeat{*beat, *time, *collectives, static_cast<ProcessState>(fields[3][0]), std::string(text)};
}

}  // namespace tessera::detail
