// Draws boxes and their labels, in the layout that the Python library "rich" produces for JAX.
#include "sharding/array/visualize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "sharding/base/text.h"

namespace tessera {
namespace {

// One box: its label, and the blank rows and columns around it.
struct Cell {
  std::string label;
  int left = 0, right = 0, top = 0, bottom = 0;

  int width() const { return static_cast<int>(label.size()) + left + right; }
};

struct Grid {
  std::vector<std::vector<Cell>> rows;
  size_t columns() const { return rows.empty() ? 0 : rows[0].size(); }
};

// ---- blocks and their devices

struct Block {
  IndexRanges ranges;
  std::set<int> devices;
};

// Returns the distinct blocks in the order of the array's elements.
std::vector<Block> blocks_of(const Shape& shape, const NamedSharding& sharding) {
  std::map<IndexRanges, std::set<int>> holders;
  const auto ranges = sharding.devices_indices_map(shape);
  for (size_t i = 0; i < ranges.size(); ++i) holders[ranges[i]].insert(sharding.mesh().devices()[i]);
  std::vector<Block> blocks;
  for (const auto& [range, devices] : holders) blocks.push_back({range, devices});
  return blocks;
}

std::string label_of(const std::set<int>& devices) { return fmt::format("CPU {}", fmt::join(devices, ",")); }

// ---- sizes: as in JAX, 10 lines for a whole column; a character is 2.5 times as high as wide

constexpr int whole_height = 10, least_width = 9;
constexpr double character_height = 2.5;

// Splits n blank cells into {before, after}. If n is odd, `after` has one more.
std::pair<int, int> halves(int n) {
  const int half = static_cast<int>(std::floor(n / 2.0));
  return {std::max(half, 0), std::max(n - half, 0)};
}

Cell cell_of(const std::string& label, int width, int height) {
  Cell cell{.label = label};
  std::tie(cell.left, cell.right) = halves(width - static_cast<int>(label.size()) - 2);
  std::tie(cell.top, cell.bottom) = halves(height - 2);
  return cell;
}

double share(const std::pair<int64_t, int64_t>& range, int64_t size) {
  return size ? static_cast<double>(range.second - range.first) / static_cast<double>(size) : 1;
}

// Returns the grid of the last two dimensions of these blocks, or of fewer if the array has fewer.
Grid grid_of(const Shape& shape, const std::vector<Block>& blocks, int max_width) {
  const size_t n = shape.size();
  const double high = n > 1 ? static_cast<double>(shape[n - 2]) : n ? static_cast<double>(shape[n - 1]) : 1;
  const double wide = n > 1 ? static_cast<double>(shape[n - 1]) : 1;
  const int base = static_cast<int>(whole_height * (high > 0 ? wide / high : 1));
  Grid grid;
  int64_t row = -1;
  for (const Block& block : blocks) {
    const int64_t begin = n > 1 ? block.ranges[n - 2].first : 0;
    if (grid.rows.empty() || begin != row) grid.rows.emplace_back();
    row = begin;
    const double part = n ? share(block.ranges[n - 1], shape[n - 1]) : 1;
    const int width = std::min(std::max(static_cast<int>(part * base * character_height), least_width), max_width);
    const int height = n > 1 ? static_cast<int>(share(block.ranges[n - 2], shape[n - 2]) * whole_height) : 1;
    grid.rows.back().push_back(cell_of(label_of(block.devices), width, height));
  }
  return grid;
}

// ---- columns that fit into a line

// Takes `excess` evenly from the columns of width `widest`, at most `most` from each.
void narrow(std::vector<int>& widths, int widest, int excess, int most) {
  auto left = static_cast<int>(std::count(widths.begin(), widths.end(), widest));
  for (int& width : widths) {
    if (width != widest) continue;
    const int taken = std::min(most, static_cast<int>(std::nearbyint(static_cast<double>(excess) / left)));
    width -= taken, excess -= taken, left -= 1;
  }
}

// Narrows the widest columns down to the next width, until all fit.
std::vector<int> fitted(std::vector<int> widths, int available) {
  for (;;) {
    int total = 0, widest = 0, next = 0;
    for (int w : widths) total += w, widest = std::max(widest, w);
    for (int w : widths)
      if (w != widest) next = std::max(next, w);
    if (total <= available || widest == next) return widths;
    narrow(widths, widest, total - available, std::min(total - available, widest - next));
  }
}

std::vector<int> column_widths(const Grid& grid, int available) {
  std::vector<int> widths(grid.columns(), 1);
  for (const auto& row : grid.rows)
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].width());
  return fitted(widths, available);
}

// ---- a cell's lines

std::string centred(const std::string& text, int width) {
  const int excess = std::max(width - static_cast<int>(text.size()), 0);
  return std::string(excess / 2, ' ') + text + std::string(excess - excess / 2, ' ');
}

// Breaks the text into lines at spaces; a word that is too long is split.
std::vector<std::string> wrapped(const std::string& text, int width) {
  std::vector<std::string> lines;
  std::string line;
  const auto flush = [&] { lines.push_back(line), line.clear(); };
  for (const std::string_view part : detail::split_text(text, " ")) {
    std::string word(part);
    if (!line.empty() && static_cast<int>(line.size() + 1 + word.size()) > width) flush();
    while (static_cast<int>(word.size()) > width && line.empty()) {
      lines.push_back(word.substr(0, width));
      word.erase(0, width);
    }
    line += line.empty() ? word : ' ' + word;
  }
  if (!line.empty()) flush();
  return lines;
}

std::vector<std::string> lines_of(const Cell& cell, int width) {
  std::vector<std::string> lines(cell.top, std::string(width, ' '));
  const int inner = width - cell.left - cell.right;
  if (inner < 1)
    lines.emplace_back(width, ' ');
  else
    for (const std::string& text : wrapped(cell.label, inner))
      lines.push_back(std::string(cell.left, ' ') + centred(text, inner) + std::string(cell.right, ' '));
  lines.insert(lines.end(), cell.bottom, std::string(width, ' '));
  return lines;
}

// ---- the drawing

std::string border(const std::vector<int>& widths, const char* left, const char* middle, const char* right) {
  std::string text = left;
  for (size_t c = 0; c < widths.size(); ++c) {
    if (c) text += middle;
    for (int i = 0; i < widths[c]; ++i) text += "─";
  }
  return text + right + '\n';
}

// Returns the text with terminal escape codes: background color `index` of a palette, and a foreground color with
// enough contrast. Adjacent indices have different colors.
std::string coloured(const std::string& text, size_t index) {
  struct Pair {
    int back, front;
  };
  constexpr Pair palette[] = {{25, 15}, {173, 0}, {65, 15}, {132, 15}, {179, 0}, {60, 15}, {109, 0}, {131, 15}};
  const Pair& pair = palette[index % std::size(palette)];
  return fmt::format("\x1b[48;5;{}m\x1b[38;5;{}m{}\x1b[0m", pair.back, pair.front, text);
}

std::string row_text(const std::vector<Cell>& row, const std::vector<int>& widths, bool color, size_t first_color) {
  std::vector<std::vector<std::string>> cells;
  size_t height = 0;
  for (size_t c = 0; c < row.size(); ++c) {
    cells.push_back(lines_of(row[c], widths[c]));
    height = std::max(height, cells.back().size());
  }
  std::string text;
  for (size_t line = 0; line < height; ++line) {
    if (!color) text += "│";
    for (size_t c = 0; c < cells.size(); ++c) {
      const std::string part = line < cells[c].size() ? cells[c][line] : std::string(widths[c], ' ');
      text += color ? coloured(part, first_color + c) : part + "│";
    }
    text += '\n';
  }
  return text;
}

std::string drawing(Grid grid, int width, bool color) {
  if (color)
    for (auto& row : grid.rows)
      for (Cell& cell : row) cell.left += 1, cell.right += 1, cell.top += 1, cell.bottom += 1;
  const int borders = color ? 0 : static_cast<int>(grid.columns()) + 1;
  const std::vector<int> widths = column_widths(grid, width - borders);
  std::string text = color ? "" : border(widths, "┌", "┬", "┐");
  // Adjacent cells differ in color: with an even number of columns, each row starts one color further.
  const size_t shift = grid.columns() % 2 == 0 ? grid.columns() + 1 : grid.columns();
  for (size_t r = 0; r < grid.rows.size(); ++r) {
    if (r && !color) text += border(widths, "├", "┼", "┤");
    text += row_text(grid.rows[r], widths, color, r * shift);
  }
  return text + (color ? "" : border(widths, "└", "┴", "┘"));
}

bool is_colored(VisualizeOptions::Color color) {
  if (color != VisualizeOptions::Color::automatic) return color == VisualizeOptions::Color::always;
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) && !(no_color && *no_color);
}

// Returns the range of the dimensions before the last two: "[0:2, 4:8, :, :]".
std::string slice_name(const IndexRanges& ranges) {
  std::string text = "[";
  for (size_t d = 0; d + 2 < ranges.size(); ++d) text += fmt::format("{}:{}, ", ranges[d].first, ranges[d].second);
  return text + ":, :]\n";
}

}  // namespace

std::string visualize_sharding(const Shape& shape, const NamedSharding& sharding, const VisualizeOptions& options) {
  const size_t leading = shape.size() < 3 ? 0 : shape.size() - 2;
  const auto draw = [&](const std::vector<Block>& slice) {
    return drawing(grid_of(shape, slice, options.width), options.width, is_colored(options.color));
  };
  std::string text;
  std::vector<Block> slice;
  const auto finish_slice = [&] { text += (leading ? slice_name(slice[0].ranges) : "") + draw(slice), slice.clear(); };
  for (const Block& block : blocks_of(shape, sharding)) {
    if (!slice.empty() && !std::equal(block.ranges.begin(), block.ranges.begin() + leading, slice[0].ranges.begin()))
      finish_slice();
    slice.push_back(block);
  }
  finish_slice();
  return text;
}

std::string visualize_sharding(const Array& x, const VisualizeOptions& options) {
  const NamedSharding sharding = x.sharding();
  const auto& pending = sharding.spec().unreduced_axes();
  return visualize_sharding(x.shape(), sharding, options) +
         (pending.empty() ? "" : fmt::format("each a partial sum over {}\n", fmt::join(pending, ",")));
}

}  // namespace tessera
