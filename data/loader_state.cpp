// States as JSON, and what changed between two chains.
#include "data/loader_state.h"

#include <algorithm>
#include <boost/json.hpp>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/files/json.h"

namespace tessera::data {

namespace json = boost::json;

namespace {

[[noreturn]] void bad_state(std::string_view text, const std::string& what) {
  fail(ErrorKind::bad_file, "from_json",
       "\"" + std::string(text.substr(0, 200)) + "\": " + what +
           R"(, expected a loader state: {"global_next_index": 96})");
}

// Reads the numbers of one JSON object, and knows which of its keys were asked for.
class Reader {
 public:
  Reader(const json::value& value, std::string_view text) : text_(text) {
    if (!value.is_object()) bad_state(text, "no object");
    object_ = value.as_object();
  }

  int64_t number(const char* key) {
    const json::value* value = take(key);
    if (!value || !value->is_int64() || value->as_int64() < 0)
      bad_state(text_, std::string(key) + " is not a whole number from 0 on");
    return value->as_int64();
  }

  const json::value* take(const char* key) {
    taken_.emplace_back(key);
    return object_.if_contains(key);
  }

  void end() const {
    for (const auto& member : object_) {
      if (std::find(taken_.begin(), taken_.end(), member.key()) == taken_.end())
        bad_state(text_, "\"" + std::string(member.key()) + "\" is no part of a loader state of this version");
    }
  }

 private:
  std::string_view text_;
  json::object object_;
  std::vector<std::string> taken_;
};

StreamMark mark_of(const json::value& value, std::string_view text) {
  if (value.is_null()) return StreamMark::elsewhere();
  Reader reader(value, text);
  StreamMark mark{reader.number("epoch"), reader.number("input"), reader.number("offset"), reader.number("since")};
  if (const json::value* parts = reader.take("parts")) {
    if (!parts->is_array()) bad_state(text, "parts is no array");
    for (const json::value& part : parts->as_array()) mark.parts.push_back(mark_of(part, text));
  }
  reader.end();
  return mark;
}

std::string json_of(const StreamMark& mark) {
  if (mark.is_elsewhere()) return "null";
  std::string text = "{\"epoch\": " + std::to_string(mark.epoch) + ", \"input\": " + std::to_string(mark.input) +
                     ", \"offset\": " + std::to_string(mark.offset) + ", \"since\": " + std::to_string(mark.since);
  for (const StreamMark& part : mark.parts)
    text += (&part == &mark.parts.front() ? ", \"parts\": [" : ", ") + json_of(part);
  return text + (mark.parts.empty() ? "}" : "]}");
}

std::vector<std::string> nodes_of(const std::string& description) {
  std::vector<std::string> words;
  for (size_t begin = 0;;) {
    const size_t end = description.find(" | ", begin);
    words.push_back(description.substr(begin, end - begin));
    if (end == std::string::npos) return words;
    begin = end + 3;
  }
}

}  // namespace

std::string LoaderState::to_json() const {
  std::string text = "{\"global_next_index\": " + std::to_string(global_next_index);
  if (stream) text += ", \"stream\": " + json_of(*stream);
  if (!dataset.empty()) text += ", \"dataset\": " + json::serialize(json::string(dataset));
  return text + "}";
}

LoaderState LoaderState::from_json(std::string_view text) {
  Reader reader(parse_json(text, "from_json", "loader state"), text);
  LoaderState state{reader.number("global_next_index")};
  if (const json::value* stream = reader.take("stream")) state.stream = mark_of(*stream, text);
  if (const json::value* dataset = reader.take("dataset")) {
    if (!dataset->is_string()) bad_state(text, "dataset is no string");
    state.dataset = std::string(dataset->as_string());
  }
  reader.end();
  return state;
}

LoaderState joined_state(const std::vector<LoaderState>& states) {
  if (states.empty()) fail(ErrorKind::bad_argument, "joined_state", "no states, expected one of each process");
  LoaderState joined = states.front();
  for (const LoaderState& state : states) {
    if (state.global_next_index != joined.global_next_index || state.dataset != joined.dataset ||
        state.stream.has_value() != joined.stream.has_value() ||
        (state.stream && state.stream->parts.size() != joined.stream->parts.size()))
      fail(ErrorKind::bad_argument, "joined_state",
           "states of different places or datasets: " + state.to_json() + " beside " + joined.to_json() +
               "; take them after the same batch");
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
  fail(
      ErrorKind::bad_argument, "restore",
      "the state was taken from another dataset: where it had \"" + *had + "\", this one has \"" + *has +
          "\". Restore it with the dataset it was taken from, or clear LoaderState::dataset to go on by number alone.");
}

}  // namespace tessera::data
