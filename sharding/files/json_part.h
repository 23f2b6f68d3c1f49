// JsonPart: a value of a JSON file, read as the type that it must have. An error names the value's place in the file.
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

// Costs two pointers: the place ("tokenizer.json.normalizer.type") is searched for only when an error names it. `value`
// and the values below it must outlive all parts made of them.
class JsonPart {
 public:
  // The whole of a file. Errors read "[verb] file.key.0: 5 given, expected ...", and end with `advice`
  // (" Was the file changed?"). `file` may be followed by a place: "model.safetensors: header".
  JsonPart(const boost::json::value& whole, std::string file, const char* verb, const char* advice = "");

  static constexpr size_t max_dims = 64;  // of a shape in a file: as many as LibTorch's reductions take

  const boost::json::value& value;

  std::string place() const;
  bool is_null() const { return value.is_null(); }
  // `has`: whether an object has the key with a value other than null. `names`: with any value.
  // Error (invalid_file): this is neither an object nor null.
  bool has(std::string_view key) const;
  bool names(std::string_view key) const;
  // Errors (invalid_file): it is missing, or of another type. With an `otherwise`, one that is missing or null is that.
  // at_or_null keeps `key` where it is missing.
  JsonPart at(std::string_view key) const;
  JsonPart at_or_null(std::string_view key) const;
  size_t length() const;  // of an array
  JsonPart item(size_t i) const;
  // Items of an array as JsonPart, and members of an object as pairs of std::string and JsonPart, one at a time.
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
  int64_t count() const;               // an integer from 0 on
  std::vector<int64_t> shape() const;  // at most max_dims of them
  uint64_t natural() const;
  double number() const;
  double number(std::string_view key, double otherwise) const;
  bool flag() const;
  bool flag(std::string_view key, bool otherwise) const;
  [[noreturn]] void refuse(const std::string& what) const;
  // "... given, expected a string."
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
  const boost::json::value* owner_ = nullptr;  // of a member that is missing: the object, and the key
  std::string_view missing_key_;
};

}  // namespace tessera::detail
