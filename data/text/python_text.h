// Functions of Python's str, on UTF-8.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data::jinja {

// Removes white space, or the characters in `dropped`, at the left, the right, or both ends.
std::string_view stripped(std::string_view text, std::optional<std::string_view> dropped, bool left, bool right);
// Returns the parts between separators, or between runs of white space; after `most` separators, the rest is one part.
std::vector<std::string_view> split(std::string_view text, std::optional<std::string_view> separator, int64_t most);
// Replaces at most `most` occurrences; below 0: all.
std::string replaced(std::string_view text, std::string_view from, std::string_view to, int64_t most);
std::vector<std::string_view> characters(std::string_view text);
// Returns json.dumps(text, ensure_ascii=False).
std::string json_string(std::string_view text);

}  // namespace tessera::data::jinja
