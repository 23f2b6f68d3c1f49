// Places of rows from sums of sizes, and one product for all tiles.
#include "sharding/operations/ragged/ragged_tiles.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "sharding/array/autograd.h"
#include "sharding/array/late_checks.h"
#include "sharding/array/tape_state.h"

namespace tessera::detail {
namespace {

// Columns [first, first + count) of a table, zeros where it has none.
at::Tensor columns_of(const at::Tensor& table, int64_t first, int64_t count) {
  const int64_t skipped = std::min(first, table.size(1));
  return at::constant_pad_nd(table, {-skipped, skipped + count - table.size(1)});
}

// Calls f with tiles that are as many as there are kernels, or fewer, and with the number of their first.
template <class F>
void for_parts(const Tiles& tiles, int64_t kernels, F f) {
  for (int64_t i = 0; i < tiles.groups.size(0); i += kernels)
    f(i, tiles.groups.narrow(0, i, std::min(kernels, tiles.groups.size(0) - i)));
}

// The rows of these tiles: (tiles, size, columns).
at::Tensor part_of(const Tiles& tiles, const at::Tensor& rows, int64_t first, const at::Tensor& groups) {
  return rows.view({tiles.groups.size(0), tiles.size, rows.size(1)}).narrow(0, first, groups.size(0));
}

at::Tensor product(const Tiles& tiles, const at::Tensor& rows, const at::Tensor& kernels) {
  std::vector<at::Tensor> parts;
  for_parts(tiles, kernels.size(0), [&](int64_t first, const at::Tensor& groups) {
    parts.push_back(at::bmm(part_of(tiles, rows, first, groups), kernels.index_select(0, groups)));
  });
  return at::cat(parts).flatten(0, 1);
}

at::Tensor gradient_of_rows(const Tiles& tiles, const at::Tensor& gradient, const at::Tensor& kernels) {
  return product(tiles, gradient, kernels.transpose(1, 2));
}

// A group's tiles are added up in float32 at least, in their order.
at::Tensor gradient_of_kernels(const Tiles& tiles, const at::Tensor& rows, const at::Tensor& gradient,
                               int64_t kernels) {
  if (rows.size(1) * gradient.size(1) == 0) return rows.new_zeros({kernels, rows.size(1), gradient.size(1)});
  at::Tensor sum;
  for_parts(tiles, kernels, [&](int64_t first, const at::Tensor& groups) {
    at::Tensor of_tiles =
        at::bmm(part_of(tiles, rows, first, groups).transpose(1, 2), part_of(tiles, gradient, first, groups));
    if (of_tiles.itemsize() < 4) of_tiles = of_tiles.to(at::kFloat);
    const at::Tensor of_groups = at::embedding_dense_backward(of_tiles.flatten(1), groups, kernels, -1, false);
    sum = sum.defined() ? sum.add_(of_groups) : of_groups;
  });
  return sum.view({kernels, rows.size(1), gradient.size(1)}).to(rows.scalar_type());
}

}  // namespace

Tiles tiles_of(const at::Tensor& sizes, int64_t rows, int64_t first, int64_t kernels) {
  const auto checked = [rows](const at::Tensor& numbers, const char* what) {
    return checked_later("ragged_dot", numbers, 0, rows + 1, at::kLong, what);
  };
  const at::Tensor ends = checked(checked(sizes, "sizes").cumsum(1), "ends of groups");
  const int64_t n = sizes.size(0) * rows;
  const auto longs = ends.options();
  if (n == 0 || kernels == 0) return {1, at::empty({0}, longs), at::zeros({n}, longs), at::empty({0}, longs)};
  Tiles tiles{.size = (n + kernels - 1) / kernels, .order = {}, .place = {}, .groups = {}};
  const int64_t count = std::min(n, kernels + n / tiles.size), places = count * tiles.size;
  const int64_t known = std::clamp<int64_t>(sizes.size(1) - first, 0, kernels);  // padding has no size

  const at::Tensor starts = columns_of(ends, -1, ends.size(1));
  const at::Tensor mine = columns_of(ends - starts, first, kernels);
  const at::Tensor tiles_of_group = at::floor_divide(mine.sum(0) + (tiles.size - 1), tiles.size);
  const at::Tensor last_tile = tiles_of_group.cumsum(0);
  const at::Tensor begin = (last_tile - tiles_of_group) * tiles.size + mine.cumsum(0) - mine;  // of each matrix's rows
  const at::Tensor shift = begin - columns_of(starts, first, kernels);

  const at::Tensor row = at::arange(rows, longs);
  const at::Tensor group =
      at::searchsorted(ends, row.expand({sizes.size(0), rows}).contiguous(), false, /*right=*/true) - first;
  const at::Tensor here = (group >= 0).logical_and_(group < known);
  tiles.place = at::where(here, row + shift.gather(1, group.clamp(0, kernels - 1)), places).flatten();
  tiles.order = at::full({places + 1}, n, longs).scatter_(0, tiles.place, at::arange(n, longs)).narrow(0, 0, places);
  tiles.groups = at::searchsorted(last_tile, at::arange(count, longs), false, /*right=*/true).clamp_max_(kernels - 1);
  return tiles;
}

at::Tensor product_of_tiles(const Tiles& tiles, const at::Tensor& rows, const at::Tensor& kernels) {
  if (tiles.groups.numel() == 0) return at::matmul(rows, kernels.select(0, 0));
  const bool has_rows = is_recorded(rows), has_kernels = is_recorded(kernels);
  if (is_nested() || !(has_rows || has_kernels)) return product(tiles, rows, kernels);
  Tensors out;
  {
    const at::AutoGradMode off(false);
    out.push_back(product(tiles, rows, kernels));
  }
  record_function("ragged_dot", Tensors{rows, kernels}, out,
                  [tiles, count = kernels.size(0), rows = has_kernels ? rows : at::Tensor(),
                   kernels = has_rows ? kernels : at::Tensor()](const Tensors& gradients) {
                    const at::Tensor g = gradients[0].contiguous();
                    return Tensors{kernels.defined() ? gradient_of_rows(tiles, g, kernels) : at::Tensor(),
                                   rows.defined() ? gradient_of_kernels(tiles, rows, g, count) : at::Tensor()};
                  });
  return std::move(out[0]);
}

}  // namespace tessera::detail
