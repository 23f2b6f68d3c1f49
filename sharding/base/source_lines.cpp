// Files told apart by the ends of their paths.
#include "sharding/base/source_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tessera::detail {
namespace {

// The last `parts` parts of a path.
std::string tail(const std::string& file, int parts) {
  size_t begin = file.size();
  for (; parts > 0 && begin != std::string::npos && begin > 0; --parts) begin = file.rfind('/', begin - 1);
  return begin == std::string::npos || begin == 0 ? file : file.substr(begin + 1);
}

}  // namespace

std::map<std::string, std::string> short_names(const std::vector<std::string>& files) {
  const std::set<std::string> distinct(files.begin(), files.end());
  std::map<std::string, std::string> names;
  for (const std::string& file : distinct) {
    int parts = 1;
    const auto is_like = [&](const std::string& other) { return tail(other, parts) == tail(file, parts); };
    while (std::count_if(distinct.begin(), distinct.end(), is_like) > 1) ++parts;
    names[file] = tail(file, parts);
  }
  return names;
}

std::string line_name(const std::string& file, uint32_t line) {
  return file.empty() ? "an unknown line" : fmt::format("{}:{}", file, line);
}

std::string line_name(const std::source_location& where) { return line_name(tail(where.file_name(), 1), where.line()); }

}  // namespace tessera::detail
