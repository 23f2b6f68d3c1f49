// JsonPart: the values of a JSON file, each with its place there, read as what they have to be.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::detail {

// A part of a file and its place there, for errors: "[Tokenizer] tokenizer.json: normalizer.normalizers.1: ...".
struct JsonPart {
  const boost::json::value& value;
  std::string place;
  const char* verb;

  bool is_null() const { return value.is_null(); }
  bool has(const std::string& key) const;  // and it is not null
  // Errors (bad_file): it is missing, or of another type. With an `otherwise`, one that is missing or null is that.
  JsonPart at(const std::string& key) const;
  std::vector<JsonPart> items() const;
  std::string text() const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  int64_t integer() const;
  int64_t integer(const std::string& key, int64_t otherwise) const;
  double number() const;
  double number(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  [[noreturn]] void refuse(const std::string& what) const;
};

}  // namespace tessera::detail
