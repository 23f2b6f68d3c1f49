// Table: rows under titled, typed columns, as aligned text and as Markdown; numbers and nouns in texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera::detail {

// Prints rows in columns. `types` has a character for each column:
//   <   a text                                      >   a text, aligned on the right
//   ,   a count or bytes: 1,234,567                 d   the same without commas
//   g   a number with four digits                   %   a fraction as percent, with one decimal
//   m   seconds as milliseconds, with four digits   f   the same with three decimals
// Columns are two spaces apart, or one space if a space follows the type.
//   Table table({"module", "bytes", "ms/step"}, "<,f");
//   table.add({"mlp", int64_t{4096}, 0.0015});
// A number column prints a text as it is. Control characters in texts (names from files) are escaped.
class Table {
 public:
  using Cell = std::variant<std::string, int64_t, double>;

  Table(std::vector<std::string> titles, std::string_view types);

  // Adds a row with a cell for each of the first columns; the other cells are empty.
  void add(const std::vector<Cell>& cells);
  // Removes this column, if there is one.
  void drop(std::string_view title);
  struct Column {
    std::vector<std::string> cells;  // the first is the title
    char type = '<';
    size_t gap = 2;  // after it
    size_t width() const;
  };
  // The column with this title, which the table has.
  Column& column(std::string_view title);

  // The width of a line, and where this column begins in it.
  size_t width() const;
  size_t begin_of(std::string_view title) const;

  // A line for each row, after a line of titles if there are any.
  std::string to_text() const;
  std::string to_markdown() const;

 private:
  std::vector<Column> columns_;
};

// "1,234,567"
std::string with_commas(int64_t number);

// "1 array", "2,300 arrays", "2 processes", "3 strategies"
std::string counted(int64_t number, std::string_view noun);

}  // namespace tessera::detail
