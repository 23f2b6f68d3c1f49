// Convolutions: spatial dimensions as windows, then one kernel of LibTorch.
#include "sharding/operations/neural/convolution.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>

#include "sharding/base/fail.h"
#include "sharding/base/thread_state.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/neural/halo_windows.h"
#include "sharding/propagation/run.h"

namespace tessera {

using namespace detail;

namespace {

// Returns the order: dimension i of the canonical order (batch or features out, features, spatial dimensions) is
// dimension order[i] of the array.
Sizes order_of(const std::string& spec, const std::string& spatial_like, char first, char second) {
  Sizes order{static_cast<int64_t>(spec.find(first)), static_cast<int64_t>(spec.find(second))};
  for (char c : spatial_like)
    if (c != 'I' && c != 'O') order.push_back(static_cast<int64_t>(spec.find(c)));
  return order;
}

struct Orders {
  Sizes lhs, rhs, out;
  bool operator<(const Orders& o) const { return std::tie(lhs, rhs, out) < std::tie(o.lhs, o.rhs, o.out); }
};

bool fits(const std::string& spec, const std::string& rhs, char first, char second) {
  std::string letters = rhs, given = spec;
  std::replace(letters.begin(), letters.end(), 'O', first);
  std::replace(letters.begin(), letters.end(), 'I', second);
  std::sort(letters.begin(), letters.end());
  std::sort(given.begin(), given.end());
  return letters == given && std::adjacent_find(given.begin(), given.end()) == given.end();
}

// Reads the dimension numbers; the default is "NCHW", "OIHW", "NCHW".
Orders read_orders(const ConvDimensionNumbers& d, size_t ndim) {
  if (d.lhs.empty() && d.rhs.empty() && d.out.empty()) {
    Sizes natural;
    for (size_t d = 0; d < ndim; ++d) natural.push_back(static_cast<int64_t>(d));
    return {natural, natural, natural};
  }
  if (d.rhs.size() != ndim || !fits(d.rhs, d.rhs, 'O', 'I') || !fits(d.lhs, d.rhs, 'N', 'C') ||
      !fits(d.out, d.rhs, 'N', 'C'))
    fail(ErrorKind::shape_mismatch, "conv_general_dilated",
         "dimension numbers \"{}\", \"{}\", \"{}\" for {} dims, expected as in \"NHWC\", \"HWIO\", \"NHWC\".", d.lhs,
         d.rhs, d.out, ndim);
  return {order_of(d.lhs, d.rhs, 'N', 'C'), order_of(d.rhs, d.rhs, 'O', 'I'), order_of(d.out, d.rhs, 'N', 'C')};
}

Numbers<Orders>& numbers_of_orders() {
  static auto& numbers = *new Numbers<Orders>;  // never destroyed: see make_mesh
  return numbers;
}

// Returns the canonical dimensions in the order of the array.
RuleDims arranged(const Sizes& order, const RuleDims& canonical) {
  RuleDims dims(canonical.size());
  for (size_t i = 0; i < canonical.size(); ++i) dims[order[i]] = canonical[i];
  return dims;
}

bool is_cut(const Type& x, int64_t dim) { return x.mesh && !x.dims[dim].empty(); }

// Returns the rule of a convolution. Attributes: groups, the number of the orders, and for each spatial dimension its
// blocks and windows. Input features are summed over if both operands are sharded over them. Otherwise they are
// gathered, which communicates less than a sum of the result.
ShardingRule conv_rule(const Attributes& a, const OperandTypes& operands) {
  const Orders& orders = numbers_of_orders()[a[1]];
  const bool sums = is_cut(*operands[0], orders.lhs[1]) && is_cut(*operands[1], orders.rhs[1]);
  const RuleFactor in = sums ? factor("i") : whole("i");
  const RuleDim features_out{factor("g"), factor("o")};
  RuleDims lhs{factor("n"), {factor("g", a[0]), in}}, rhs{features_out, in}, out{factor("n"), features_out};
  for (int d = 2; d < a.size(); d += 2) {
    lhs.push_back(spatial_dim(d, a[d]));
    rhs.push_back(whole(fmt::format("k{}", d)));
    out.push_back(windows_dim(d, a[d], a[d + 1]));
  }
  return {{arranged(orders.lhs, lhs), arranged(orders.rhs, rhs)}, {arranged(orders.out, out)}};
}

const Operation conv_op{"conv_general_dilated", conv_rule, Linearity::multilinear};

Sizes spatial_sizes(const Array& x, const Sizes& order) {
  Sizes sizes;
  for (size_t i = 2; i < order.size(); ++i) sizes.push_back(x.shape(static_cast<int>(order[i])));
  return sizes;
}

int64_t dilated(int64_t size, int64_t dilation) { return size == 0 ? 0 : (size - 1) * dilation + 1; }

// Inserts zeros between the elements of the spatial dimensions.
at::Tensor spread_out(at::Tensor x, const Sizes& dilation) {
  for (size_t d = 0; d < dilation.size(); ++d) {
    if (dilation[d] == 1) continue;
    const auto dim = static_cast<int64_t>(d) + 2;
    const int64_t size = x.size(dim);
    x = at::stack({x, at::zeros_like(x)}, dim + 1);
    if (dilation[d] > 2) x = at::constant_pad_nd(x.movedim(dim + 1, -1), {0, dilation[d] - 2}).movedim(-1, dim + 1);
    x = x.flatten(dim, dim + 1).narrow(dim, 0, dilated(size, dilation[d]));
  }
  return x;
}

bool is_natural(const Sizes& order) { return std::is_sorted(order.begin(), order.end()); }

at::Tensor in_order(at::Tensor t, const Sizes& order) {
  if (is_natural(order)) return t;
  return t.permute(order);
}

Sizes inverse(const Sizes& order) {
  Sizes result(order.size());
  for (size_t i = 0; i < order.size(); ++i) result[order[i]] = static_cast<int64_t>(i);
  return result;
}

void check_conv(const Array& lhs, const Array& rhs) {
  if (lhs.ndim() != rhs.ndim() || lhs.ndim() < 3 || lhs.ndim() > 5)
    fail(ErrorKind::shape_mismatch, conv_op.name, "given {} and {}, expected 3 to 5 dims of both.", lhs.type_string(),
         rhs.type_string());
  if (lhs.dtype() != rhs.dtype())
    fail(ErrorKind::dtype_mismatch, conv_op.name, "given {} and {}, expected one element type. Cast one with astype.",
         lhs.type_string(), rhs.type_string());
}

void check_features(const Array& lhs, const Array& rhs, const Orders& orders, int64_t groups) {
  const int64_t in = lhs.shape(static_cast<int>(orders.lhs[1])), out = rhs.shape(static_cast<int>(orders.rhs[0]));
  if (rhs.shape(static_cast<int>(orders.rhs[1])) == 0 || out == 0)
    fail(ErrorKind::shape_mismatch, conv_op.name, "given {} and {}: no features, expected 1 or more in and out.",
         lhs.type_string(), rhs.type_string());
  if (groups < 1 || in != groups * rhs.shape(static_cast<int>(orders.rhs[1])) || out % groups)
    fail(ErrorKind::shape_mismatch, conv_op.name,
         "given {} and {}: {} groups of {} features, and kernels for {} of them.", lhs.type_string(), rhs.type_string(),
         groups, in, rhs.shape(static_cast<int>(orders.rhs[1])));
}

// The values that depend on the operands' types and the options; first those that every call reads.
struct Convolution {
  bool is_direct = false;  // the operands go to LibTorch's kernel, and its result to the caller, unchanged
  bool one_group = true;
  Attributes attributes;
  Sizes strides, holes, zero;  // holes: the kernel's dilation; zero: no padding
  Sizes padding;               // padding of LibTorch's kernel, equal before and after; then the windows have none
  Windows windows;
  Orders orders;
  Sizes out_order;  // from the canonical order
  Sizes spread;     // the image's dilation
};

Windows conv_windows(const Array& x, const Array& rhs, const Convolution& c, const std::vector<int64_t>& strides,
                     const Padding& padding) {
  Sizes sizes = spatial_sizes(x, c.orders.lhs), extents = spatial_sizes(rhs, c.orders.rhs);
  for (size_t d = 0; d < sizes.size(); ++d)
    sizes[d] = dilated(sizes[d], c.spread[d]), extents[d] = dilated(extents[d], c.holes[d]);
  if (std::find(extents.begin(), extents.end(), 0) != extents.end())
    fail(ErrorKind::shape_mismatch, conv_op.name, "kernel {} has a spatial dim of 0, expected 1 or more.",
         rhs.type_string());
  return windows_over(conv_op.name, sizes, extents, given_or_ones(conv_op.name, "strides", strides, sizes.size()),
                      padding);
}

// Lets LibTorch's kernel add padding that is equal before and after the elements.
void hand_over_padding(Convolution& c) {
  Windows& w = c.windows;
  const bool alike =
      w.before == w.after && std::all_of(w.before.begin(), w.before.end(), [](auto n) { return n >= 0; });
  if (alike) std::swap(c.padding, w.before), w.before = w.after = c.zero;
}

Convolution convolution(const Array& x, const Array& rhs, const std::vector<int64_t>& strides, const Padding& padding,
                        const ConvolutionOptions& options) {
  check_conv(x, rhs);
  const size_t spatial = x.ndim() - 2;
  Convolution c{.zero = Sizes(spatial, 0), .orders = read_orders(options.dimension_numbers, x.ndim())};
  const Orders& orders = c.orders;
  check_features(x, rhs, orders, options.feature_group_count);
  c.spread = given_or_ones(conv_op.name, "lhs_dilation", options.lhs_dilation, spatial);
  c.holes = given_or_ones(conv_op.name, "rhs_dilation", options.rhs_dilation, spatial);
  const bool plain = c.spread == Sizes(spatial, 1);
  if (!padding.name().empty() && padding.name() != "VALID" && !plain)
    fail(ErrorKind::invalid_argument, conv_op.name, "padding by name with lhs_dilation, expected pairs.");
  c.out_order = inverse(orders.out);
  c.windows = conv_windows(x, rhs, c, strides, padding);
  if (plain) cut_like(*x.impl()->type, at::IntArrayRef(orders.lhs).slice(2), rhs.impl()->type->sharded, c.windows);
  c.padding = c.zero;
  hand_over_padding(c);
  c.attributes = {options.feature_group_count, numbers_of_orders().number_of(orders)};
  c.strides = c.windows.strides;
  add_windows(c.attributes, c.windows);
  c.one_group = options.feature_group_count == 1;
  c.is_direct =
      plain && is_unpadded(c.windows) && is_natural(orders.lhs) && is_natural(orders.rhs) && is_natural(orders.out);
  return c;
}

const Convolution& known_convolution(const Array& x, const Array& rhs, const std::vector<int64_t>& strides,
                                     const Padding& padding, const ConvolutionOptions& options) {
  using Integers = std::vector<int64_t>;
  using Word = std::string;
  using Pairs = Padding::Pairs;
  using Key =
      std::tuple<const Type*, const Type*, Integers, Word, Pairs, Integers, Integers, Word, Word, Word, int64_t>;
  const char* verb = conv_op.name;
  thread_local BoundedCache<std::map<Key, Convolution, std::less<>>, 128> known;
  const ConvDimensionNumbers& numbers = options.dimension_numbers;
  return known
      .get(std::forward_as_tuple(materialized(x, verb).type, materialized(rhs, verb).type, strides, padding.name(),
                                 padding.pairs(), options.lhs_dilation, options.rhs_dilation, numbers.lhs, numbers.rhs,
                                 numbers.out, options.feature_group_count),
           [&] { return convolution(x, rhs, strides, padding, options); })
      .second;
}

at::Tensor by_kernel(const at::Tensor& image, const at::Tensor& kernel, const Convolution& c) {
  return at::convolution(image, kernel, {}, c.strides, c.padding, c.holes, false, c.zero,
                         c.one_group ? 1 : image.size(1) / kernel.size(1));
}

at::Tensor convolved(const at::Tensor& x, const at::Tensor& w, const Convolution& c) {
  if (c.is_direct && w.is_contiguous()) return by_kernel(x, w, c);
  const at::Tensor image = padded(spread_out(in_order(x, c.orders.lhs), c.spread), c.windows, 0);
  return in_order(by_kernel(image, in_order(w, c.orders.rhs).contiguous(), c), c.out_order);
}

}  // namespace

Array conv_general_dilated(Operand lhs, const Array& rhs, const std::vector<int64_t>& window_strides,
                           const Padding& padding, const ConvolutionOptions& options) {
  const Convolution& c = known_convolution(lhs.array(), rhs, window_strides, padding, options);
  Array made;
  const Array& in = with_halos(conv_op, lhs, at::IntArrayRef(c.orders.lhs).slice(2), c.windows, 0, made);
  Array result = run({.operation = conv_op, .attributes = c.attributes, .where = lhs.where()}, {&in, &rhs},
                     [&](Locals t, const BlockContext&) { return convolved(t[0], t[1], c); });
  return placed_result(std::move(result), {options.out_sharding}, conv_op.name, lhs.where());
}

}  // namespace tessera
