// A placement table as text and Markdown: folded, grouped, sorted, and made to fit a width.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <ostream>

#include "nn/placement/path_folding.h"
#include "nn/placement/table.h"
#include "sharding/base/text_format.h"

namespace tessera::nn {

using tessera::detail::counted, tessera::detail::with_commas;

namespace {

// ---- columns

enum Column { path, arrays, axes, spec, shape, shard_shape, dtype, elements, bytes, bytes_per_device, replicas, count };

constexpr const char* titles[count] = {"path",  "arrays",   "axes",  "spec",         "shape",   "shard shape",
                                       "dtype", "elements", "bytes", "bytes/device", "replicas"};

bool is_number(int column) {
  return column == arrays || column == elements || column == bytes || column == bytes_per_device || column == replicas;
}

using Columns = std::vector<int>;

// The columns of a table of arrays, of modules.
Columns columns_for(const PlacementTableOptions& format, bool folded) {
  if (format.depth) return {path, arrays, elements, bytes, bytes_per_device};
  Columns columns{path, axes, spec, shape, shard_shape, dtype, bytes_per_device, replicas};
  if (folded) columns.insert(columns.begin() + 1, arrays);
  return columns;
}

// What goes first where a line is too wide.
constexpr Column least_needed[] = {elements, axes, shape, dtype, replicas, shard_shape, arrays, bytes, spec};

// ---- lines

struct Line {
  std::array<std::string, count> cells;
  int64_t bytes_per_device = 0;
};
using Lines = std::vector<Line>;

std::string joined(const std::optional<std::vector<std::string>>& names) {
  return names ? fmt::format("{}", fmt::join(*names, ", ")) : "";
}

// (50257 padded to 50264, 768)
std::string shape_text(const PlacementRow& row) {
  if (row.padded_shape.empty()) return to_string(row.shape);
  std::vector<std::string> sizes;
  for (size_t d = 0; d < row.shape.size(); ++d)
    sizes.push_back(row.shape[d] == row.padded_shape[d]
                        ? fmt::format("{}", row.shape[d])
                        : fmt::format("{} padded to {}", row.shape[d], row.padded_shape[d]));
  return fmt::format("({})", fmt::join(sizes, ", "));
}

Line line_of(const std::string& name, const std::vector<const PlacementRow*>& rows) {
  const PlacementRow& first = *rows[0];
  int64_t sums[3] = {};
  for (const PlacementRow* row : rows)
    sums[0] += row->num_elements, sums[1] += row->bytes, sums[2] += row->bytes_per_device;
  Line line;
  line.bytes_per_device = sums[2];
  line.cells = {name,
                with_commas(static_cast<int64_t>(rows.size())),
                joined(first.axes),
                first.stage.empty() ? first.spec : fmt::format("{} on {}", first.spec, first.stage),
                shape_text(first),
                to_string(first.shard_shape),
                std::string(name_of(first.dtype)),
                with_commas(sums[0]),
                with_commas(sums[1]),
                with_commas(sums[2]),
                with_commas(first.num_replicas)};
  return line;
}

// The rows of one line, with the path that it shows.
struct Entry {
  std::string path;
  std::vector<const PlacementRow*> rows;
};

std::string first_names(const std::string& path, int depth) {
  size_t end = 0;
  for (int i = 0; i < depth && end != std::string::npos; ++i) end = path.find('.', i == 0 ? 0 : end + 1);
  return depth <= 0 ? "" : path.substr(0, end);
}

std::vector<Entry> by_module(const std::vector<PlacementRow>& rows, int depth) {
  std::vector<Entry> entries;
  std::map<std::string, size_t> places;
  for (const PlacementRow& row : rows) {
    const std::string name = first_names(row.path, depth);
    const auto [place, fresh] = places.emplace(name, entries.size());
    if (fresh) entries.push_back({name, {}});
    entries[place->second].rows.push_back(&row);
  }
  return entries;
}

std::vector<Entry> by_array(const std::vector<PlacementRow>& rows) {
  std::vector<Entry> entries;
  for (const PlacementRow& row : rows) entries.push_back({row.path, {&row}});
  return entries;
}

// All that a line shows beside its path. Modules look alike if all their arrays do.
std::string look_of(const Entry& entry) {
  std::string look;
  for (const PlacementRow* row : entry.rows) {
    const Line line = line_of(row->path.substr(std::min(entry.path.size(), row->path.size())), {row});
    look += fmt::format("{}\n", fmt::join(line.cells, "|"));
  }
  return look;
}

std::vector<Entry> folded(const std::vector<Entry>& entries) {
  std::vector<std::string> paths, looks;
  for (const Entry& entry : entries) paths.push_back(entry.path), looks.push_back(look_of(entry));
  std::vector<Entry> result;
  for (const detail::Folded& f : detail::fold_paths(paths, looks)) {
    Entry entry{f.path, {}};
    for (size_t i : f.members) entry.rows.insert(entry.rows.end(), entries[i].rows.begin(), entries[i].rows.end());
    result.push_back(std::move(entry));
  }
  return result;
}

// Numbers in paths by their value: layers.2 before layers.10.
bool path_before(const std::string& a, const std::string& b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    size_t k = i, l = j;
    while (k < a.size() && is_digit(a[k])) ++k;
    while (l < b.size() && is_digit(b[l])) ++l;
    if (k > i && l > j) {
      if (k - i != l - j) return k - i < l - j;
      if (const int order = a.compare(i, k - i, b, j, l - j)) return order < 0;
      i = k, j = l;
    } else if (a[i] != b[j]) {
      return a[i] < b[j];
    } else {
      ++i, ++j;
    }
  }
  return a.size() < b.size();
}

void sort_lines(Lines& lines, SortBy by) {
  if (by == SortBy::bytes)
    std::stable_sort(lines.begin(), lines.end(),
                     [](const Line& a, const Line& b) { return a.bytes_per_device > b.bytes_per_device; });
  if (by == SortBy::path)
    std::stable_sort(lines.begin(), lines.end(),
                     [](const Line& a, const Line& b) { return path_before(a.cells[path], b.cells[path]); });
}

Lines lines_of(const PlacementTable& table, const PlacementTableOptions& format) {
  std::vector<Entry> entries = format.depth ? by_module(table.rows(), *format.depth) : by_array(table.rows());
  if (format.fold) entries = folded(entries);
  Lines lines;
  for (const Entry& entry : entries) lines.push_back(line_of(entry.path, entry.rows));
  sort_lines(lines, format.sort);
  return lines;
}

// ---- the sums below

std::string totals(const PlacementTable& table) {
  return fmt::format("{}, {}, {}; bytes per device:", counted(std::ssize(table.rows()), "array"),
                     counted(table.element_count(), "element"), counted(table.bytes(), "byte"));
}

std::vector<std::string> axis_lines(const PlacementTable& table) {
  std::vector<std::string> lines;
  const std::vector<AxisTotals> axes = table.over_axes();
  if (axes.empty()) return lines;
  for (const AxisTotals& a : axes)
    lines.push_back(fmt::format("over {}={}: {} bytes divided, {} whole; {:.2f} copies", a.axis.name, a.axis.size,
                                with_commas(a.divided_bytes), with_commas(a.whole_bytes), a.copies));
  lines.push_back(fmt::format("all devices: {:.2f} copies", table.replication()));
  return lines;
}

// A line that is too wide goes on in a second one after its last semicolon.
std::string wrapped(std::string line, size_t width) {
  const size_t semicolon = line.rfind("; ");
  if (width > 0 && line.size() > width && semicolon != std::string::npos) line[semicolon + 1] = '\n';
  return line + '\n';
}

// ---- text

using Widths = std::array<size_t, count>;

Widths widths_of(const Lines& lines) {
  Widths widths = {};
  for (int c = 0; c < count; ++c) widths[c] = std::string_view(titles[c]).size();
  for (const Line& line : lines)
    for (int c = 0; c < count; ++c) widths[c] = std::max(widths[c], line.cells[c].size());
  return widths;
}

size_t line_width(const Columns& columns, const Widths& widths) {
  size_t width = 2 * (columns.size() - 1);
  for (int c : columns) width += widths[c];
  return width;
}

void fit(Columns& columns, Widths& widths, size_t width) {
  if (width == 0) return;
  const auto excess = [&] {
    const size_t now = line_width(columns, widths);
    return now > width ? now - width : 0;
  };
  for (const Column column : least_needed) {  // a path is shortened to half of the line before another column goes
    if (excess() + std::min(widths[path], width / 2) <= widths[path]) break;
    std::erase(columns, column);
  }
  widths[path] -= std::min(excess(), widths[path] - 1);
}

std::string aligned(const std::array<std::string, count>& cells, const Columns& columns, const Widths& widths) {
  std::string line;
  for (int c : columns) {
    const std::string cell = c == path ? detail::elided(cells[c], widths[c]) : cells[c];
    const std::string padding(widths[c] - cell.size(), ' ');
    line += (line.empty() ? "" : "  ") + (is_number(c) ? padding + cell : cell + padding);
  }
  return line + '\n';
}

std::array<std::string, count> title_cells() {
  std::array<std::string, count> cells;
  std::copy(std::begin(titles), std::end(titles), cells.begin());
  return cells;
}

}  // namespace

std::string PlacementTable::to_text(const PlacementTableOptions& format) const {
  const Lines lines = lines_of(*this, format);
  Columns columns = columns_for(format, lines.size() < rows_.size());
  Widths widths = widths_of(lines);
  const std::string sum = with_commas(bytes_per_device());
  widths[Column::bytes_per_device] = std::max(widths[Column::bytes_per_device], sum.size());
  fit(columns, widths, format.width);
  const std::string rule = std::string(line_width(columns, widths), '-') + '\n';
  std::string text = aligned(title_cells(), columns, widths) + rule;
  for (const Line& line : lines) text += aligned(line.cells, columns, widths);
  const auto bytes_column = std::find(columns.begin(), columns.end(), Column::bytes_per_device);
  const size_t begin = line_width({columns.begin(), bytes_column}, widths) + 2;
  const std::string words = totals(*this);
  text += rule;
  if (words.size() <= begin)
    text += fmt::format("{:<{}}{:>{}}\n", words, begin, sum, widths[Column::bytes_per_device]);
  else
    text += wrapped(words + ' ' + sum, format.width);
  for (const std::string& line : axis_lines(*this)) text += wrapped(line, format.width);
  return text;
}

std::string PlacementTable::to_markdown(const PlacementTableOptions& format) const {
  const Lines lines = lines_of(*this, format);
  const Columns columns = columns_for(format, lines.size() < rows_.size());
  std::vector<tessera::detail::Cells> rows;
  const auto add = [&](const std::array<std::string, count>& cells) {
    tessera::detail::Cells& row = rows.emplace_back();
    for (int c : columns) row.push_back(cells[c]);
  };
  add(title_cells());
  for (const Line& line : lines) add(line.cells);
  std::string marks;
  for (int c : columns) marks += is_number(c) ? '>' : '<';
  std::string text = tessera::detail::markdown_table(rows, marks);
  text += fmt::format("\n{} {}\n", totals(*this), with_commas(bytes_per_device()));
  for (const std::string& line : axis_lines(*this)) text += "- " + line + '\n';
  return text;
}

std::ostream& operator<<(std::ostream& out, const PlacementTable& table) { return out << table.to_text(); }

}  // namespace tessera::nn
