// Splits batches by rows without communication, adds gradients up, and reduces them once.
#include "nn/transformations/accumulate_gradients.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/index/slicing.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/placement/type.h"
#include "sharding/redistribution/coalesced.h"

namespace tessera::nn::detail {

namespace {

bool has_rows(const Leaf& leaf) { return !leaf.value->is_absent() && leaf.value->ndim() > 0; }

// Reshapes dimension 0 to (blocks, micro-batches, rows) and takes one micro-batch.
Array part_of(const Leaf& leaf, int64_t blocks, int64_t i, int64_t n) {
  const Array& x = *leaf.value;
  Shape apart = x.shape(), joined = x.shape();
  apart[0] = blocks;
  apart.insert(apart.begin() + 1, {n, x.shape(0) / (blocks * n)});
  joined[0] = x.shape(0) / n;
  return reshape(slice_in_dim(reshape(x, apart), i, i + 1, 1), joined);
}

// Sums are float32 or wider, because a sum of many gradients in half precision loses the small ones.
DType wide(DType dtype) { return item_size(dtype) < 4 ? float32 : dtype; }
Array widened(const Array& x) { return astype(x, wide(x.dtype())); }

Array sum_of(const std::vector<Array>& parts) {
  Array sum = widened(parts[0]);
  for (size_t i = 1; i < parts.size(); ++i) sum = sum + widened(parts[i]);
  return sum;
}

// Returns the weight, or 1 for weight 0, as WeightedSum::mean.
Array divisor(const Array& weight) { return where(equal(weight, 0), 1, weight); }

}  // namespace

int64_t blocks_of_rows(std::initializer_list<Leaves> batches) {
  int64_t blocks = 1;
  for (const Leaves& batch : batches)
    for (const Leaf& leaf : batch)
      if (has_rows(leaf) && leaf.value->is_committed() && leaf.value->shape(0) > 0) {
        const int64_t rows = leaf.value->shape(0);
        const int64_t each = leaf.value->sharding().shard_shape(leaf.value->shape())[0];
        if (rows % each == 0) blocks = std::lcm(blocks, rows / each);  // padded rows are split as one block
      }
  return blocks;
}

void check_micro_batches(int64_t n, const char* verb) {
  if (n < 1) fail(ErrorKind::invalid_argument, verb, "{} micro-batches given, expected 1 or more.", n);
}

void check_rows(std::initializer_list<Leaves> batches, int64_t blocks, int64_t n, const char* verb) {
  for (const Leaves& batch : batches)
    for (const Leaf& leaf : batch) {
      if (n == 1 || !has_rows(leaf)) continue;
      const int64_t rows = leaf.value->shape(0) / blocks;
      if (leaf.value->shape(0) == 0)
        fail(ErrorKind::not_divisible, verb, "{}{} has no rows, expected some for each of {} micro-batches.", leaf.path,
             leaf.path.empty() ? leaf.value->type_string() : "", n);
      if (rows == 0 || leaf.value->shape(0) % blocks || rows % n)
        fail(ErrorKind::not_divisible, verb,
             "{}{}: {} rows on each of {} devices are not divisible by {} micro-batches. Change one of them.",
             leaf.path, leaf.path.empty() ? leaf.value->type_string() : "", rows, blocks, n);
    }
}

void check_axes(const Leaves& model, const GradientOptions& options, const char* verb) {
  const auto placed = std::ranges::find_if(
      model, [](const Leaf& leaf) { return !leaf.value->is_absent() && leaf.value->is_committed(); });
  tessera::detail::check_axes(verb, "shard_gradients_over", options.shard_gradients_over,
                              placed == model.end() ? nullptr : placed->value->impl()->type->mesh);
}

void take_micro_batch(const Leaves& batch, int64_t blocks, int64_t i, int64_t n) {
  for (const Leaf& leaf : batch)
    if (has_rows(leaf)) *leaf.value = part_of(leaf, blocks, i, n);
}

void fold_keys(const Parts& parts, int64_t i) {
  const auto fold = [&](void* key) {
    *static_cast<Key*>(key) = fold_in(*static_cast<Key*>(key), static_cast<uint32_t>(i));
  };
  for (const Part& part : parts) {
    const PartType* element = part.type->element;
    if (part.type->kind == ScalarKind::key) fold(part.node);
    if (element && element->kind == ScalarKind::key) part.type->for_each(part.node, fold);
  }
}

void add(const Leaves& sums, const Leaves& gradients) {
  for (size_t i = 0; i < sums.size(); ++i)
    if (!sums[i].value->is_absent()) *sums[i].value = widened(*sums[i].value) + widened(*gradients[i].value);
}

void PartSums::add(const Array& loss, const Array& weight) {
  losses.push_back(loss);
  if (!weight.is_absent()) weights.push_back(weight);
}

Array PartSums::finish(const Leaves& params, const GradientOptions& options) {
  const size_t n = losses.size();
  if (n == 1 && weights.empty()) return losses[0];
  // One common factor for all stages: partial sums stay partial, and are reduced together. The factor is computed in
  // float64 and rounded to the type of each sum.
  const Array share =
      weights.empty() ? Array() : tessera::detail::finalize_result(1.0 / divisor(astype(sum_of(weights), float64)));
  std::map<DType, Array> shares;
  const auto mean_of = [&](const Array& sum) {
    if (weights.empty()) return sum / static_cast<double>(n);
    Array& rounded = shares[wide(sum.dtype())];
    if (rounded.is_absent()) rounded = astype(share, wide(sum.dtype()));
    return sum * rounded;
  };
  std::vector<Array*> means;
  std::vector<const Array*> places;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].value->is_absent()) continue;
    *gradients[i].value = mean_of(*gradients[i].value);
    means.push_back(gradients[i].value);
    places.push_back(params[i].value);
  }
  const bool are_placed = options.reduce && options.shard_gradients_over.empty();
  if (n > 1 && are_placed) place_coalesced(means, places, "gradients", options.reduce_dtype);
  for (size_t i = 0; i < means.size(); ++i) {
    if (are_placed && !places[i]->is_committed()) *means[i] = Array(tessera::detail::taken_off_mesh(means[i]->impl()));
    *means[i] = astype(*means[i], places[i]->dtype());
  }
  return astype(mean_of(sum_of(losses)), losses[0].dtype());
}

}  // namespace tessera::nn::detail
