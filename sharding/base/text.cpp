// Escaping of control characters, similar names and patterns of paths.
#include "sharding/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace tessera::detail {
namespace {

// Returns whether the text begins with U+200E, U+200F, U+2028 to U+202E or U+2066 to U+2069, which have three bytes in
// UTF-8.
bool is_line_or_direction(std::string_view text) {
  const auto last = static_cast<unsigned char>(text.size() < 3 ? 0 : text[2]);
  return (text.starts_with("\xe2\x80") && ((last >= 0xa8 && last <= 0xae) || last == 0x8e || last == 0x8f)) ||
         (text.starts_with("\xe2\x81") && last >= 0xa6 && last <= 0xa9);
}

}  // namespace

std::string escaped(std::string_view text, std::string_view kept) {
  std::string safe;
  safe.reserve(text.size());
  size_t rest = 0;  // bytes of a UTF-8 character that may follow
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool continues = byte >= 0x80 && byte < 0xc0 && rest > 0;
    rest = continues ? rest - 1 : byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc0 ? 1 : 0;
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0)  // UTF-8 of U+0080 to U+009F
      safe += fmt::format("\\u{:04x}", next), ++i, rest = 0;
    else if (byte == 0xd8 && next == 0x9c)
      safe += "\\u061c", ++i, rest = 0;
    else if ((byte < 0x20 && kept.find(text[i]) == kept.npos) || byte == 0x7f ||
             (byte >= 0x80 && byte < 0xa0 && !continues))
      safe += fmt::format("\\u{:04x}", byte);
    else if (byte == 0xe2 && is_line_or_direction(text.substr(i)))
      safe += fmt::format("\\u20{:02x}", (next & 1) << 6 | (text[i + 2] & 0x3f)), i += 2, rest = 0;
    else
      safe += text[i];
  }
  return safe;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j)
      diagonal = std::exchange(row[j + 1], std::min({row[j + 1] + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)}));
  }
  return row.back();
}

std::vector<std::string> closest_matches(std::string_view name, const std::vector<std::string>& among, size_t most) {
  std::vector<std::pair<size_t, size_t>> order;
  for (size_t i = 0; i < among.size(); ++i)
    if (!among[i].empty()) order.emplace_back(edit_distance(name, among[i]), i);
  most = std::min(most, order.size());
  std::partial_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(most), order.end());
  std::vector<std::string> nearest;
  for (size_t i = 0; i < most; ++i) nearest.push_back(among[order[i].second]);
  return nearest;
}

std::string nearest_words(std::string_view name, const std::vector<std::string>& among) {
  const std::vector<std::string> best = closest_matches(name, among, 1);
  if (best.empty() || edit_distance(name, best[0]) > 1 + name.size() / 4) return "";
  return fmt::format("; \"{}\" is the nearest", best[0]);
}

}  // namespace tessera::detail

namespace tessera {
namespace {

// Removes the first name from the dotted path and returns it. After the last one, the path is empty.
std::string_view take_name(std::string_view& path) {
  const size_t end = std::min(path.find('.'), path.size());
  const std::string_view name = path.substr(0, end);
  path = path.substr(std::min(end + 1, path.size()));
  return name;
}

bool name_matches(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return name.empty();
  if (pattern[0] != '*')
    return !name.empty() && name[0] == pattern[0] && name_matches(name.substr(1), pattern.substr(1));
  return name_matches(name, pattern.substr(1)) || (!name.empty() && name_matches(name.substr(1), pattern));
}

}  // namespace

bool path_matches(std::string_view path, std::string_view pattern) {
  if (pattern.empty()) return path.empty();
  std::string_view rest = pattern;
  const std::string_view first = take_name(rest);
  if (first == "**") {
    if (path_matches(path, rest)) return true;
    if (path.empty()) return false;
    take_name(path);
    return path_matches(path, pattern);
  }
  return !path.empty() && name_matches(take_name(path), first) && path_matches(path, rest);
}

}  // namespace tessera
