// json_lines: the records of JSONL files, as JSON values or as your own structs.
#pragma once

#include <boost/json/value.hpp>
#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "data/sources/text_source.h"
#include "nn/tree/tree.h"
#include "sharding/files/json_part.h"

namespace tessera::data {

namespace detail {

boost::json::value parse_line(const std::string& text, const std::string& where);
std::string text_in_line(const std::string& text, const std::string& field, const std::string& where);

using tessera::detail::JsonPart;

template <class T>
void read_json(const JsonPart& json, T& out);

// Throws Error (invalid_file) if it is larger than `max` or not a number.
double number_up_to(double max, const JsonPart& json);

template <class T>
void read_number(const JsonPart& json, T& out) {
  if constexpr (std::same_as<T, bool>)
    out = json.flag();
  else if constexpr (std::floating_point<T>)
    out = static_cast<T>(number_up_to(std::numeric_limits<T>::max(), json));
  else if constexpr (std::unsigned_integral<T> && sizeof(T) == sizeof(uint64_t))
    out = json.natural();
  else
    out = static_cast<T>(json.integer(static_cast<int64_t>(std::numeric_limits<T>::min()),
                                      static_cast<int64_t>(std::numeric_limits<T>::max())));
}

template <class T>
void read_json(const JsonPart& json, T& out) {
  if constexpr (std::is_arithmetic_v<T>) {
    read_number(json, out);
  } else if constexpr (std::same_as<T, std::string>) {
    out = json.text();
  } else if constexpr (nn::detail::is_optional<T>) {
    if (!json.is_null()) read_json(json, out.emplace());
  } else if constexpr (nn::detail::is_specialization<T, std::vector>) {
    for (const JsonPart& part : json.items()) {  // grows by item: an invalid first item takes no memory
      typename T::value_type item{};
      read_json(part, item);
      out.push_back(std::move(item));
    }
  } else {
    boost::pfr::for_each_field(out, [&](auto& field, auto number) -> void {
      constexpr bool may_be_missing = nn::detail::is_optional<std::decay_t<decltype(field)>>;
      const std::string_view name = nn::detail::field_names<T>[number];
      read_json(may_be_missing ? json.at_or_null(name) : json.at(name), field);
    });
  }
}

struct ParsedLines {
  LineSource lines;
  int64_t size() const { return lines.size(); }
  std::string describe() const { return lines.describe() + " | json"; }
  boost::json::value operator[](int64_t index) const { return parse_line(lines[index], lines.where(index)); }
};

struct TextLines {
  LineSource lines;
  std::string field;
  int64_t size() const { return lines.size(); }
  std::string describe() const { return lines.describe() + " | json " + field; }
  std::string operator[](int64_t index) const { return text_in_line(lines[index], field, lines.where(index)); }
};

template <class Record>
struct JsonRecords {
  LineSource lines;
  int64_t size() const { return lines.size(); }
  std::string describe() const { return lines.describe() + " | json"; }
  Record operator[](int64_t index) const {
    const std::string where = lines.where(index);
    const boost::json::value value = parse_line(lines[index], where);
    Record record{};
    read_json(JsonPart{value, where + ": record", "json_lines"}, record);
    return record;
  }
};

}  // namespace detail

// Returns the records of JSONL files, one per line (https://jsonlines.org), each read when it is requested:
//
//   struct Example { std::string text;  std::vector<int32_t> labels;  std::optional<double> weight; };
//   auto examples = json_lines<Example>({"train.jsonl"});
//
// A struct's fields are the object's members of the same name: bool, numbers, strings, vectors, structs, and optionals.
// Only optionals may be missing or null; other members of the object are ignored. Without a type the records are
// boost::json::value (include <boost/json.hpp> to work with them). Empty lines at the end of a file are ignored. The
// literals NaN, Infinity and -Infinity are accepted, but not as the number of a struct's field.
//
// Errors (invalid_file), which name the file, the line and the field
//   an empty line before the last record
//   malformed JSON (RFC 8259), including a duplicate key
//   a missing field, a wrong type, a number out of range
//   bytes that are not UTF-8
// Other errors: as LineSource::open.
template <class Record>
auto json_lines(const std::vector<std::string>& paths, const TextOptions& options = {}) {
  return from_source(detail::JsonRecords<Record>{LineSource::open(paths, options).without_empty_ends()});
}
inline auto json_lines(const std::vector<std::string>& paths, const TextOptions& options = {}) {
  return from_source(detail::ParsedLines{LineSource::open(paths, options).without_empty_ends()});
}

// Returns one string of each record: the member `field`. Name a nested member with its path: "meta.text".
// Errors: those of json_lines; the field is missing, null or not a string (invalid_file).
inline auto json_texts(const std::vector<std::string>& paths, const std::string& field = "text",
                       const TextOptions& options = {}) {
  return from_source(detail::TextLines{LineSource::open(paths, options).without_empty_ends(), field});
}

}  // namespace tessera::data
