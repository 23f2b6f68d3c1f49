// JsonPart: the values of a tokenizer.json, each with its place there.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::data::detail {

// A part of a tokenizer.json and its place there, for errors: "tokenizer.json: normalizer.normalizers.1".
struct JsonPart {
  const boost::json::value& value;
  std::string place;

  bool is_null() const { return value.is_null(); }
  // Errors (bad_file): it is missing, or of another type.
  JsonPart at(const std::string& key) const;
  std::vector<JsonPart> items() const;
  std::string text() const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  int64_t integer() const;
  bool has(const std::string& key) const;  // and it is not null
  [[noreturn]] void refuse(const std::string& what) const;
};

}  // namespace tessera::data::detail
