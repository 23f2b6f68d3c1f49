// A placement table as text and Markdown: folded, grouped, sorted, and fitted to a width.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "nn/placement/paths.h"
#include "nn/placement/table.h"
#include "sharding/base/table.h"

namespace tessera::nn {

using tessera::detail::counted, tessera::detail::Table, tessera::detail::with_commas;

namespace {

// ---- columns

Table empty_table() {
  return Table({"path", "arrays", "axes", "spec", "shape", "shard shape", "dtype", "elements", "bytes", "bytes/device",
                "replicas"},
               "<,<<<<<,,,,");
}

// Columns in the order in which they are dropped if a line is too wide.
constexpr const char* least_needed[] = {"elements",    "axes",   "shape", "dtype", "replicas",
                                        "shard shape", "arrays", "bytes", "spec"};

// ---- lines

struct Line {
  std::vector<Table::Cell> cells;
  std::string path;
  int64_t bytes_per_device = 0;
};
using Lines = std::vector<Line>;

std::string joined(const std::optional<std::vector<std::string>>& names) {
  return names ? fmt::format("{}", fmt::join(*names, ", ")) : "";
}

// Returns the shape with padded sizes: (50257 padded to 50264, 768).
std::string shape_text(const PlacementRow& row) {
  if (row.padded_shape.empty()) return to_string(row.shape);
  std::vector<std::string> sizes;
  for (size_t d = 0; d < row.shape.size(); ++d)
    sizes.push_back(row.shape[d] == row.padded_shape[d]
                        ? fmt::format("{}", row.shape[d])
                        : fmt::format("{} padded to {}", row.shape[d], row.padded_shape[d]));
  return fmt::format("({})", fmt::join(sizes, ", "));
}

// Returns P('model', None) on pipe[1] in pinned_host, without the parts that do not apply.
std::string spec_text(const PlacementRow& row) {
  return row.spec + (row.stage.empty() ? "" : " on " + row.stage) +
         (row.memory_kind.empty() ? "" : " in " + row.memory_kind);
}

Line line_of(const std::string& name, const std::vector<const PlacementRow*>& rows) {
  const PlacementRow& first = *rows[0];
  int64_t sums[3] = {};
  for (const PlacementRow* row : rows)
    sums[0] += row->num_elements, sums[1] += row->bytes, sums[2] += row->bytes_per_device;
  return {
      {name, std::ssize(rows), joined(first.axes), spec_text(first), shape_text(first), to_string(first.shard_shape),
       std::string(name_of(first.dtype)), sums[0], sums[1], sums[2], first.num_replicas},
      name,
      sums[2]};
}

// One line of the printed table: its path, and the table rows that it summarizes.
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

// Returns everything that a line shows after its path. Modules look equal if all their arrays do.
std::string look_of(const Entry& entry) {
  Table table = empty_table();
  for (const PlacementRow* row : entry.rows)
    table.add(line_of(row->path.substr(std::min(entry.path.size(), row->path.size())), {row}).cells);
  return table.to_text();
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

// Orders numbers in paths by their value: layers.2 before layers.10.
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
                     [](const Line& a, const Line& b) { return path_before(a.path, b.path); });
}

Table table_of(const PlacementTable& placement, const PlacementTableOptions& format) {
  std::vector<Entry> entries = format.depth ? by_module(placement.rows(), *format.depth) : by_array(placement.rows());
  if (format.fold) entries = folded(entries);
  Lines lines;
  for (const Entry& entry : entries) lines.push_back(line_of(entry.path, entry.rows));
  sort_lines(lines, format.sort);
  Table table = empty_table();
  for (const Line& line : lines) table.add(line.cells);
  if (format.depth)
    for (const char* title : {"axes", "spec", "shape", "shard shape", "dtype", "replicas"}) table.drop(title);
  else
    for (const char* title : {"elements", "bytes"}) table.drop(title);
  if (!format.depth && lines.size() == placement.rows().size()) table.drop("arrays");
  return table;
}

// ---- sums after the rows

std::string totals(const PlacementTable& table) {
  return fmt::format("{}, {}, {}; bytes per device:", counted(std::ssize(table.rows()), "array"),
                     counted(table.element_count(), "element"), counted(table.bytes(), "byte"));
}

std::vector<std::string> axis_lines(const PlacementTable& table) {
  std::vector<std::string> lines;
  if (const int64_t bytes = table.host_bytes_per_device())
    lines.push_back(fmt::format("pinned host memory: {} bytes per device, not counted above", with_commas(bytes)));
  const std::vector<AxisTotals> axes = table.over_axes();
  if (axes.empty()) return lines;
  for (const AxisTotals& a : axes)
    lines.push_back(fmt::format("over {}={}: {} bytes sharded, {} replicated; {:.2f} copies", a.axis.name, a.axis.size,
                                with_commas(a.divided_bytes), with_commas(a.whole_bytes), a.copies));
  lines.push_back(fmt::format("all devices: {:.2f} copies", table.replication()));
  return lines;
}

// Breaks a line that is too wide after its last semicolon.
std::string wrapped(std::string line, size_t width) {
  const size_t semicolon = line.rfind("; ");
  if (width > 0 && line.size() > width && semicolon != std::string::npos) line[semicolon + 1] = '\n';
  return line + '\n';
}

// ---- text

// Drops columns and shortens paths. A path is shortened to half of the line before another column is dropped.
void fit(Table& table, size_t width) {
  if (width == 0) return;
  Table::Column& paths = table.column("path");
  const auto excess = [&] { return std::max(table.width(), width) - width; };
  for (const char* title : least_needed) {
    if (excess() + std::min(paths.width(), width / 2) <= paths.width()) break;
    table.drop(title);
  }
  const size_t path_width = paths.width() - std::min(excess(), paths.width() - 1);
  for (std::string& path : paths.cells) path = detail::elided(path, path_width);
  paths.cells[0].resize(path_width, ' ');
}

}  // namespace

std::string PlacementTable::to_text(const PlacementTableOptions& format) const {
  Table table = table_of(*this, format);
  const std::string sum = with_commas(bytes_per_device()), summary = totals(*this);
  table.add({});
  table.column("bytes/device").cells.back() = sum;
  fit(table, format.width);
  const std::string rule = std::string(table.width(), '-') + '\n';
  std::string text = table.to_text();
  const size_t last_line = text.rfind('\n', text.size() - 2) + 1;
  if (summary.size() <= table.begin_of("bytes/device"))
    text.replace(last_line, summary.size(), summary);
  else
    text.replace(last_line, std::string::npos, wrapped(summary + ' ' + sum, format.width));
  text.insert(last_line, rule).insert(text.find('\n') + 1, rule);
  for (const std::string& line : axis_lines(*this)) text += wrapped(line, format.width);
  return text;
}

std::string PlacementTable::to_markdown(const PlacementTableOptions& format) const {
  std::string text = table_of(*this, format).to_markdown();
  text += fmt::format("\n{} {}\n", totals(*this), with_commas(bytes_per_device()));
  for (const std::string& line : axis_lines(*this)) text += "- " + line + '\n';
  return text;
}

}  // namespace tessera::nn
