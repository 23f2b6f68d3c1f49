// Table: titled, typed columns printed as aligned text and as Markdown. Also formats numbers and nouns.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera::detail {

// Prints rows in columns. `types` has one character per column:
//   <   a text                                      >   a text, aligned on the right
//   ,   a count or bytes: 1,234,567                 d   the same without commas
//   g   a number with four digits                   %   a fraction as percent, with one decimal
//   m   seconds as milliseconds, with four digits   f   the same with three decimals
// Columns are two spaces apart, or one space if a space follows the type.
//   Table table({"module", "bytes", "ms/step"}, "<,f");
//   table.add({"mlp", int64_t{4096}, 0.0015});
// Number columns print texts unchanged. Control characters in texts (names from files) are escaped.
class Table {
 public:
  using Cell = std::variant<std::string, int64_t, double>;

  Table(std::vector<std::string> titles, std::string_view types);

  // Adds a row with cells for the first columns; the other cells are empty.
  void add(const std::vector<Cell>& cells);
  // Removes this column, if it exists.
  void drop(std::string_view title);
  struct Column {
    std::vector<std::string> cells;  // the first is the title
    char type = '<';
    size_t gap = 2;  // spaces after the column
    size_t width() const;
  };
  // Returns the column with this title, which must exist.
  Column& column(std::string_view title);

  // Return the width of a line, and the position at which this column begins in it.
  size_t width() const;
  size_t begin_of(std::string_view title) const;

  // Return one line per row, after a line of titles. to_text omits the titles if all are empty.
  std::string to_text() const;
  std::string to_markdown() const;

 private:
  std::vector<Column> columns_;
};

// Returns "1,234,567".
std::string with_commas(int64_t number);

// Returns "1 array", "2,300 arrays", "2 processes", "3 strategies".
std::string counted(int64_t number, std::string_view noun);

}  // namespace tessera::detail
