// Computes the places of rows from sums of sizes, and one product for all tiles or groups.
#include "sharding/operations/ragged/ragged_tiles.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "sharding/array/autograd.h"
#include "sharding/array/late_checks.h"
#include "sharding/array/tape_state.h"
#include "sharding/runtime/hardware.h"

namespace tessera::detail {
namespace {

// Returns columns [first, first + count) of a table, zeros where it has none.
at::Tensor columns_of(const at::Tensor& table, int64_t first, int64_t count) {
  const int64_t skipped = std::min(first, table.size(1));
  return at::constant_pad_nd(table, {-skipped, skipped + count - table.size(1)});
}

// Calls f with at most as many tiles as there are kernels, and the index of the first of them.
template <class F>
void for_parts(const Tiles& tiles, int64_t kernels, F f) {
  for (int64_t i = 0; i < tiles.groups.size(0); i += kernels)
    f(i, tiles.groups.narrow(0, i, std::min(kernels, tiles.groups.size(0) - i)));
}

// Returns the rows of these tiles: (tiles, size, columns).
at::Tensor part_of(const Tiles& tiles, const at::Tensor& rows, int64_t first, const at::Tensor& groups) {
  return rows.view({tiles.groups.size(0), tiles.size, rows.size(1)}).narrow(0, first, groups.size(0));
}

constexpr int64_t alignment = 16;  // bytes: rows of operands of LibTorch's kernel begin at multiples of it

// Returns t with dense rows that begin at multiples of 16 bytes. The strides are compared one by one: is_contiguous()
// accepts any stride of a dimension of size 1, LibTorch's kernel does not.
at::Tensor aligned(const at::Tensor& t) {
  const bool fits = t.is_contiguous() && t.stride(-1) == 1 && t.stride(-2) == t.size(-1) &&
                    reinterpret_cast<uintptr_t>(t.const_data_ptr()) % alignment == 0;
  return fits ? t : t.clone(at::MemoryFormat::Contiguous);
}

at::Tensor product(const Tiles& tiles, const at::Tensor& rows, const at::Tensor& kernels) {
  if (tiles.ends.defined()) return at::_grouped_mm(aligned(rows), aligned(kernels), tiles.ends);
  std::vector<at::Tensor> parts;
  for_parts(tiles, kernels.size(0), [&](int64_t first, const at::Tensor& groups) {
    parts.push_back(at::bmm(part_of(tiles, rows, first, groups), kernels.index_select(0, groups)));
  });
  return at::cat(parts).flatten(0, 1);
}

at::Tensor gradient_of_rows(const Tiles& tiles, const at::Tensor& gradient, const at::Tensor& kernels) {
  if (tiles.ends.defined()) return at::_grouped_mm(aligned(gradient), aligned(kernels).transpose(1, 2), tiles.ends);
  return product(tiles, gradient, kernels.transpose(1, 2));
}

// Adds a group's tiles in order, in float32 at least.
at::Tensor gradient_of_kernels(const Tiles& tiles, const at::Tensor& rows, const at::Tensor& gradient,
                               int64_t kernels) {
  if (tiles.ends.defined()) return at::_grouped_mm(aligned(rows).t(), aligned(gradient), tiles.ends);
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

bool has_grouped_products(const at::Tensor& x, int64_t rows, at::TensorList kernels) {
  constexpr int64_t max_groups = 1023;  // the limit of LibTorch's kernel
  const auto fits = [](const at::Tensor& kernel) {
    constexpr int64_t multiple = alignment / 2;  // elements of bfloat16
    const auto is_aligned = [&](int64_t dim) { return kernel.size(dim) > 0 && kernel.size(dim) % multiple == 0; };
    return kernel.scalar_type() == at::kBFloat16 && kernel.size(0) <= max_groups && is_aligned(1) && is_aligned(2);
  };
  // LibTorch 2.11 compiles its kernel for two capabilities. On other GPUs at::_grouped_mm copies the groups to the
  // host.
  const int capability = compute_capability(x.device());
  // Second derivatives are LibTorch's, whose operands may have other layouts.
  return (capability == 90 || capability == 100) && x.scalar_type() == at::kBFloat16 && !is_nested() &&
         std::all_of(kernels.begin(), kernels.end(), fits) && rows + max_groups <= std::numeric_limits<int32_t>::max();
}

Tiles tiles_of(const at::Tensor& sizes, int64_t rows, int64_t first, int64_t kernels, bool grouped) {
  const auto checked = [rows](const at::Tensor& numbers, const char* what) {
    return checked_later("ragged_dot", numbers, 0, rows + 1, at::kLong, what);
  };
  const at::Tensor ends = checked(checked(sizes, "sizes").cumsum(1), "ends of groups");
  const int64_t n = sizes.size(0) * rows;
  const auto longs = ends.options();
  if (n == 0 || kernels == 0) return {1, at::empty({0}, longs), at::zeros({n}, longs), at::empty({0}, longs), {}};
  Tiles tiles{.size = grouped ? 1 : (n + kernels - 1) / kernels, .order = {}, .place = {}, .groups = {}, .ends = {}};
  const int64_t count = grouped ? n + kernels : std::min(n, kernels + n / tiles.size), places = count * tiles.size;
  const int64_t known = std::clamp<int64_t>(sizes.size(1) - first, 0, kernels);  // padding groups have no size

  const at::Tensor starts = columns_of(ends, -1, ends.size(1));
  const at::Tensor mine = columns_of(ends - starts, first, kernels);
  // An empty group gets a place of zeros, because LibTorch's kernel returns arbitrary gradients of kernels for sums
  // without terms on compute capability 10.0 (https://github.com/pytorch/pytorch/issues/172439).
  const at::Tensor tiles_of_group =
      grouped ? mine.sum(0).clamp_min_(1) : at::floor_divide(mine.sum(0) + (tiles.size - 1), tiles.size);
  const at::Tensor last_tile = tiles_of_group.cumsum(0);
  const at::Tensor begin = (last_tile - tiles_of_group) * tiles.size + mine.cumsum(0) - mine;  // per matrix
  const at::Tensor shift = begin - columns_of(starts, first, kernels);

  const at::Tensor row = at::arange(rows, longs);
  const at::Tensor group =
      at::searchsorted(ends, row.expand({sizes.size(0), rows}).contiguous(), false, /*right=*/true) - first;
  const at::Tensor here = (group >= 0).logical_and_(group < known);
  tiles.place = at::where(here, row + shift.gather(1, group.clamp(0, kernels - 1)), places).flatten();
  tiles.order = at::full({places + 1}, n, longs).scatter_(0, tiles.place, at::arange(n, longs)).narrow(0, 0, places);
  if (grouped)
    tiles.ends = last_tile.to(at::kInt);
  else
    tiles.groups = at::searchsorted(last_tile, at::arange(count, longs), false, /*right=*/true).clamp_max_(kernels - 1);
  return tiles;
}

at::Tensor product_of_tiles(const Tiles& tiles, const at::Tensor& rows, const at::Tensor& kernels) {
  if (tiles.order.numel() == 0) return at::matmul(rows, kernels.select(0, 0));
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
