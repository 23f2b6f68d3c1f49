// Pooling: spatial dimensions as windows, then one kernel of LibTorch.
#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <tuple>

#include "sharding/base/fail.h"
#include "sharding/base/thread_state.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/neural/convolution.h"
#include "sharding/operations/neural/halo_windows.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/propagation/run.h"
#include "sharding/propagation/sharded_reduction.h"
#include "sharding/redistribution/device_put.h"

namespace tessera {

using namespace detail;

namespace {

using Integers = std::vector<int64_t>;

// Returns the rule of pooling. Attributes: for each spatial dimension its blocks and windows.
ShardingRule pool_rule(const Attributes& a, const OperandTypes&) {
  RuleDims in{any_dims()}, out{any_dims()};
  for (int d = 0; d < a.size(); d += 2) {
    in.push_back(spatial_dim(d, a[d]));
    out.push_back(windows_dim(d, a[d], a[d + 1]));
  }
  in.push_back(factor("c")), out.push_back(factor("c"));
  return {{in}, {out}};
}

const Operation max_pool_op{"max_pool", pool_rule, Linearity::nonlinear};
const Operation avg_pool_op{"avg_pool", pool_rule, Linearity::additive};

// Views x (..., spatial, features) as (batch, features, spatial). A single spatial dimension gets another of size one,
// for LibTorch's 2-D kernels.
at::Tensor features_first(const at::Tensor& x, size_t spatial) {
  if (x.dim() != static_cast<int64_t>(spatial) + 2) {
    Sizes shape(x.sizes().end() - spatial - 1, x.sizes().end());
    shape.insert(shape.begin(), -1);
    return features_first(x.reshape(shape), spatial);
  }
  return spatial == 1 ? x.movedim(-1, 1).unsqueeze(2) : x.movedim(-1, 1);
}

at::Tensor features_last(const at::Tensor& pooled, const at::Tensor& x, size_t spatial) {
  at::Tensor rows = spatial == 1 ? pooled.squeeze(2).movedim(1, -1) : pooled.movedim(1, -1);
  if (x.dim() == rows.dim()) return rows;
  Sizes shape(x.sizes());
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
  if (window.size() < 3) return at::avg_pool2d(x, window, strides);
  // LibTorch has no kernel of avg_pool3d for half precision on CPUs.
  return at::avg_pool3d(x.is_cpu() ? widened_in_graph(x) : x, window, strides).to(x.scalar_type());
}

// The values that depend on the operand's type and the options.
struct Pooling {
  Windows windows;
  Sizes dims;              // the spatial dimensions
  Sizes extents, strides;  // as LibTorch's kernel takes them
  Attributes attributes;
};

Pooling pooling(const Operation& operation, const Array& a, at::IntArrayRef window, at::IntArrayRef strides,
                const Padding& padding) {
  const size_t spatial = window.size();
  if (spatial < 1 || spatial > 3)
    fail(ErrorKind::shape_mismatch, operation.name, "window {} given, expected a size for each of 1 to 3 spatial dims.",
         to_string(window.vec()));
  if (a.ndim() < static_cast<int>(spatial) + 1)
    fail(ErrorKind::shape_mismatch, operation.name,
         "a window {} over {}, expected (..., {} spatial dims, features). Reshape x, or give a window of fewer sizes.",
         to_string(window.vec()), a.type_string(), spatial);
  check_floating(operation.name, a, "x");
  if (a.shape(-1) == 0)
    fail(ErrorKind::shape_mismatch, operation.name, "given {}: no features, expected 1 or more.", a.type_string());
  const Sizes sizes(a.shape().end() - spatial - 1, a.shape().end() - 1);
  Pooling p{.windows = windows_over(operation.name, sizes, given_or_ones(operation.name, "window", window, spatial),
                                    given_or_ones(operation.name, "strides", strides, spatial), padding)};
  for (size_t d = 0; d < spatial; ++d) p.dims.push_back(static_cast<int64_t>(a.ndim() - spatial - 1 + d));
  cut_like(*a.impl()->type, p.dims, 0, p.windows);
  p.extents = with_one(p.windows.extents);
  p.strides = with_one(p.windows.strides);
  add_windows(p.attributes, p.windows);
  return p;
}

const Pooling& known_pooling(const Operation& operation, const Array& a, const Integers& window,
                             const Integers& strides, const Padding& padding) {
  using Key = std::tuple<const Type*, const Operation*, Integers, Integers, std::string, Padding::Pairs>;
  thread_local BoundedCache<std::map<Key, Pooling, std::less<>>, 128> known;
  return known
      .get(std::forward_as_tuple(materialized(a, operation.name).type, &operation, window, strides, padding.name(),
                                 padding.pairs()),
           [&] { return pooling(operation, a, window, strides, padding); })
      .second;
}

using Pool = at::Tensor (*)(const at::Tensor& x, const Sizes& window, const Sizes& strides);

// Applies `kernel` to every window; padding has the value `outside`.
Array pool(const Operation& operation, const Operand& x, const Integers& window, const Integers& strides,
           const Padding& padding, double outside, Pool kernel) {
  const Pooling& p = known_pooling(operation, x.array(), window, strides, padding);
  Array made;
  const Array& in = with_halos(operation, x, p.dims, p.windows, outside, made);
  return run({.operation = operation, .attributes = p.attributes, .where = x.where()}, {&in},
             [&](Locals t, const BlockContext&) {
               const at::Tensor image = padded(features_first(t[0], p.dims.size()), p.windows, outside);
               return features_last(kernel(image, p.extents, p.strides), t[0], p.dims.size());
             });
}

// Returns ones at each position of x's spatial dimensions, sharded in the same way.
Array places(const Array& x, size_t spatial) {
  Shape shape = x.shape();
  const size_t first = shape.size() - spatial - 1;
  std::fill(shape.begin(), shape.begin() + first, 1);
  shape.back() = 1;
  if (!x.is_committed()) return ones(shape, x.dtype());
  std::vector<SpecEntry> entries = x.sharding().spec().entries();
  entries.resize(shape.size());
  for (size_t d = 0; d < shape.size(); ++d)
    if (shape[d] == 1) entries[d] = SpecEntry();
  return device_put(ones(shape, x.dtype()), NamedSharding(x.sharding().mesh(), PartitionSpec(entries)));
}

}  // namespace

Array max_pool(Operand x, const std::vector<int64_t>& window, const std::vector<int64_t>& strides,
               const Padding& padding) {
  return pool(max_pool_op, x, window, strides, padding, -std::numeric_limits<double>::infinity(), largest);
}

Array avg_pool(Operand x, const std::vector<int64_t>& window, const std::vector<int64_t>& strides,
               const Padding& padding, bool count_include_pad) {
  const Array means = pool(avg_pool_op, x, window, strides, padding, 0, averages);
  if (count_include_pad) return means;
  const Array inside =
      pool(avg_pool_op, {places(x.array(), window.size()), x.where()}, window, strides, padding, 0, averages);
  return Operand(means, x.where()) / Operand(inside, x.where());
}

}  // namespace tessera
