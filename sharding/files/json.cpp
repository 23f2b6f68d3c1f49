// Parses JSON strictly: rejects duplicate keys, and reports the position of errors.
#include "sharding/files/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <set>
#include <string>
#include <vector>

#include "sharding/base/fail.h"
#include "sharding/files/file.h"

namespace tessera {
namespace {

namespace json = boost::json;
using boost::system::error_code;
using json::string_view;

// A handler of parse events that stores only the keys of open objects.
struct KeyChecker {
  static constexpr size_t max_object_size = static_cast<size_t>(-1);
  static constexpr size_t max_array_size = static_cast<size_t>(-1);
  static constexpr size_t max_key_size = static_cast<size_t>(-1);
  static constexpr size_t max_string_size = static_cast<size_t>(-1);

  std::vector<std::set<std::string>> open_objects;
  std::string key;
  bool repeated = false;

  bool on_object_begin(error_code&) {
    open_objects.emplace_back();
    return true;
  }
  bool on_object_end(size_t, error_code&) {
    open_objects.pop_back();
    return true;
  }
  bool on_key_part(string_view part, size_t, error_code&) {
    key.append(part.data(), part.size());
    return true;
  }
  bool on_key(string_view last_part, size_t, error_code& ec) {
    key.append(last_part.data(), last_part.size());
    if (!open_objects.back().insert(key).second) {
      repeated = true;
      ec = json::error::syntax;
      return false;
    }
    key.clear();
    return true;
  }

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(size_t, error_code&) { return true; }
  bool on_string_part(string_view, size_t, error_code&) { return true; }
  bool on_string(string_view, size_t, error_code&) { return true; }
  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(int64_t, string_view, error_code&) { return true; }
  bool on_uint64(uint64_t, string_view, error_code&) { return true; }
  bool on_double(double, string_view, error_code&) { return true; }
  bool on_bool(bool, error_code&) { return true; }
  bool on_null(error_code&) { return true; }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }
};

json::parse_options options_of(bool allow_nan) {
  json::parse_options options;
  options.numbers = json::number_precision::precise;
  options.allow_infinity_and_nan = allow_nan;
  return options;
}

std::string position(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t line_start = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {}", line, offset - line_start + 1);
}

std::string explain(const KeyChecker& checker, const error_code& ec) {
  if (checker.repeated) return fmt::format("the key \"{}\" occurs twice in one object. Keep one of them.", checker.key);
  if (ec == json::error::incomplete) return "the text ends in the middle of a value. Is the file complete?";
  if (ec == json::error::extra_data) return "something follows the value. Remove it.";
  if (ec == json::error::too_deep) return "more than 32 levels of nesting. Expected fewer.";
  return fmt::format("this is not JSON ({}). Fix the text there.", ec.message());
}

void check(std::string_view text, std::string_view verb, std::string_view name, const json::parse_options& options) {
  json::basic_parser<KeyChecker> parser(options);
  error_code ec;
  const size_t parsed = parser.write_some(false, text.data(), text.size(), ec);
  if (!ec && parsed < text.size()) ec = json::error::extra_data;
  if (ec && text.starts_with(git_lfs_begin)) fail(ErrorKind::invalid_file, verb, "{}: {}", name, git_lfs_advice);
  if (ec)
    fail(ErrorKind::invalid_file, verb, "{}: {}: {}", name, position(text, parsed), explain(parser.handler(), ec));
}

}  // namespace

json::value parse_json(std::string_view text, std::string_view verb, std::string_view name, bool allow_nan) {
  const json::parse_options options = options_of(allow_nan);
  check(text, verb, name, options);
  return json::parse(text, {}, options);
}

json::value parse_json_file(const std::filesystem::path& path) {
  return parse_json(read_text(path, "json"), "json", path.string());
}

}  // namespace tessera
