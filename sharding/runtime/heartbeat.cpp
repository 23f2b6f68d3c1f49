// Heartbeats as texts, which are parsed strictly: any process that reaches the store can write them.
#include "sharding/runtime/heartbeat.h"

#include <fmt/format.h>

#include "sharding/base/text.h"

namespace tessera::detail {
namespace {

// The part before the next space, which is removed with it; nullopt without a space.
std::optional<std::string_view> take_field(std::string_view& text) {
  const size_t end = text.find(' ');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view field = text.substr(0, end);
  text.remove_prefix(end + 1);
  return field;
}

std::optional<int64_t> take_number(std::string_view& text, int64_t least) {
  const std::optional field = take_field(text);
  const std::optional number = field ? parse_number<int64_t>(*field) : std::nullopt;
  return number && *number >= least ? number : std::nullopt;
}

std::optional<ProcessState> take_state(std::string_view& text) {
  constexpr std::string_view states = "wclfe";
  const std::optional field = take_field(text);
  if (!field || field->size() != 1 || states.find(field->front()) == std::string_view::npos) return std::nullopt;
  return static_cast<ProcessState>(field->front());
}

}  // namespace

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
  const std::optional number = take_number(text, 1), time = take_number(text, 0), collectives = take_number(text, 0);
  const std::optional state = take_state(text);
  if (!number || !time || !collectives || !state) return std::nullopt;
  return Heartbeat{*number, *time, *collectives, *state, std::string(text)};
}

}  // namespace tessera::detail
