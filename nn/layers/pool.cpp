// Implements the pools, and computes the windows of adaptive pools.
#include "nn/layers/pool.h"

#include "nn/layers/shapes.h"
#include "sharding/base/caller.h"
#include "sharding/base/fail.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/shape/joining.h"

namespace tessera::nn {

namespace {

void check_adaptive(const char* layer, const Array& x, const std::vector<int64_t>& sizes) {
  if (sizes.empty() || sizes.size() > 3)
    fail(ErrorKind::invalid_argument, layer, "{} sizes given, expected one for each of 1 to 3 spatial dims.",
         sizes.size());
  for (const int64_t size : sizes) check_positive(layer, "size", size);
  if (x.ndim() <= static_cast<int>(sizes.size()))
    fail(ErrorKind::shape_mismatch, layer, "given {}, expected (..., {} spatial dims, features).", x.type_string(),
         sizes.size());
  check_places(layer, x, static_cast<int>(sizes.size()));
}

// Pools one spatial dimension after another; `of_window` reduces a dimension to size 1.
template <class OfWindow>
Array adaptive(const char* layer, const Operand& x, const std::vector<int64_t>& sizes, OfWindow of_window) {
  const CallerScope caller(x.where());
  check_adaptive(layer, x.array(), sizes);
  Array y = x.array();
  for (size_t s = 0; s < sizes.size(); ++s) {
    const int dim = y.ndim() - 1 - static_cast<int>(sizes.size() - s);
    const int64_t n = y.shape(dim), size = sizes[s];
    if (n == size) continue;
    std::vector<Array> places;
    for (int64_t i = 0; i < size; ++i)
      places.push_back(of_window(slice_in_dim(y, i * n / size, ((i + 1) * n + size - 1) / size, dim), dim));
    y = places.size() == 1 ? places[0] : concatenate(places, dim);
  }
  return y;
}

}  // namespace

Array MaxPool::operator()(Operand x) const {
  const CallerScope caller(x.where());
  return max_pool(x, window, strides, padding);
}

Array AvgPool::operator()(Operand x) const {
  const CallerScope caller(x.where());
  return avg_pool(x, window, strides, padding, count_include_pad);
}

Array AdaptiveAvgPool::operator()(Operand x) const {
  return adaptive("AdaptiveAvgPool", x, sizes, [](const Array& y, int dim) { return mean(y, {dim}, true); });
}

Array AdaptiveMaxPool::operator()(Operand x) const {
  return adaptive("AdaptiveMaxPool", x, sizes, [](const Array& y, int dim) { return max(y, {dim}, true); });
}

}  // namespace tessera::nn
