// Arithmetic of weighted sums.
#include "sharding/base/caller.h"
#include "sharding/base/fail.h"
#include "sharding/operations/argument_checks.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/linalg/linear_algebra.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/creation.h"

namespace tessera {

Array WeightedSum::mean(std::source_location where) const {
  const CallerScope caller(where);
  return sum / tessera::where(equal(weight, 0), 1, weight);
}

WeightedSum operator+(const WeightedSum& a, const WeightedSum& b) { return {a.sum + b.sum, a.weight + b.weight}; }

WeightedSum weighted_sum(Operand values, const Array& weights) {
  const CallerScope caller(values.where());
  const Array& x = values.array();
  const DType dtype = detail::sum_dtype(x.dtype());
  if (weights.is_absent()) return {sum(astype(x, dtype)), full({}, static_cast<double>(x.size()), dtype)};
  if (weights.shape() != x.shape())
    fail(ErrorKind::shape_mismatch, "weighted_sum", "weights {} of values {}, expected the same shape.",
         weights.type_string(), x.type_string());
  const DType common = is_floating(weights.dtype()) ? promote(dtype, weights.dtype()) : dtype;
  const Array w = astype(weights, common);
  return {sum(astype(x, common) * w), sum(w)};
}

}  // namespace tessera
