// Rows cut where they lie, sums of gradients, and their one reduction.
#include "nn/accumulate_gradients.h"

#include <fmt/format.h>

#include "sharding/operations.h"
#include "sharding/together.h"

namespace tessera::nn::detail {

namespace {

// (n parts of rows) on each device: dim 0 as (devices, parts, rows), of which one part is taken.
Array part_of(const Leaf& leaf, int64_t i, int64_t n) {
  const Array& x = *leaf.value;
  const int64_t blocks = x.is_committed() ? x.shape(0) / x.sharding().shard_shape(x.shape())[0] : 1;
  if (x.shape(0) % (blocks * n))
    fail(ErrorKind::uneven, "accumulate_gradients",
         fmt::format("{}{}: {} rows on each of {} devices are not divisible by {} micro-batches. Change one of them.",
                     leaf.path, leaf.path.empty() ? x.type_string() : "", x.shape(0) / blocks, blocks, n));
  Shape apart = x.shape(), joined = x.shape();
  apart[0] = blocks;
  apart.insert(apart.begin() + 1, {n, x.shape(0) / (blocks * n)});
  joined[0] = x.shape(0) / n;
  return reshape(slice_in_dim(reshape(x, apart), i, i + 1, 1), joined);
}

}  // namespace

void check_micro_batches(int64_t n) {
  if (n < 1)
    fail(ErrorKind::bad_argument, "accumulate_gradients",
         fmt::format("{} micro-batches given, expected 1 or more.", n));
}

void take_micro_batch(const Leaves& batch, int64_t i, int64_t n) {
  if (n == 1) return;
  for (const Leaf& leaf : batch)
    if (!leaf.value->is_absent() && leaf.value->ndim() > 0) *leaf.value = part_of(leaf, i, n);
}

void add(const Leaves& sums, const Leaves& gradients) {
  for (size_t i = 0; i < sums.size(); ++i)
    if (!sums[i].value->is_absent()) *sums[i].value = *sums[i].value + *gradients[i].value;
}

void finish_mean(const Leaves& sums, const Leaves& params, int64_t n, const GradientOptions& options) {
  for (const Leaf& sum : sums)
    if (!sum.value->is_absent() && n > 1) *sum.value = *sum.value / static_cast<double>(n);
  if (!options.reduce) return;
  std::vector<Array*> gradients;
  std::vector<const Array*> places;
  for (size_t i = 0; i < sums.size(); ++i) {
    if (sums[i].value->is_absent()) continue;
    gradients.push_back(sums[i].value);
    places.push_back(params[i].value);
  }
  place_together(gradients, places, "gradients", options.reduction);
}

Array mean_of(const std::vector<Array>& losses) {
  Array sum = losses[0];
  for (size_t i = 1; i < losses.size(); ++i) sum = sum + losses[i];
  return losses.size() == 1 ? sum : sum / static_cast<double>(losses.size());
}

}  // namespace tessera::nn::detail
