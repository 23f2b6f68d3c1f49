// JsonPart: the values of a JSON file, each with its place there, read as what they have to be.
#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::detail {

// A part of a file and its place there, for errors: "[Tokenizer] tokenizer.json.normalizer.type: 5 given, expected
// ...".
struct JsonPart {
  const boost::json::value& value;
  std::string place;
  const char* verb;
  const char* advice = "";  // what errors end with: " Was the file changed?"

  bool is_null() const { return value.is_null(); }
  // `has`: whether an object has the key with a value other than null. `names`: with any value.
  // Error (bad_file): this is neither an object nor null.
  bool has(std::string_view key) const;
  bool names(std::string_view key) const;
  // Errors (bad_file): it is missing, or of another type. With an `otherwise`, one that is missing or null is that.
  JsonPart at(std::string_view key) const;
  JsonPart at_or_null(std::string_view key) const;
  size_t length() const;  // of an array
  JsonPart item(size_t i) const;
  std::vector<JsonPart> items() const;
  std::vector<std::pair<std::string, JsonPart>> members() const;  // of an object
  std::string text() const;
  std::string text(std::string_view key, const std::string& otherwise) const;
  int64_t integer() const;
  int64_t integer(int64_t least, int64_t most) const;
  int64_t integer(std::string_view key, int64_t otherwise) const;
  int64_t count() const;  // an integer from 0 on
  uint64_t natural() const;
  double number() const;
  double number(std::string_view key, double otherwise) const;
  bool flag() const;
  bool flag(std::string_view key, bool otherwise) const;
  [[noreturn]] void refuse(const std::string& what) const;
  // "... given, expected a string."
  [[noreturn]] void refuse_type(std::string_view expected) const;
};

}  // namespace tessera::detail
