// Converts states to JSON and back, joins them, and compares dataset descriptions.
#include "data/loader/loader_state.h"

#include <algorithm>
#include <boost/json.hpp>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "sharding/base/fail.h"
#include "sharding/files/json.h"
#include "sharding/files/json_part.h"

namespace tessera::data {

namespace json = boost::json;
using tessera::detail::JsonPart;

namespace {

// Throws if the part has a member that is not in `known`.
void check_members(const JsonPart& part, std::initializer_list<std::string_view> known) {
  for (const auto& [key, value] : part.members())
    if (std::find(known.begin(), known.end(), key) == known.end())
      part.refuse("\"" + key + "\" is not a field of a loader state of this version.");
}

StreamPosition position_of(const JsonPart& part) {
  if (part.is_null()) return StreamPosition::elsewhere();
  check_members(part, {"epoch", "input", "offset", "since", "parts"});
  StreamPosition position{part.at("epoch").count(), part.at("input").count(), part.at("offset").count(),
                          part.at("since").count()};
  if (part.value.as_object().contains("parts"))
    for (const JsonPart& one : part.at("parts").items()) position.parts.push_back(position_of(one));
  return position;
}

std::string json_of(const StreamPosition& position) {
  if (position.is_elsewhere()) return "null";
  std::string text =
      "{\"epoch\": " + std::to_string(position.epoch) + ", \"input\": " + std::to_string(position.input) +
      ", \"offset\": " + std::to_string(position.offset) + ", \"since\": " + std::to_string(position.since);
  for (const StreamPosition& part : position.parts)
    text += (&part == &position.parts.front() ? ", \"parts\": [" : ", ") + json_of(part);
  return text + (position.parts.empty() ? "}" : "]}");
}

std::vector<std::string> nodes_of(const std::string& description) {
  std::vector<std::string> nodes;
  for (size_t begin = 0;;) {
    const size_t end = description.find(" | ", begin);
    nodes.push_back(description.substr(begin, end - begin));
    if (end == std::string::npos) return nodes;
    begin = end + 3;
  }
}

}  // namespace

std::string LoaderState::to_json() const {
  std::string text = fmt::format(R"({{"global_next_index": {})", global_next_index);
  if (stream) text += ", \"stream\": " + json_of(*stream);
  if (!dataset.empty()) text += ", \"dataset\": " + json::serialize(json::string(dataset));
  return text + "}";
}

LoaderState LoaderState::from_json(std::string_view text) {
  const json::value value = parse_json(text, "from_json", "loader state");
  const JsonPart whole{value, "loader state", "from_json",
                       R"( Expected {"global_next_index": 96}, or what to_json gave.)"};
  check_members(whole, {"global_next_index", "stream", "dataset"});
  LoaderState state{whole.at("global_next_index").count()};
  if (value.as_object().contains("stream")) state.stream = position_of(whole.at("stream"));
  if (value.as_object().contains("dataset")) state.dataset = whole.at("dataset").text();
  return state;
}

LoaderState joined_state(const std::vector<LoaderState>& states) {
  if (states.empty()) fail(ErrorKind::invalid_argument, "joined_state", "no states, expected one of each process");
  LoaderState joined = states.front();
  for (const LoaderState& state : states) {
    if (state.global_next_index != joined.global_next_index || state.dataset != joined.dataset ||
        state.stream.has_value() != joined.stream.has_value() ||
        (state.stream && state.stream->parts.size() != joined.stream->parts.size()))
      fail(ErrorKind::invalid_argument, "joined_state",
           "states of different positions or datasets: {} and {}; take them after the same batch", state.to_json(),
           joined.to_json());
    for (size_t i = 0; state.stream && i < state.stream->parts.size(); ++i)
      if (joined.stream->parts[i].is_elsewhere()) joined.stream->parts[i] = state.stream->parts[i];
  }
  return joined;
}

void detail::check_same_dataset(const std::string& saved, const std::string& now) {
  if (saved.empty() || now.empty() || saved == now) return;
  auto was = nodes_of(saved), is = nodes_of(now);
  was.resize(std::max(was.size(), is.size()), "nothing more");
  is.resize(was.size(), "nothing more");
  const auto [had, has] = std::mismatch(was.begin(), was.end(), is.begin());
  fail(ErrorKind::invalid_argument, "restore",
       "the state was taken from another dataset: where it had \"{}\", this one has \"{}\". Restore it with the "
       "dataset it was taken from, or clear LoaderState::dataset to continue by number alone.",
       *had, *has);
}

}  // namespace tessera::data
