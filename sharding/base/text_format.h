// How reports lay out their text: the columns of a table, and numbers.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sharding/base/escape.h"

namespace tessera::detail {

using Cells = std::vector<std::string>;  // a row of a table

// Cells may be names from files: their control characters are written out.
inline std::vector<Cells> escaped(std::vector<Cells> rows) {
  for (Cells& row : rows)
    for (std::string& cell : row) cell = escaped(cell, "");
  return rows;
}

// A line for each row, with the columns of `line`: '<' is a cell padded on the right, '>' one padded on the left, and
// other characters are copied: "<  >  >". A '<' at the end of `line` is not padded. A column is as wide as its widest
// cell, but at most max_width: a single long name must not make every line as long.
inline std::string text_table(const std::vector<Cells>& given, std::string_view line) {
  constexpr size_t max_width = 200;
  const std::vector<Cells> rows = escaped(given);
  std::vector<size_t> widths(line.size());
  for (const Cells& row : rows)
    for (size_t c = 0; c + line.ends_with('<') < row.size(); ++c)
      widths[c] = std::min(max_width, std::max(widths[c], row[c].size()));
  std::string text;
  for (const Cells& row : rows) {
    auto cell = row.begin();
    auto width = widths.begin();
    for (const char mark : line)
      text += mark == '<'   ? fmt::format("{:<{}}", *cell++, *width++)
              : mark == '>' ? fmt::format("{:>{}}", *cell++, *width++)
                            : std::string(1, mark);
    text += '\n';
  }
  return text;
}

// The same rows as a table of Markdown, the first as its head. Only the marks of `line` count.
inline std::string markdown_table(const std::vector<Cells>& given, std::string_view line) {
  const std::vector<Cells> rows = escaped(given);
  std::string text, rule;
  for (const char mark : line)
    if (mark == '<' || mark == '>') rule += mark == '<' ? "|---" : "|---:";
  for (const Cells& row : rows) {
    for (const std::string& cell : row) text += "| " + cell + ' ';
    text += "|\n";
    if (&row == &rows[0]) text += rule + "|\n";
  }
  return text;
}

// "1,234,567"
inline std::string with_commas(int64_t number) {
  std::string digits = std::to_string(number);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<size_t>(i), 1, ',');
  return digits;
}

// "1 array", "2,300 arrays", "2 processes"
inline std::string counted(int64_t number, std::string_view what) {
  const char* plural = what.ends_with('s') ? "es" : "s";
  return fmt::format("{} {}{}", with_commas(number), what, number == 1 ? "" : plural);
}

}  // namespace tessera::detail
