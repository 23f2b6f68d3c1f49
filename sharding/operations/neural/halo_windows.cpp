// Computes windows that slide over spatial dimensions, and their halos.
#include "sharding/operations/neural/halo_windows.h"

#include <ATen/ops/constant_pad_nd.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "sharding/base/fail.h"
#include "sharding/operations/shape/rearrange.h"

namespace tessera::detail {

Sizes given_or_ones(const char* verb, const char* what, at::IntArrayRef given, size_t n) {
  if (given.empty()) return Sizes(n, 1);
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  const auto [least, largest] = std::minmax_element(given.begin(), given.end());
  if (given.size() != n || *least < 1 || *largest > most)
    fail(ErrorKind::shape_mismatch, verb, "{} {} given, expected {} sizes from 1 to {}.", what, to_string(given.vec()),
         n, most);
  return Sizes(given);
}

namespace {

std::pair<int64_t, int64_t> padding_of(const char* verb, const Padding& padding, size_t dim, int64_t size,
                                       int64_t window, int64_t stride) {
  if (padding.name().empty()) return padding.pairs()[dim];
  if (padding.name() == "VALID") return {0, 0};
  const int64_t out = (size + stride - 1) / stride, total = std::max<int64_t>((out - 1) * stride + window - size, 0);
  if (padding.name() == "SAME") return {total / 2, total - total / 2};
  if (padding.name() == "SAME_LOWER") return {total - total / 2, total / 2};
  fail(ErrorKind::invalid_argument, verb, "padding \"{}\" given, expected SAME, SAME_LOWER, VALID or pairs.",
       padding.name());
}

}  // namespace

Windows windows_over(const char* verb, const Sizes& sizes, const Sizes& extents, Sizes strides,
                     const Padding& padding) {
  if (padding.name().empty() && padding.pairs().size() != sizes.size())
    fail(ErrorKind::shape_mismatch, verb, "{} pairs of padding given, expected {}.", padding.pairs().size(),
         sizes.size());
  Windows w{extents, std::move(strides), {}, {}, {}, Sizes(sizes.size(), 1), {}};
  for (size_t d = 0; d < sizes.size(); ++d) {
    const auto [before, after] = padding_of(verb, padding, d, sizes[d], extents[d], w.strides[d]);
    constexpr int64_t most = int64_t{1} << 60;
    if (before < -most || before > most || after < -most || after > most)
      fail(ErrorKind::shape_mismatch, verb, "padding ({}, {}) of spatial dim {} given, expected less than 2^60.",
           before, after, d);
    w.before.push_back(before);
    w.after.push_back(after);
    w.out.push_back(std::max<int64_t>((sizes[d] + before + after - extents[d]) / w.strides[d] + 1, 0));
    if (sizes[d] + before + after < extents[d]) w.out.back() = 0;
    if (w.out.back() == 0)
      fail(ErrorKind::shape_mismatch, verb, "a window of {} does not fit into {} positions of spatial dim {}.",
           extents[d], sizes[d] + before + after, d);
  }
  w.lead = w.before;
  return w;
}

bool is_unpadded(const Windows& w) {
  const auto is_none = [](int64_t n) { return n == 0; };
  return std::all_of(w.before.begin(), w.before.end(), is_none) && std::all_of(w.after.begin(), w.after.end(), is_none);
}

at::Tensor padded(at::Tensor x, const Windows& w, double value) {
  if (is_unpadded(w)) return x;
  Sizes amounts;
  for (size_t d = w.before.size(); d-- > 0;) amounts.push_back(w.before[d]), amounts.push_back(w.after[d]);
  return at::constant_pad_nd(x, amounts, value);
}

// ---- halos

namespace {

// Returns the number of blocks into which spatial dimension d stays sharded.
int64_t blocks_of(const Type& x, int64_t dim, int64_t windows, AxisSet others) {
  if (!x.mesh || x.is_padded(static_cast<size_t>(dim)) || (x.dims[dim].axis_set() & others)) return 1;
  const int64_t n = x.mesh->count(x.dims[dim].axis_set());
  return windows % n ? 1 : n;
}

// Returns, block by block, the run of [0, size) that the block's windows read. Positions outside [0, size) are padding,
// which no run covers.
std::vector<Run> reached(int64_t size, int64_t blocks, int64_t length, int64_t step, int64_t before) {
  std::vector<Run> runs;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t start = b * step - before;
    const int64_t first = std::clamp<int64_t>(start, 0, size), last = std::clamp<int64_t>(start + length, 0, size);
    if (last > first) runs.push_back({b * length + first - start, last - first, Run::any, first, 1});
  }
  return runs;
}

}  // namespace

void cut_like(const Type& x, at::IntArrayRef dims, AxisSet others, Windows& w) {
  for (size_t i = 0; i < dims.size(); ++i) {
    w.blocks[i] = blocks_of(x, dims[i], w.out[i], others);
    if (w.blocks[i] != 1) w.before[i] = w.after[i] = 0;
  }
}

const Array& with_halos(const Operation& operation, const Operand& x, at::IntArrayRef dims, const Windows& w,
                        double fill, Array& made) {
  const Array& a = x.array();
  if (std::all_of(w.blocks.begin(), w.blocks.end(), [](int64_t n) { return n == 1; })) return a;
  Shape shape = a.shape();
  IndexMap map = identity_map(shape);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (w.blocks[i] == 1) continue;
    const int64_t windows = w.out[i] / w.blocks[i], length = (windows - 1) * w.strides[i] + w.extents[i];
    map[dims[i]] = reached(shape[dims[i]], w.blocks[i], length, windows * w.strides[i], w.lead[i]);
    shape[dims[i]] = w.blocks[i] * length;
  }
  return made = rearrange({operation, shape, map, fill, x.where()}, {a});
}

void add_windows(Attributes& attributes, const Windows& windows) {
  for (size_t d = 0; d < windows.out.size(); ++d) {
    attributes.push_back(windows.blocks[d]);
    attributes.push_back(windows.out[d]);
  }
}

RuleDim spatial_dim(size_t d, int64_t blocks) {
  const RuleFactor places = whole(fmt::format("s{}", d));
  return blocks == 1 ? RuleDim(places) : RuleDim{factor(fmt::format("w{}", d), blocks), places};
}

RuleDim windows_dim(size_t d, int64_t blocks, int64_t windows) {
  const RuleFactor all = whole(fmt::format("t{}", d), windows / blocks);
  return blocks == 1 ? RuleDim(all) : RuleDim{factor(fmt::format("w{}", d)), all};
}

}  // namespace tessera::detail
