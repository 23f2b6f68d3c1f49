// split_text: the parts of a text between separators.
#pragma once

#include <string_view>
#include <vector>

namespace tessera::detail {

// Views into the text: "a,b" -> a and b, "" -> one empty part.
inline std::vector<std::string_view> split_text(std::string_view text, std::string_view separator) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find(separator)) != std::string_view::npos; text.remove_prefix(end + separator.size()))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

}  // namespace tessera::detail
