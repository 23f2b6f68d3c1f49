// The bodies of the cases of shard_map.json in C++, by name. The file contains the Python bodies.
#include "sharding/autodiff/tape.h"
#include "sharding/operations.h"
#include "sharding/shard_map/collectives.h"
#include "tests/runner/shard_map.h"

namespace tessera::runner {
namespace {

using Blocks = std::vector<Array>;
using Pairs = std::vector<std::pair<int, int>>;
using MappedBodies = std::map<std::string, ShardMapBody>;

// A function of the blocks b that returns these expressions.
#define BLOCKS(...) [](const Blocks& b) -> Blocks { return {__VA_ARGS__}; }

Pairs ring(int n) {
  Pairs pairs;
  for (int i = 0; i < n; ++i) pairs.emplace_back(i, (i + 1) % n);
  return pairs;
}

Pairs shift(int n) {
  Pairs pairs;
  for (int i = 0; i + 1 < n; ++i) pairs.emplace_back(i, i + 1);
  return pairs;
}

Pairs swaps(int n) {
  Pairs pairs;
  for (int i = 0; i < n; ++i) pairs.emplace_back(i, i ^ 1);
  return pairs;
}

// Each replica differentiates its own rows, and pmean over the data axis averages.
Blocks gradient_mean(const Blocks& b) {
  Tape tape({pcast(b[1], "data")}, {.differentiable = true});
  const Array loss = mean(square(tanh(matmul(b[0], tape.shadows()[0]))));
  return {pmean(tape.gradients(loss)[0], "data")};
}

const MappedBodies one_axis{
    {"elementwise", BLOCKS(2 * sin(b[0]) + 1)},
    {"times_two_int", BLOCKS(b[0] * 2)},
    {"local_sum_keepdims", BLOCKS(sum(b[0], {}, true))},
    {"psum_scalar", BLOCKS(psum(sum(b[0]), "x"))},
    {"psum_int", BLOCKS(psum(sum(b[0]), "x"))},
    {"psum_array", BLOCKS(psum(b[0], "x"))},
    {"pmean_array", BLOCKS(pmean(b[0], "x"))},
    {"pmax_array", BLOCKS(pmax(b[0], "x"))},
    {"pmin_array", BLOCKS(pmin(b[0], "x"))},
    {"psum_kept_sharded", BLOCKS(b[0] - psum(b[0], "x"))},
    {"psum_of_replicated", BLOCKS(psum(b[0], "x"))},
    {"psum_of_one", BLOCKS(b[0] * psum(1, "x"))},
    {"axis_index", BLOCKS(b[0] * axis_index("x"))},
    {"axis_size", BLOCKS(b[0] / axis_size("x"))},
    {"sigmoid_layer", BLOCKS(sigmoid(psum(matmul(b[0], b[1]), "x") + b[2]))},
    {"linear_contracting_sharded", BLOCKS(psum(matmul(b[0], b[1]), "x"))},
    {"linear_reduce_scatter", BLOCKS(psum_scatter(matmul(b[0], b[1]), "x", {.tiled = true}))},
};

const MappedBodies exchanges{
    {"all_gather_stacked", BLOCKS(all_gather(b[0], "x"))},
    {"all_gather_stacked_axis1", BLOCKS(all_gather(b[0], "x", {.dim = 1}))},
    {"all_gather_tiled", BLOCKS(all_gather(b[0], "x", {.tiled = true}))},
    {"all_gather_tiled_axis1", BLOCKS(all_gather(b[0], "x", {.dim = 1, .tiled = true}))},
    {"all_gather_replicated", BLOCKS(all_gather(b[0], "x", {.tiled = true, .to = Vma::invarying}))},
    {"all_gather_out_replicated_rejected", BLOCKS(all_gather(b[0], "x", {.tiled = true}))},
    {"all_gather_out_replicated_unchecked", BLOCKS(all_gather(b[0], "x", {.tiled = true}))},
    {"psum_scatter_tiled", BLOCKS(psum_scatter(b[0], "x", {.tiled = true}))},
    {"psum_scatter_tiled_dim1", BLOCKS(psum_scatter(b[0], "x", {.scatter_dim = 1, .tiled = true}))},
    {"psum_scatter_untiled", BLOCKS(psum_scatter(b[0], "x"))},
    {"psum_scatter_bad_size_rejected", BLOCKS(psum_scatter(b[0], "x"))},
    {"ppermute_ring", BLOCKS(ppermute(b[0], "x", ring(8)))},
    {"ppermute_shift_no_wrap", BLOCKS(ppermute(b[0], "x", shift(8)))},
    {"ppermute_swap_pairs", BLOCKS(ppermute(b[0], "x", swaps(8)))},
    {"all_to_all_tiled", BLOCKS(all_to_all(b[0], "x", 1, 0, {.tiled = true}))},
    {"all_to_all_untiled", BLOCKS(all_to_all(b[0], "x", 1, 0))},
};

const MappedBodies refused_bodies{
    {"out_replicated_but_varying_rejected", BLOCKS(b[0])},
    {"uneven_input_rejected", BLOCKS(b[0])},
    {"in_spec_too_long_rejected", BLOCKS(b[0])},
    {"unknown_axis_rejected", BLOCKS(b[0])},
    {"out_missing_axis_rejected", BLOCKS(psum(b[0], "x"))},
};

const MappedBodies two_axes{
    {"psum_x_of_xy", BLOCKS(psum(b[0], "x"))},
    {"psum_y_of_xy", BLOCKS(psum(b[0], "y"))},
    {"psum_both", BLOCKS(psum(b[0], {"x", "y"}))},
    {"pmean_y", BLOCKS(pmean(b[0], "y"))},
    {"pmax_both", BLOCKS(pmax(b[0], {"x", "y"}))},
    {"psum_x_of_x_only", BLOCKS(psum(b[0], "x"))},
    {"psum_y_of_x_only", BLOCKS(psum(b[0], "y"))},
    {"all_gather_y", BLOCKS(all_gather(b[0], "y", {.dim = 1, .tiled = true, .to = Vma::invarying}))},
    {"all_gather_both_tuple", BLOCKS(all_gather(b[0], {"x", "y"}, {.tiled = true, .to = Vma::invarying}))},
    {"psum_scatter_y", BLOCKS(psum_scatter(b[0], "y", {.scatter_dim = 1, .tiled = true}))},
    {"ppermute_y", BLOCKS(ppermute(b[0], "y", ring(4)))},
    {"axis_index_both", BLOCKS(b[0] + 10 * axis_index("x") + axis_index("y"))},
    {"spec_tuple_in", BLOCKS(b[0] + axis_index({"x", "y"}))},
    {"dp_gradient_mean", gradient_mean},
    {"tp_mlp", BLOCKS(psum(matmul(tanh(matmul(b[0], b[1])), b[2]), "model"))},
    {"two_outputs", BLOCKS(b[0] * 2, psum(sum(b[0]), {"x", "y"}))},
};

// ---- shard_map_more.json

// (p[i - 1] + p[i] + p[i + 1]) / 3, with rows of adjacent devices.
Blocks halo_exchange(const Blocks& b) {
  const Array& a = b[0];
  const int64_t rows = a.shape(0);
  Pairs down;
  for (int i = 1; i < 8; ++i) down.emplace_back(i, i - 1);
  const Array before = ppermute(slice_in_dim(a, rows - 1, rows, 0), "x", shift(8));
  const Array after = ppermute(slice_in_dim(a, 0, 1, 0), "x", down);
  const Array p = concatenate({before, a, after});
  const auto part = [&](int64_t start) { return slice_in_dim(p, start, start + rows, 0); };
  return {(part(0) + part(1) + part(2)) / 3};
}

Blocks sharded_softmax(const Blocks& b) {
  const Array top = stop_gradient(pmax(stop_gradient(slice_in_dim(b[0], 0, 1, 1)), "x"));
  const Array e = exp(b[0] - top);
  return {e / psum(sum(e, {1}, true), "x")};
}

Blocks value_and_grad_inside(const Blocks& b) {
  Tape tape({b[1]}, {.differentiable = true});
  return tape.gradients(sum(square(tanh(matmul(b[0], tape.shadows()[0])))));
}

Blocks gradient_of_psum_inside(const Blocks& b) {
  Tape tape({b[1]}, {.differentiable = true});
  const Array loss = psum(sum(square(tanh(b[0] * tape.shadows()[0]))), "x");
  return {loss * tape.gradients(loss)[0]};
}

const MappedBodies more_sums{
    {"mixed_replicated_operand", BLOCKS(tanh(b[0] * b[1]) + b[1])},
    {"psum_mixed", BLOCKS(psum(sum(b[0] * b[1], {0}), "x") * b[1])},
    {"pmax_kept", BLOCKS(exp(b[0] - pmax(b[0], "x")))},
    {"sharded_softmax", sharded_softmax},
    {"pmean_scalar", BLOCKS(pmean(mean(b[0]), {"x", "y"}))},
    {"pmean_int", BLOCKS(pmean(b[0], "x"))},
    {"pmin_int", BLOCKS(pmin(b[0], "x"))},
    {"axis_index_unknown_rejected", BLOCKS(b[0] + axis_index("y"))},
    {"out_spec_too_long_rejected", BLOCKS(b[0])},
    {"out_unknown_axis_rejected", BLOCKS(b[0])},
    {"in_spec_twice_rejected", BLOCKS(b[0])},
    {"out_sharded_of_replicated", BLOCKS(2 * b[0])},
    {"out_scalar_sum_minor", BLOCKS(psum(sum(b[0], {1}), "y"))},
    {"unchecked_first", BLOCKS(all_gather(tanh(b[0]), "x", {.tiled = true}))},
    {"subset_manual", BLOCKS(b[0] - pmean(b[0], "x"))},
    {"subset_matmul", BLOCKS(psum(sum(matmul(b[0], b[1]), {0}), "data"))},
    {"subset_other_axis_rejected", BLOCKS(b[0])},
    {"subset_psum_other_axis_rejected", BLOCKS(psum(b[0], "y"))},
    {"value_and_grad_inside", value_and_grad_inside},
    {"gradient_of_psum_inside", gradient_of_psum_inside},
    {"bfloat16_psum", BLOCKS(astype(psum(astype(b[0], bfloat16), "x"), float32))},
};

const MappedBodies more_exchanges{
    {"all_to_all_same_axis", BLOCKS(all_to_all(b[0], "x", 0, 0, {.tiled = true}))},
    {"all_to_all_untiled_same_axis", BLOCKS(all_to_all(b[0], "x", 0, 0))},
    {"all_to_all_untiled_end", BLOCKS(all_to_all(b[0], "x", 0, 2))},
    {"all_to_all_both", BLOCKS(all_to_all(b[0], {"x", "y"}, 1, 0, {.tiled = true}))},
    {"all_to_all_bad_size_rejected", BLOCKS(all_to_all(b[0], "x", 1, 0, {.tiled = true}))},
    {"all_gather_reversed_axes", BLOCKS(all_gather(b[0], {"y", "x"}, {.tiled = true, .to = Vma::invarying}))},
    {"all_gather_used", BLOCKS(b[0] * sum(all_gather(b[0], "x", {.tiled = true}), {0}))},
    {"all_gather_of_replicated", BLOCKS(all_gather(b[0], "x"))},
    {"psum_scatter_both", BLOCKS(psum_scatter(b[0] * (1 + axis_index({"x", "y"})), {"x", "y"}, {.tiled = true}))},
    {"psum_scatter_uneven_rejected", BLOCKS(psum_scatter(b[0], "x", {.tiled = true}))},
    {"ppermute_partial", BLOCKS(b[0] + ppermute(b[0], "x", {{0, 3}, {5, 1}}))},
    {"ppermute_both",
     [](const Blocks& b) -> Blocks {
       Pairs pairs;
       for (int i = 0; i < 8; ++i) pairs.emplace_back(i, (i + 3) % 8);
       return {ppermute(b[0], {"x", "y"}, pairs)};
     }},
    {"ppermute_duplicate_rejected", BLOCKS(ppermute(b[0], "x", {{0, 1}, {2, 1}}))},
    {"halo_exchange", halo_exchange},
    {"column_then_row",
     BLOCKS(psum_scatter(matmul(relu(matmul(b[0], b[1])), b[2]), "model", {.scatter_dim = 1, .tiled = true}))},
    {"gathered_weight", BLOCKS(matmul(b[0], transpose(all_gather(b[1], "x", {.tiled = true}))))},
};

}  // namespace

const std::map<std::string, ShardMapBody>& shard_map_bodies() {
  static const MappedBodies all = [] {
    MappedBodies all;
    for (const MappedBodies* table : {&one_axis, &exchanges, &refused_bodies, &two_axes, &more_sums, &more_exchanges})
      all.insert(table->begin(), table->end());
    return all;
  }();
  return all;
}

}  // namespace tessera::runner
