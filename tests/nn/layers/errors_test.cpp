// Wrong options and inputs of layers: each error names the layer and the remedy.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "nn/checkpoint/foreign_weights.h"
#include "nn/layers/latent_attention.h"
#include "nn/layers/linear.h"
#include "nn/layers/moe.h"
#include "nn/layers/pool.h"
#include "nn/layers/transformer.h"
#include "sharding/operations.h"
#include "tests/nn/layers/stored_layers.h"
#include "tests/nn/support.h"
#include "tests/sharding/expressions.h"

namespace tessera::nn::errors_test {
namespace {

using testing::expect_error;
using testing::expect_errors;

const Axis embed{"embed", 8}, hidden{"hidden", 6}, heads{"heads", 8};
const Array wrong = ones({3, 7});

TEST(LayerErrors, InputsOfAnotherShape) {
  constexpr auto kind = ErrorKind::shape_mismatch;
  const std::string given = "given float32[3,7], expected ";
  expect_errors({
      {kind, "[Linear] " + given + "(..., embed) with embed = 8.", CALL(Linear::init(Key(0), embed, hidden)(wrong))},
      {kind, "[Embedding.attend] " + given + "(..., embed) with embed = 8.",
       CALL(Embedding::init(Key(0), {"vocab", 5}, embed).attend(wrong))},
      {kind, "[LayerNorm] " + given + "(..., embed) with embed = 8.", CALL(LayerNorm::init(embed)(wrong))},
      {kind, "[RMSNorm] " + given + "(..., embed) with embed = 8.", CALL(RMSNorm::init(embed)(wrong))},
      {kind, "[GroupNorm] " + given + "(..., embed) with embed = 8.", CALL(GroupNorm::init(embed, 2)(wrong))},
      {kind, "[GroupNorm] given float32[8], expected (batch, spatial dims..., features).",
       CALL(GroupNorm::init(embed, 2)(ones({8})))},
      {kind, "[BatchNorm] " + given + "(..., embed) with embed = 8.", CALL(BatchNorm::init(embed)(wrong))},
      {kind, "[BatchNorm] given float32[8], expected (batch..., features).", CALL(BatchNorm::init(embed)(ones({8})))},
      {kind, "[PReLU] " + given + "(..., embed) with embed = 8.", CALL(PReLU::init(embed)(wrong))},
      {kind, "[Conv] " + given + "(batch, 2 spatial dims, features) with 8 features.",
       CALL(Conv::init(Key(0), embed, hidden, {3, 3})(wrong))},
      {kind, "[ConvTranspose] " + given + "(batch, 1 spatial dims, features) with 8 features.",
       CALL(ConvTranspose::init(Key(0), embed, hidden, {3})(wrong))},
      {kind, "[AdaptiveAvgPool] " + given + "(..., 2 spatial dims, features).", CALL(AdaptiveAvgPool{{2, 2}}(wrong))},
      {kind, "[LSTMCell] " + given + "(..., embed) with embed = 8.",
       CALL(LSTMCell::init(Key(0), embed, hidden)(wrong, {}))},
      {kind, "[LSTMCell] an absent state given, expected one of (..., hidden): cell.start(x).",
       CALL(LSTMCell::init(Key(0), embed, hidden)(ones({3, 8}), {}))},
      {kind, "[GRUCell] state h = float32[3,7], expected (3, 6) for x float32[3,8]. Begin with cell.start(x).",
       CALL(GRUCell::init(Key(0), embed, hidden)(ones({3, 8}), {wrong}))},
      {kind, "[start] given float32[], expected (..., in).",
       CALL(GRUCell::init(Key(0), embed, hidden).start(ones({})))},
      {kind,
       "[conv_general_dilated] given float32[1,3,0] and float32[1,0,2]: no features, expected 1 or more in and out.",
       CALL(Conv::init(Key(0), {"none", 0}, {"two", 2}, {1})(zeros({1, 3, 0})))},
      {ErrorKind::dtype_mismatch, "[dot_product_attention] segment_starts are float32[1,1], expected integers.",
       CALL(MultiheadAttention::init(Key(0), embed, {"heads", 8}, 2, {.dropout = 0.1})(
           ones({1, 3, 8}), {.key = Key(1), .segment_starts = ones({1, 1})}))},
      {ErrorKind::dtype_mismatch,
       "[MultiheadAttention] mask float32[3,3], expected booleans. To add values to the logits, pass a bias.",
       CALL(MultiheadAttention::init(Key(0), embed, {"heads", 8}, 2, {.dropout = 0.1})(
           ones({1, 3, 8}), {.mask = ones({3, 3}), .key = Key(0)}))},
      {kind, "[scan] " + given + "(batch, time, features) with one step or more.",
       CALL(scan(GRUCell::init(Key(0), embed, hidden), wrong))},
      {kind, "[MoeMlp] " + given + "(batch, seq, embed).",
       CALL(MoeMlp::init(Key(0), embed, hidden, {"experts", 4})(wrong))},
  });
}

TEST(LayerErrors, OptionsThatDoNotFit) {
  constexpr auto kind = ErrorKind::invalid_argument;
  expect_errors({
      {kind, "[GroupNorm] axis \"embed\" = 8 is not divisible by 3 groups. Change one of them.",
       CALL(GroupNorm::init(embed, 3))},
      {kind, "[Conv] axes \"embed\" = 8 and \"hidden\" = 6 are not both divisible by 4 groups. Change one of them.",
       CALL(Conv::init(Key(0), embed, hidden, {3}, {.groups = 4}))},
      {kind, "[BatchNorm] momentum = nan, expected 0 (the last batch's statistics) to 1.",
       CALL(BatchNorm::init(embed, {.momentum = NAN}))},
      {kind, "[BatchNorm] momentum = 2, expected 0 (the last batch's statistics) to 1.",
       CALL(BatchNorm::init(embed, {.momentum = 2}))},
      {kind, "[BatchNorm] eps = -1, expected a number of 0 or more.", CALL(BatchNorm::init(embed, {.eps = -1}))},
      {kind, "[LayerNorm] eps = -1, expected a number of 0 or more.", CALL(LayerNorm::init(embed, -1))},
      {kind, "[RMSNorm] eps = -1, expected a number of 0 or more.", CALL(RMSNorm::init(embed, -1))},
      {kind, "[GroupNorm] eps = nan, expected a number of 0 or more.", CALL(GroupNorm::init(embed, 2, NAN))},
      {kind, "[SpectralNorm] eps = -1, expected a number of 0 or more.",
       CALL(SpectralNorm<Linear>::init(Key(0), Linear::init(Key(1), embed, hidden), {.eps = -1}))},
      {kind, "[with_lora] alpha = nan, expected a number.",
       CALL(with_lora(Key(0), Linear::init(Key(1), embed, hidden), {.alpha = NAN}))},
      {kind, "[EncoderBlock] context = \"hidden\" given, which only a DecoderBlock reads. Leave it out.",
       CALL(EncoderBlock::init(Key(0), embed, embed, 2, hidden, {.context = hidden}))},
      {kind, "[Conv] a kernel size = 0, expected 1 or more.", CALL(Conv::init(Key(0), embed, hidden, {0}))},
      {kind, "[Conv] a stride = 0, expected 1 or more.",
       CALL(Conv::init(Key(0), embed, hidden, {3}, {.strides = {0}}))},
      {kind, "[Conv] 4 kernel sizes given, expected one for each of 1 to 3 spatial dims.",
       CALL(Conv::init(Key(0), embed, hidden, {3, 3, 3, 3}))},
      {kind, "[ConvTranspose] padding \"SAME_LOWER\" given, expected SAME, VALID or pairs.",
       CALL(ConvTranspose::init(Key(0), embed, hidden, {3}, {.padding = "SAME_LOWER"})(ones({1, 4, 8})))},
      {kind, "[AdaptiveMaxPool] size = 0, expected 1 or more.", CALL(AdaptiveMaxPool{{0}}(wrong))},
      {kind, "[AdaptiveMaxPool] 0 sizes given, expected one for each of 1 to 3 spatial dims.",
       CALL(AdaptiveMaxPool{{}}(wrong))},
      {kind, "[Dropout] no key given, expected one: dropout(x, key). For evaluation set inference = true.",
       CALL(Dropout{}(wrong))},
      {kind, "[DeepMlp] depth -1, expected 0 or more hidden layers.",
       CALL(DeepMlp::init(Key(0), embed, hidden, embed, -1))},
      {kind, "[MoeMlp] given float32[2,0,8], expected one position or more to balance the experts over.",
       CALL(MoeMlp::init(Key(0), embed, hidden, {"experts", 4})(zeros({2, 0, 8})))},
      {kind, "[Conv] 1 strides given, expected one for each of 2 spatial dims.",
       CALL(Conv::init(Key(0), embed, hidden, {3, 3}, {.strides = {1}}))},
      {kind, "[MoeMlp] top_k = 5 of 4 experts, expected 1 to 4.",
       CALL(MoeMlp::init(Key(0), embed, hidden, {"experts", 4}, {.top_k = 5}))},
      {kind,
       "[MoeMlp] num_groups = 2 and top_k_groups = 1 for top_k = 3 of 4 experts, expected a divisor of the experts, and "
       "groups with as many experts as a token uses.",
       CALL(MoeMlp::init(Key(0), embed, hidden, {"experts", 4}, {.top_k = 3, .num_groups = 2}))},
      {kind,
       "[MoeMlp] expert_bias or clamped_gate given for experts that are not gated, expected MoeOptions{.gated = true}.",
       CALL(MoeMlp::init(Key(0), embed, hidden, {"experts", 4}, {.expert_bias = true}))},
      {kind, "[LatentAttention] v_head_dim = 0, expected 1 or more.",
       CALL(LatentAttention::init(Key(0), embed, "heads", 2, {.v_head_dim = 0}))},
      {kind, "[LatentAttention] a context given, expected none: it attends to x alone.",
       CALL(LatentAttention::init(Key(0), embed, "heads", 2)(ones({1, 3, 8}), {.context = ones({1, 3, 8})}))},
      {kind, "[MultiheadAttention] chunk -1, expected 1 or more, or 0 for all keys.",
       CALL(MultiheadAttention::init(Key(0), embed, heads, 2, {.chunk = -1}))},
      {kind, "[MultiheadAttention] temperature with scale = 0.1 and floor_scale = 0, expected numbers, and a floor_scale "
             "above 0.",
       CALL(MultiheadAttention::init(Key(0), embed, heads, 2, {.temperature = QueryTemperature{.floor_scale = 0}}))},
      {kind, "[MoeMlp] clamped_gate with limit = 0 and alpha = 1.702, expected numbers, and a limit above 0.",
       CALL(MoeMlp::init(Key(0), embed, hidden, {"experts", 4},
                         {.gated = true, .clamped_gate = ClampedGate{.limit = 0}}))},
      {kind, "[MoeMlp] num_shared_experts = -1, expected a number of experts from 0 on.",
       CALL(MoeMlp::init(Key(0), embed, hidden, {"experts", 4}, {.num_shared_experts = -1}))},
      {kind, "[rebalance] the experts have no bias. Give MoeOptions{.balance_bias = true}.",
       [&] {
         MoeMlp moe = MoeMlp::init(Key(0), embed, hidden, {"experts", 4});
         moe.rebalance(full({4}, 0.25));
       }},
      {kind, "[MoeMlp] capacity_factor = 0, expected a number above 0.",
       CALL(MoeMlp::init(Key(0), embed, hidden, {"experts", 4}, {.capacity_factor = 0}))},
      {kind, "[SpectralNorm] num_power_iterations = 0, expected 1 or more.",
       CALL(SpectralNorm<Linear>::init(Key(0), Linear::init(Key(0), embed, hidden), {.num_power_iterations = 0}))},
      {kind, "[with_lora] rank = 0, expected 1 or more.",
       CALL(with_lora(Key(0), Linear::init(Key(0), embed, hidden), {.rank = 0}))},
      {kind,
       "[MultiheadAttention] a context given to a layer that is causal or rotates positions, which does not apply to a "
       "context. Make it with {.causal = false} and no rope.",
       CALL(MultiheadAttention::init(Key(0), embed, heads, 2)(ones({1, 3, 8}), {.context = ones({1, 3, 8})}))},
      {kind, "[DecoderBlock] a context given to a block without cross-attention. Make it with {.context = Axis{...}}.",
       CALL(DecoderBlock::init(Key(0), embed, heads, 2, hidden)(ones({1, 3, 8}), {.context = ones({1, 3, 8})}))},
      {kind,
       "[DecoderBlock] no context given to a block with cross-attention, expected block(x, {.context = encoded}).",
       CALL(DecoderBlock::init(Key(0), embed, heads, 2, hidden, {.context = embed})(ones({1, 3, 8})))},
      {ErrorKind::dtype_mismatch, "[DTypePolicy] params = int32 given, expected a floating type.",
       CALL(Linear::init(Key(0), embed, hidden, {.dtypes = {.params = int32}}))},
  });
}

// init refuses options that every call would refuse.
TEST(LayerErrors, OptionsThatNoCallTakes) {
  constexpr auto kind = ErrorKind::invalid_argument;
  const Axis in{"in", 3}, out{"out", 4};
  expect_errors({
      {kind, "[Conv] padding \"SAMEE\" given, expected SAME, SAME_LOWER, VALID or pairs.",
       CALL(Conv::init(Key(0), in, out, {3, 3}, {.padding = "SAMEE"}))},
      {kind, "[ConvTranspose] padding \"SAME_LOWER\" given, expected SAME, VALID or pairs.",
       CALL(ConvTranspose::init(Key(0), in, out, {3, 3}, {.padding = "SAME_LOWER"}))},
      {kind, "[MultiheadAttention] dropout = 7, expected a rate of 0 to 1.",
       CALL(MultiheadAttention::init(Key(0), embed, heads, 2, {.dropout = 7}))},
      {kind, "[MultiheadAttention] dropout = nan, expected a rate of 0 to 1.",
       CALL(EncoderBlock::init(Key(0), embed, heads, 2, hidden, {.dropout = NAN}))},
      {kind, "[PReLU] slope = nan, expected a finite number.", CALL(PReLU::init(embed, {.slope = NAN}))},
      {kind, "[SpectralNorm] eps = inf, expected a number of 0 or more.",
       CALL(SpectralNorm<Linear>::init(Key(0), Linear::init(Key(0), embed, hidden), {.eps = INFINITY}))},
  });
}

TEST(LayerErrors, NothingToPoolOrConvolve) {
  constexpr auto kind = ErrorKind::shape_mismatch;
  expect_errors({
      {kind, "[Conv] given float32[1,0,3], expected one place or more in every spatial dim.",
       CALL(Conv::init(Key(0), {"in", 3}, {"out", 4}, {3})(zeros({1, 0, 3})))},
      {kind, "[ConvTranspose] given float32[1,4,0,3], expected one place or more in every spatial dim.",
       CALL(ConvTranspose::init(Key(0), {"in", 3}, {"out", 4}, {3, 3})(zeros({1, 4, 0, 3})))},
      {kind, "[AdaptiveAvgPool] given float32[2,0,3], expected one place or more in every spatial dim.",
       CALL(AdaptiveAvgPool{{2}}(zeros({2, 0, 3})))},
      {kind, "[AdaptiveMaxPool] given float32[2,4,0,3], expected one place or more in every spatial dim.",
       CALL(AdaptiveMaxPool{{2, 2}}(zeros({2, 4, 0, 3})))},
      {kind, "[max_pool] given float32[2,4,0]: no features, expected 1 or more.", CALL(MaxPool{{2}}(zeros({2, 4, 0})))},
      {kind, "[avg_pool] given float32[2,4,0]: no features, expected 1 or more.", CALL(AvgPool{{2}}(zeros({2, 4, 0})))},
  });
  EXPECT_EQ(AdaptiveAvgPool{{2}}(zeros({0, 4, 3})).shape(), (Shape{0, 2, 3}));
}

TEST(LayerErrors, ConvWithoutItsKernel) {
  Conv conv = Conv::init(Key(0), {"in", 3}, {"out", 4}, {3});
  conv.kernel.value = Array();
  expect_error(ErrorKind::missing_array,
               "[Conv] its parameter (none, in, out) is absent: it was never set, was moved away, or a filter took it "
               "out of its tree. Set it, or combine the tree.",
               CALL(conv(ones({1, 5, 3}))));
}

// A call that fails does not change the state of the layer.
TEST(LayerErrors, ACallThatFailsChangesNoState) {
  BatchNorm norm = BatchNorm::init(embed);
  norm.bias.value = Array();
  EXPECT_THROW(norm(ones({4, 8})), Error);
  EXPECT_EQ(norm.mean.value.to_host<float>(), std::vector<float>(8, 0));
  auto spectral = SpectralNorm<Linear>::init(Key(0), Linear::init(Key(1), embed, hidden));
  const Array before = spectral.power.in;
  EXPECT_THROW(spectral(wrong), Error);
  EXPECT_TRUE(spectral.power.in.value.is_same(before));
  spectral(ones({3, 8}));
  EXPECT_FALSE(spectral.power.in.value.is_same(before));
}

// Norms of integers throw, because their results would be rounded to integers.
TEST(LayerErrors, NormsOfIntegers) {
  const Array ids = ones({3, 8}, int32);
  constexpr auto kind = ErrorKind::dtype_mismatch;
  expect_errors({
      {kind, "[layer_norm] x is int32[3,8], expected a floating type. Convert with astype.",
       CALL(LayerNorm::init(embed)(ids))},
      {kind, "[rms_norm] x is int32[3,8], expected a floating type. Convert with astype.",
       CALL(RMSNorm::init(embed)(ids))},
      {kind, "[GroupNorm] given int32[3,8], expected a floating type. Convert with astype.",
       CALL(GroupNorm::init(embed, 2)(ids))},
      {kind, "[BatchNorm] given int32[3,8], expected a floating type. Convert with astype.",
       CALL(BatchNorm::init(embed)(ids))},
  });
}

// An empty batch has no statistics. With running statistics (inference) it is allowed.
TEST(LayerErrors, BatchNormOfAnEmptyBatchKeepsItsStatistics) {
  BatchNorm norm = BatchNorm::init(embed);
  expect_error(ErrorKind::invalid_argument,
               "[BatchNorm] given float32[0,8], expected one row or more to take statistics of. Leave the empty batch "
               "out, or set inference = true.",
               CALL(norm(zeros({0, 8}))));
  EXPECT_EQ(norm.mean.value.to_host<float>(), std::vector<float>(8, 0));
  EXPECT_EQ(norm.variance.value.to_host<float>(), std::vector<float>(8, 1));
  norm.inference = true;
  EXPECT_EQ(norm(zeros({0, 8})).shape(), (Shape{0, 8}));
}

// A single error lists everything that does not fit, and the layer is unchanged.
TEST(LayerErrors, ForeignWeightsThatDoNotFit) {
  const std::string advice = ". Choose the prefix, the library and the layer's options that the file was made with.";
  Linear layer = Linear::init(Key(0), {"in", 5}, {"out", 6});
  const Array kernel = layer.kernel;
  const auto load = [&](const char* prefix, Library library) {
    return [&layer, prefix, library] { load_weights(layer, testing::stored_layers(), prefix, library); };
  };
  expect_errors({
      {ErrorKind::invalid_file,
       "[load_weights] layers.safetensors: kernel: weight gives float32[5,7], expected float32[5,6]; bias: bias gives "
       "float32[7], expected float32[6]" +
           advice,
       load("equinox.linear.weights", Library::equinox)},
      {ErrorKind::invalid_file,
       "[load_weights] layers.safetensors: bias: bias gives float32[7], expected float32[6]; missing: "
       "flax.linear.weights.weight; in no row of the map: flax.linear.weights.kernel" +
           advice,
       load("flax.linear.weights", Library::pytorch)},
  });
  EXPECT_TRUE(layer.kernel.value.is_same(kernel));
  Linear unbiased = Linear::init(Key(0), {"in", 5}, {"out", 7}, {.bias = false});
  expect_error(ErrorKind::invalid_file,
               "[load_weights] layers.safetensors: in no row of the map: equinox.linear.weights.bias" + advice,
               CALL(load_weights(unbiased, testing::stored_layers(), "equinox.linear.weights", Library::equinox)));
  expect_error(ErrorKind::invalid_argument, "[load_weights] DeepMlp is in Equinox only. Give a custom WeightMap.",
               CALL(weight_map(DeepMlp{}, Library::flax)));
}

}  // namespace
}  // namespace tessera::nn::errors_test
