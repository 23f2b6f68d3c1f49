// JsonPart: a value of a JSON file, read as an expected type. Errors name the value's place in the file.
#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::detail {

// A value of a JSON file. Costs two pointers: the place ("tokenizer.json.normalizer.type") is determined only for an
// error. `value` and the values below it must outlive all JsonParts made from them.
class JsonPart {
 public:
  // Makes the JsonPart of a file's root value. Errors have the form "[verb] file.key.0: 5 given, expected ...",
  // followed by `advice`, such as " Was the file changed?". `file` may contain a place: "model.safetensors: header".
  JsonPart(const boost::json::value& whole, std::string file, const char* verb, const char* advice = "");

  static constexpr size_t max_dims = 64;  // most dimensions of a shape in a file: the limit of LibTorch's reductions

  const boost::json::value& value;

  std::string place() const;
  bool is_null() const { return value.is_null(); }
  // has() returns whether an object has the key with a value other than null; names(), with any value. Throw
  // invalid_file if this is neither an object nor null.
  bool has(std::string_view key) const;
  bool names(std::string_view key) const;
  // The following functions throw invalid_file if the value is missing or has the wrong type. Those with an `otherwise`
  // return it if the key is missing or null. at_or_null returns a null part if `key` is missing, which remembers `key`
  // for errors.
  JsonPart at(std::string_view key) const;
  JsonPart at_or_null(std::string_view key) const;
  size_t length() const;  // length of an array
  JsonPart item(size_t i) const;
  // Return the items of an array as JsonPart, and the members of an object as pairs of std::string and JsonPart, one at
  // a time.
  auto items() const {
    return std::views::iota(size_t{0}, length()) |
           std::views::transform([part = *this](size_t i) { return part.item(i); });
  }
  auto members() const {
    return std::views::transform(object(), [part = *this](const boost::json::key_value_pair& member) {
      return std::pair(std::string(member.key()), part.below(member.value()));
    });
  }
  std::string text() const;
  std::string text(std::string_view key, const std::string& otherwise) const;
  int64_t integer() const;
  int64_t integer(int64_t least, int64_t most) const;
  int64_t integer(std::string_view key, int64_t otherwise) const;
  int64_t count() const;               // an integer of at least 0
  std::vector<int64_t> shape() const;  // at most max_dims sizes
  uint64_t natural() const;
  double number() const;
  double number(std::string_view key, double otherwise) const;
  bool flag() const;
  bool flag(std::string_view key, bool otherwise) const;
  [[noreturn]] void refuse(const std::string& what) const;
  // Throws "... given, expected a string."
  [[noreturn]] void refuse_type(std::string_view expected) const;

 private:
  struct File {
    const boost::json::value& whole;
    std::string name;
    const char *verb, *advice;
  };
  JsonPart(const boost::json::value& part, std::shared_ptr<const File> file) : value(part), file_(std::move(file)) {}

  JsonPart below(const boost::json::value& part) const { return {part, file_}; }
  const boost::json::object& object() const;

  std::shared_ptr<const File> file_;
  const boost::json::value* owner_ = nullptr;  // for a missing member: its object and key
  std::string_view missing_key_;
};

}  // namespace tessera::detail
