// Convolutions and pooling: the spatial dims as windows, then one kernel of LibTorch.
#include "sharding/convolution.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "sharding/operations_common.h"

namespace tessera {

using namespace detail;

namespace {

const Operation conv_op{"conv_general_dilated", "", Linearity::multilinear};
const Operation max_pool_op{"max_pool", "", Linearity::nonlinear};
const Operation avg_pool_op{"avg_pool", "", Linearity::additive};

}  // namespace

// ---- windows over spatial dims

namespace {

using Sizes = std::vector<int64_t>;

struct Windows {
  Sizes strides, before, after, out;  // padding is what is added before and after
};

[[noreturn]] void misfit(const char* verb, const std::string& why) { fail(ErrorKind::shape_mismatch, verb, why); }

Sizes given_or_ones(const char* verb, const char* what, const Sizes& given, size_t n) {
  if (given.empty()) return Sizes(n, 1);
  if (given.size() != n || *std::min_element(given.begin(), given.end()) < 1)
    misfit(verb, fmt::format("{} {} given, expected {} sizes from 1.", what, to_string(given), n));
  return given;
}

std::pair<int64_t, int64_t> padding_of(const char* verb, const Padding& padding, size_t dim, int64_t size,
                                       int64_t window, int64_t stride) {
  if (padding.name().empty()) return padding.pairs()[dim];
  if (padding.name() == "VALID") return {0, 0};
  const int64_t out = (size + stride - 1) / stride, total = std::max<int64_t>((out - 1) * stride + window - size, 0);
  if (padding.name() == "SAME") return {total / 2, total - total / 2};
  if (padding.name() == "SAME_LOWER") return {total - total / 2, total / 2};
  fail(ErrorKind::bad_argument, verb,
       fmt::format("padding \"{}\" given, expected SAME, SAME_LOWER, VALID or pairs.", padding.name()));
}

// Windows of these extents over dims of these sizes.
Windows windows_over(const char* verb, const Sizes& sizes, const Sizes& extents, Sizes strides,
                     const Padding& padding) {
  if (padding.name().empty() && padding.pairs().size() != sizes.size())
    misfit(verb, fmt::format("{} pairs of padding given, expected {}.", padding.pairs().size(), sizes.size()));
  Windows w{.strides = std::move(strides), .before = {}, .after = {}, .out = {}};
  for (size_t d = 0; d < sizes.size(); ++d) {
    const auto [before, after] = padding_of(verb, padding, d, sizes[d], extents[d], w.strides[d]);
    w.before.push_back(before);
    w.after.push_back(after);
    w.out.push_back(std::max<int64_t>((sizes[d] + before + after - extents[d]) / w.strides[d] + 1, 0));
    if (sizes[d] + before + after < extents[d]) w.out.back() = 0;
    if (w.out.back() == 0)
      misfit(verb, fmt::format("a window of {} does not fit into {} places of spatial dim {}.", extents[d],
                               sizes[d] + before + after, d));
  }
  return w;
}

// (..., spatial dims) with the padding written out.
at::Tensor padded(const at::Tensor& x, const Windows& w, const at::Scalar& value) {
  Sizes amounts;
  for (size_t d = w.before.size(); d-- > 0;) amounts.push_back(w.before[d]), amounts.push_back(w.after[d]);
  const bool none = std::all_of(amounts.begin(), amounts.end(), [](int64_t n) { return n == 0; });
  return none ? x : at::constant_pad_nd(x, amounts, value);
}

std::string numbered(const char* format, size_t n) {
  std::vector<std::string> names;
  for (size_t i = 0; i < n; ++i) names.push_back(fmt::format(fmt::runtime(format), i));
  return fmt::format("{}", fmt::join(names, " "));
}

}  // namespace

// ---- convolution

namespace {

// dim i of the canonical order (batch or features out, features, spatial dims) is dim order[i] of the array.
Sizes order_of(const std::string& spec, const std::string& spatial_like, char first, char second) {
  Sizes order{static_cast<int64_t>(spec.find(first)), static_cast<int64_t>(spec.find(second))};
  for (char c : spatial_like)
    if (c != 'I' && c != 'O') order.push_back(static_cast<int64_t>(spec.find(c)));
  return order;
}

struct Orders {
  Sizes lhs, rhs, out;
};

bool fits(const std::string& spec, const std::string& rhs, char first, char second) {
  std::string letters = rhs, given = spec;
  std::replace(letters.begin(), letters.end(), 'O', first);
  std::replace(letters.begin(), letters.end(), 'I', second);
  std::sort(letters.begin(), letters.end());
  std::sort(given.begin(), given.end());
  return letters == given && std::adjacent_find(given.begin(), given.end()) == given.end();
}

Orders read_orders(ConvDimensionNumbers d, size_t ndim) {
  const std::string spatial = std::string("HWD").substr(0, ndim - 2);
  if (d.lhs.empty() && d.rhs.empty() && d.out.empty()) d = {"NC" + spatial, "OI" + spatial, "NC" + spatial};
  if (d.rhs.size() != ndim || !fits(d.rhs, d.rhs, 'O', 'I') || !fits(d.lhs, d.rhs, 'N', 'C') ||
      !fits(d.out, d.rhs, 'N', 'C'))
    misfit(conv_op.name,
           fmt::format("dimension numbers \"{}\", \"{}\", \"{}\" for {} dims, expected as in \"NHWC\", \"HWIO\", "
                       "\"NHWC\".",
                       d.lhs, d.rhs, d.out, ndim));
  return {order_of(d.lhs, d.rhs, 'N', 'C'), order_of(d.rhs, d.rhs, 'O', 'I'), order_of(d.out, d.rhs, 'N', 'C')};
}

// An order as one number for a plan's key, and its terms put in that order.
int64_t packed(const Sizes& order) {
  int64_t code = 0;
  for (int64_t d : order) code = code * 8 + d;
  return code;
}

std::string arranged(int64_t code, const std::vector<std::string>& terms) {
  std::vector<std::string> result(terms.size());
  for (size_t i = terms.size(); i-- > 0; code /= 8) result[code % 8] = terms[i];
  return fmt::format("{}", fmt::join(result, " "));
}

bool is_cut(const Type& x, int64_t packed_order, int place) {
  for (int i = static_cast<int>(x.shape.size()) - 1; i > place; --i) packed_order /= 8;
  return x.mesh && !x.dims[packed_order % 8].empty();
}

// Attributes: groups, the three orders, the spatial sizes of the result. Features in are summed over where they lie if
// both operands are cut there; else they are gathered, which is less than a sum of the result.
std::string conv_rule(const Attributes& a, const std::vector<const Type*>& operands) {
  const bool sums = is_cut(*operands[0], a[1], 1) && is_cut(*operands[1], a[2], 1);
  const std::string in = sums ? "i" : "[i]";
  std::vector<std::string> lhs{"n", fmt::format("{{g={} {}}}", a[0], in)}, rhs{"{g o}", in}, out{"n", "{g o}"};
  for (int d = 4; d < a.size(); ++d) {
    lhs.push_back(fmt::format("[s{}]", d));
    rhs.push_back(fmt::format("[k{}]", d));
    out.push_back(fmt::format("[t{}={}]", d, a[d]));
  }
  return fmt::format("{}, {} -> {}", arranged(a[1], lhs), arranged(a[2], rhs), arranged(a[3], out));
}

Sizes spatial_sizes(const Array& x, const Sizes& order) {
  Sizes sizes;
  for (size_t i = 2; i < order.size(); ++i) sizes.push_back(x.shape(static_cast<int>(order[i])));
  return sizes;
}

int64_t dilated(int64_t size, int64_t dilation) { return size == 0 ? 0 : (size - 1) * dilation + 1; }

// Zeros between the elements of the spatial dims.
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

Sizes inverse(const Sizes& order) {
  Sizes result(order.size());
  for (size_t i = 0; i < order.size(); ++i) result[order[i]] = static_cast<int64_t>(i);
  return result;
}

void check_conv(const Array& lhs, const Array& rhs) {
  materialized(lhs, conv_op.name);
  materialized(rhs, conv_op.name);
  if (lhs.ndim() != rhs.ndim() || lhs.ndim() < 3 || lhs.ndim() > 5)
    misfit(conv_op.name,
           fmt::format("given {} and {}, expected 3 to 5 dims of both.", lhs.type_string(), rhs.type_string()));
  if (lhs.dtype() != rhs.dtype())
    fail(ErrorKind::dtype_mismatch, conv_op.name,
         fmt::format("given {} and {}, expected one element type. Cast one with astype.", lhs.type_string(),
                     rhs.type_string()));
}

void check_features(const Array& lhs, const Array& rhs, const Orders& orders, int64_t groups) {
  const int64_t in = lhs.shape(static_cast<int>(orders.lhs[1])), out = rhs.shape(static_cast<int>(orders.rhs[0]));
  if (groups < 1 || in != groups * rhs.shape(static_cast<int>(orders.rhs[1])) || out % groups)
    misfit(conv_op.name,
           fmt::format("given {} and {}: {} groups of {} features, and kernels for {} of them.", lhs.type_string(),
                       rhs.type_string(), groups, in, rhs.shape(static_cast<int>(orders.rhs[1]))));
}

}  // namespace

Array conv_general_dilated(Operand lhs, const Array& rhs, const std::vector<int64_t>& window_strides,
                           const Padding& padding, const ConvOptions& options) {
  const Array& x = lhs.array();
  check_conv(x, rhs);
  const size_t spatial = x.ndim() - 2;
  const Orders orders = read_orders(options.dimension_numbers, x.ndim());
  check_features(x, rhs, orders, options.feature_group_count);
  const Sizes spread = given_or_ones(conv_op.name, "lhs_dilation", options.lhs_dilation, spatial);
  const Sizes holes = given_or_ones(conv_op.name, "rhs_dilation", options.rhs_dilation, spatial);
  if (!padding.name().empty() && padding.name() != "VALID" && spread != Sizes(spatial, 1))
    fail(ErrorKind::bad_argument, conv_op.name, "padding by name with lhs_dilation, expected pairs.");
  Sizes sizes = spatial_sizes(x, orders.lhs), extents = spatial_sizes(rhs, orders.rhs);
  for (size_t d = 0; d < spatial; ++d)
    sizes[d] = dilated(sizes[d], spread[d]), extents[d] = dilated(extents[d], holes[d]);
  const Windows w = windows_over(conv_op.name, sizes, extents,
                                 given_or_ones(conv_op.name, "strides", window_strides, spatial), padding);
  Attributes attributes{options.feature_group_count, packed(orders.lhs), packed(orders.rhs), packed(orders.out)};
  for (int64_t size : w.out) attributes.push_back(size);
  Array result = run({.operation = conv_op, .rule = conv_rule, .attributes = attributes, .where = lhs.where()},
                     {&x, &rhs}, [&](Locals t, const Where&) {
                       const at::Tensor in = padded(spread_out(t[0].permute(orders.lhs), spread), w, 0);
                       const at::Tensor kernel = t[1].permute(orders.rhs);
                       return at::convolution(in, kernel, {}, w.strides, Sizes(spatial, 0), holes, false,
                                              Sizes(spatial, 0), in.size(1) / kernel.size(1))
                           .permute(inverse(orders.out));
                     });
  return placed_result(std::move(result), {options.out_sharding}, conv_op.name, lhs.where());
}

// ---- pooling

namespace {

std::string pool_rule(const Attributes& out, const std::vector<const Type*>&) {
  std::vector<std::string> sizes;
  for (int d = 0; d < out.size(); ++d) sizes.push_back(fmt::format("[t{}={}]", d, out[d]));
  return fmt::format("... {} c -> ... {} c", numbered("[s{}]", out.size()), fmt::join(sizes, " "));
}

// x (..., spatial, features) as (batch, features, spatial), with a dim of one for what LibTorch has no kernel of.
at::Tensor features_first(const at::Tensor& x, size_t spatial) {
  Sizes shape(x.sizes().end() - spatial - 1, x.sizes().end());
  shape.insert(shape.begin(), -1);
  const at::Tensor rows = x.reshape(shape).movedim(-1, 1);
  return spatial == 1 ? rows.unsqueeze(2) : rows;
}

at::Tensor features_last(const at::Tensor& pooled, const at::Tensor& x, size_t spatial) {
  const at::Tensor rows = (spatial == 1 ? pooled.squeeze(2) : pooled).movedim(1, -1);
  Sizes shape = x.sizes().vec();
  std::copy(rows.sizes().begin() + 1, rows.sizes().end(), shape.end() - spatial - 1);
  return rows.reshape(shape);
}

Sizes with_one(Sizes sizes) {
  if (sizes.size() == 1) sizes.insert(sizes.begin(), 1);
  return sizes;
}

at::Tensor largest(const at::Tensor& x, const Sizes& window, const Sizes& strides) {
  return window.size() == 3 ? at::max_pool3d(x, window, strides) : at::max_pool2d(x, window, strides);
}

at::Tensor averages(const at::Tensor& x, const Sizes& window, const Sizes& strides) {
  return window.size() == 3 ? at::avg_pool3d(x, window, strides) : at::avg_pool2d(x, window, strides);
}

// `kernel` on every window; `outside` is what padding counts as.
template <class Kernel>
Array pool(const Operation& operation, const Operand& x, const Sizes& window, const Sizes& strides,
           const Padding& padding, const at::Scalar& outside, Kernel kernel) {
  const Array& a = x.array();
  materialized(a, operation.name);
  const size_t spatial = window.size();
  if (spatial < 1 || spatial > 3 || a.ndim() < static_cast<int>(spatial) + 1 || !is_floating(a.dtype()))
    misfit(
        operation.name,
        fmt::format("a window {} over {}, expected 1 to 3 spatial dims in front of the features, of a floating type.",
                    to_string(window), a.type_string()));
  const Sizes sizes(a.shape().end() - spatial - 1, a.shape().end() - 1);
  const Windows w = windows_over(operation.name, sizes, given_or_ones(operation.name, "window", window, spatial),
                                 given_or_ones(operation.name, "strides", strides, spatial), padding);
  Attributes attributes;
  for (int64_t size : w.out) attributes.push_back(size);
  return run({.operation = operation, .rule = pool_rule, .attributes = attributes, .where = x.where()}, {&a},
             [&](Locals t, const Where&) {
               const at::Tensor in = padded(features_first(t[0], spatial), w, outside);
               return features_last(kernel(in, w), t[0], spatial);
             });
}

}  // namespace

Array max_pool(Operand x, const std::vector<int64_t>& window, const std::vector<int64_t>& strides,
               const Padding& padding) {
  return pool(
      max_pool_op, x, window, strides, padding, -std::numeric_limits<double>::infinity(),
      [&](const at::Tensor& in, const Windows& w) { return largest(in, with_one(window), with_one(w.strides)); });
}

Array avg_pool(Operand x, const std::vector<int64_t>& window, const std::vector<int64_t>& strides,
               const Padding& padding, bool count_include_pad) {
  return pool(avg_pool_op, x, window, strides, padding, 0, [&](const at::Tensor& in, const Windows& w) {
    const at::Tensor means = averages(in, with_one(window), with_one(w.strides));
    if (count_include_pad) return means;
    Sizes inside = in.sizes().vec();
    inside[0] = inside[1] = 1;
    for (size_t d = 0; d < w.before.size(); ++d)
      inside[inside.size() - w.before.size() + d] -= w.before[d] + w.after[d];
    const at::Tensor ones = padded(at::ones(inside, in.options()), w, 0);
    return means / averages(ones, with_one(window), with_one(w.strides));
  });
}

}  // namespace tessera
