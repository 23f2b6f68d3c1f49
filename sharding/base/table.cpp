// Formats cells, lays out columns, and prints tables.
#include "sharding/base/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "sharding/base/text.h"

namespace tessera::detail {
namespace {

std::string printed(const std::string& text, char) { return escaped(text, ""); }
std::string printed(int64_t n, char type) { return type == 'd' ? std::to_string(n) : with_commas(n); }
std::string printed(double number, char type) {
  if (type == 'm') return fmt::format("{:.4g}", 1e3 * number);
  if (type == 'f') return fmt::format("{:.3f}", 1e3 * number);
  if (type == '%') return fmt::format("{:.1f}", 100 * number);
  return fmt::format("{:.4g}", number);
}

}  // namespace

Table::Table(std::vector<std::string> titles, std::string_view types) {
  for (std::string& title : titles) {
    columns_.push_back({{std::move(title)}});
    if (types.empty()) continue;
    columns_.back().type = types[0];
    columns_.back().gap = types.substr(1).starts_with(' ') ? 1 : 2;
    types.remove_prefix(std::min<size_t>(types.size(), columns_.back().gap == 1 ? 2 : 1));
  }
}

size_t Table::Column::width() const {
  constexpr size_t max_width = 200;  // one long name must not make all lines as long
  size_t width = 0;
  for (const std::string& cell : cells) width = std::max(width, cell.size());
  return std::min(width, max_width);
}

void Table::add(const std::vector<Cell>& cells) {
  for (size_t c = 0; c < columns_.size(); ++c) {
    const auto print = [&](const auto& value) { return printed(value, columns_[c].type); };
    columns_[c].cells.push_back(c < cells.size() ? std::visit(print, cells[c]) : "");
  }
}

void Table::drop(std::string_view title) {
  std::erase_if(columns_, [&](const Column& c) { return c.cells[0] == title; });
}

Table::Column& Table::column(std::string_view title) {
  return *std::find_if(columns_.begin(), columns_.end(), [&](const Column& c) { return c.cells[0] == title; });
}

size_t Table::begin_of(std::string_view title) const {
  size_t begin = 0;
  for (auto c = columns_.begin(); c != columns_.end() && c->cells[0] != title; ++c) begin += c->width() + c->gap;
  return begin;
}

size_t Table::width() const { return begin_of("\n") - columns_.back().gap; }  // no title is "\n": begins at the end

std::string Table::to_text() const {
  std::vector<std::string> lines(columns_[0].cells.size());
  for (const Column& column : columns_) {
    const auto format = fmt::runtime(column.type == '<' ? "{:<{}}{:{}}" : "{:>{}}{:{}}");
    const size_t width = column.width();
    for (size_t i = 0; i < lines.size(); ++i) lines[i] += fmt::format(format, column.cells[i], width, "", column.gap);
  }
  std::string text;
  for (std::string& line : lines) {
    line.erase(line.find_last_not_of(' ') + 1);
    if (&line != &lines[0] || !line.empty()) text += line + '\n';
  }
  return text;
}

std::string Table::to_markdown() const {
  std::string text, rule;
  for (const Column& column : columns_) rule += column.type == '<' ? "|---" : "|---:";
  for (size_t i = 0; i < columns_[0].cells.size(); ++i) {
    for (const Column& column : columns_) text += "| " + column.cells[i] + ' ';
    text += i == 0 ? "|\n" + rule + "|\n" : "|\n";
  }
  return text;
}

std::string with_commas(int64_t number) {
  std::string digits = std::to_string(number);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<size_t>(i), 1, ',');
  return digits;
}

std::string counted(int64_t number, std::string_view noun) {
  const bool has_ies = noun.ends_with('y') && !noun.ends_with("ay");
  const std::string_view stem = has_ies && number != 1 ? noun.substr(0, noun.size() - 1) : noun;
  const char* plural = has_ies ? "ies" : noun.ends_with('s') ? "es" : "s";
  return fmt::format("{} {}{}", with_commas(number), stem, number == 1 ? "" : plural);
}

}  // namespace tessera::detail
