// The rows of a placement table, and how they are printed.
#include "nn/placement_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <functional>
#include <numeric>
#include <ostream>

#include "nn/filter_shard.h"
#include "nn/with_commas.h"
#include "sharding/named_sharding.h"

namespace tessera::nn {

using detail::with_commas;

namespace {

int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// The devices among which the array is divided.
int64_t distinct_blocks(const NamedSharding& sharding) {
  int64_t blocks = 1;
  for (const SpecEntry& entry : sharding.spec().entries())
    for (const std::string& axis : entry.axes()) blocks *= sharding.mesh().size(axis);
  for (const std::string& axis : sharding.spec().unreduced_axes()) blocks *= sharding.mesh().size(axis);
  return blocks;
}

std::optional<std::vector<std::string>> names_of(const Axes* axes) {
  if (!axes) return std::nullopt;
  std::vector<std::string> names;
  for (const AxisName& name : *axes) names.push_back(name.to_string());
  return names;
}

PlacementRow make_row(const Leaf& leaf, const std::optional<NamedSharding>& sharding) {
  const Array& x = *leaf.value;
  const Shape shard_shape = sharding ? sharding->shard_shape(x.shape()) : x.shape();
  return {.path = leaf.path,
          .axes = names_of(leaf.axes),
          .spec = sharding ? sharding->spec().to_string() : "uncommitted",
          .shape = x.shape(),
          .shard_shape = shard_shape,
          .dtype = x.dtype(),
          .elements = x.size(),
          .bytes = x.size() * item_size(x.dtype()),
          .bytes_per_device = product(shard_shape) * item_size(x.dtype()),
          .replicas = sharding ? sharding->mesh().size() / distinct_blocks(*sharding) : 1};
}

template <class Place>
PlacementTable make_table(const Leaves& leaves, Place sharding_of) {
  std::vector<PlacementRow> rows;
  for (const Leaf& leaf : leaves)
    if (!leaf.value->is_absent()) rows.push_back(make_row(leaf, sharding_of(leaf)));
  return PlacementTable(std::move(rows));
}

bool is_below(std::string_view path, std::string_view top) {
  return top.empty() || (path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '.'));
}

int64_t sum_of(const std::vector<PlacementRow>& rows, std::string_view path, int64_t PlacementRow::*number) {
  int64_t sum = 0;
  for (const PlacementRow& row : rows)
    if (is_below(row.path, path)) sum += row.*number;
  return sum;
}

std::string joined(const std::optional<std::vector<std::string>>& names) {
  std::string text;
  if (names)
    for (const std::string& name : *names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

using Cells = std::array<std::string, 8>;
constexpr size_t bytes_column = 6, replicas_column = 7;
bool is_number(size_t column) { return column >= bytes_column; }

const Cells titles = {"path", "axes", "spec", "shape", "shard shape", "dtype", "bytes/device", "replicas"};

Cells cells_of(const PlacementRow& row) {
  return {row.path,
          joined(row.axes),
          row.spec,
          to_string(row.shape),
          to_string(row.shard_shape),
          std::string(name_of(row.dtype)),
          with_commas(row.bytes_per_device),
          with_commas(row.replicas)};
}

std::string totals(const PlacementTable& table) {
  return fmt::format("{} arrays, {} elements, {} bytes; bytes per device:", with_commas(table.rows().size()),
                     with_commas(table.elements()), with_commas(table.bytes()));
}

using Widths = std::array<size_t, 8>;

Widths widths_of(const std::vector<Cells>& lines) {
  Widths widths = {};
  for (const Cells& cells : lines)
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  return widths;
}

std::string aligned(const Cells& cells, const Widths& widths) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - cells[i].size(), ' ');
    line += (i ? "  " : "") + (is_number(i) ? padding + cells[i] : cells[i] + padding);
  }
  return line + '\n';
}

boost::json::object to_object(const PlacementRow& row) {
  boost::json::object object{{"path", row.path}, {"axes", nullptr}, {"spec", row.spec}};
  if (row.axes) object["axes"] = boost::json::array(row.axes->begin(), row.axes->end());
  object["shape"] = boost::json::array(row.shape.begin(), row.shape.end());
  object["shard_shape"] = boost::json::array(row.shard_shape.begin(), row.shard_shape.end());
  object["dtype"] = name_of(row.dtype);
  object["elements"] = row.elements;
  object["bytes"] = row.bytes;
  object["bytes_per_device"] = row.bytes_per_device;
  object["replicas"] = row.replicas;
  return object;
}

}  // namespace

int64_t PlacementTable::elements(std::string_view path) const { return sum_of(rows_, path, &PlacementRow::elements); }
int64_t PlacementTable::bytes(std::string_view path) const { return sum_of(rows_, path, &PlacementRow::bytes); }
int64_t PlacementTable::bytes_per_device(std::string_view path) const {
  return sum_of(rows_, path, &PlacementRow::bytes_per_device);
}

std::string PlacementTable::to_text() const {
  std::vector<Cells> lines{titles};
  for (const PlacementRow& row : rows_) lines.push_back(cells_of(row));
  const std::string sum = with_commas(bytes_per_device());
  Widths widths = widths_of(lines);
  widths[bytes_column] = std::max(widths[bytes_column], sum.size());
  std::string text = aligned(lines[0], widths);
  const size_t before_bytes = text.size() - 1 - widths[replicas_column] - 2 - widths[bytes_column];
  const std::string rule = std::string(text.size() - 1, '-') + '\n';
  text += rule;
  for (size_t i = 1; i < lines.size(); ++i) text += aligned(lines[i], widths);
  return text + rule + fmt::format("{:<{}}{:>{}}\n", totals(*this), before_bytes, sum, widths[bytes_column]);
}

std::string PlacementTable::to_markdown() const {
  std::string text;
  const auto add = [&text](const Cells& cells) {
    for (const std::string& cell : cells) text += "| " + cell + ' ';
    text += "|\n";
  };
  add(titles);
  for (size_t i = 0; i < titles.size(); ++i) text += is_number(i) ? "|---:" : "|---";
  text += "|\n";
  for (const PlacementRow& row : rows_) add(cells_of(row));
  return text + fmt::format("\n{} {}\n", totals(*this), with_commas(bytes_per_device()));
}

std::string PlacementTable::to_json() const {
  boost::json::array rows;
  for (const PlacementRow& row : rows_) rows.push_back(to_object(row));
  return boost::json::serialize(boost::json::object{{"rows", std::move(rows)},
                                                    {"arrays", rows_.size()},
                                                    {"elements", elements()},
                                                    {"bytes", bytes()},
                                                    {"bytes_per_device", bytes_per_device()}});
}

std::ostream& operator<<(std::ostream& out, const PlacementTable& table) { return out << table.to_text(); }

PlacementTable placement_table(const Leaves& leaves) {
  return make_table(leaves, [](const Leaf& leaf) -> std::optional<NamedSharding> {
    if (!leaf.value->is_committed()) return std::nullopt;
    return leaf.value->sharding();
  });
}

PlacementTable placement_table(const Leaves& leaves, const Layout& layout) {
  return make_table(leaves, [&layout](const Leaf& leaf) {
    return std::optional(NamedSharding(layout.mesh(), resolve(leaf, layout, "placement_table").spec));
  });
}

}  // namespace tessera::nn
