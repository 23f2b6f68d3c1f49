// Layers with wrong fields, states or initializers: an error names the layer and the field.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "nn/checkpoint/foreign_weights.h"
#include "nn/layers/linear.h"
#include "nn/layers/moe.h"
#include "nn/layers/transformer.h"
#include "sharding/operations.h"
#include "tests/nn/support.h"
#include "tests/sharding/expressions.h"

namespace tessera::nn::fields_test {
namespace {

using testing::expect_error;
using testing::expect_errors;

const Axis embed{"embed", 6}, hidden{"hidden", 6}, heads{"heads", 6};
const Array x = ones({2, 6}), text = ones({1, 3, 6});

// A call of the layer after `set` has changed one of its fields.
template <class Layer, class Set>
std::function<void()> call_with(Layer layer, Set set, const Array& input = x) {
  set(layer);
  return [layer, input]() mutable { layer(input); };
}

TEST(LayerFields, OfNormsAreCheckedByTheCall) {
  constexpr auto kind = ErrorKind::invalid_argument;
  for (int64_t groups : {0, 5, -2})
    expect_error(kind, "[GroupNorm] groups = " + std::to_string(groups) + ", expected a divisor of the 6 features.",
                 call_with(GroupNorm::init(embed, 2), [=](auto& norm) { norm.groups = groups; }));
  const auto bad_eps = [](auto& norm) { norm.eps = NAN; };
  expect_errors({
      {kind, "[GroupNorm] eps = nan, expected a number of 0 or more.", call_with(GroupNorm::init(embed, 2), bad_eps)},
      {kind, "[LayerNorm] eps = nan, expected a number of 0 or more.", call_with(LayerNorm::init(embed), bad_eps)},
      {kind, "[RMSNorm] eps = nan, expected a number of 0 or more.", call_with(RMSNorm::init(embed), bad_eps)},
      {kind, "[BatchNorm] eps = -5, expected a number of 0 or more.",
       call_with(BatchNorm::init(embed), [](auto& norm) { norm.eps = -5; })},
  });
  for (const auto& [momentum, name] : {std::pair(7.0, "7"), std::pair<double, const char*>(NAN, "nan")})
    expect_error(kind,
                 std::string("[BatchNorm] momentum = ") + name + ", expected 0 (the last batch's statistics) to 1.",
                 call_with(BatchNorm::init(embed), [m = momentum](auto& norm) { norm.momentum = m; }));
  const auto spectral = SpectralNorm<Linear>::init(Key(0), Linear::init(Key(1), embed, hidden));
  expect_errors({
      {kind, "[SpectralNorm] iterations = -3, expected 1 or more.",
       call_with(spectral, [](auto& norm) { norm.power.iterations = -3; })},
      {kind, "[SpectralNorm] eps = nan, expected a number of 0 or more.",
       call_with(spectral, [](auto& norm) { norm.power.eps = NAN; })},
  });
}

TEST(LayerFields, OfConvAndMoeAreCheckedByTheCall) {
  constexpr auto kind = ErrorKind::invalid_argument;
  const auto conv = ConvTranspose::init(Key(0), embed, hidden, {3});
  const auto moe = MoeMlp::init(Key(0), embed, hidden, {"experts", 2});
  expect_errors({
      {kind, "[ConvTranspose] groups = 0, expected a divisor of the 6 features of its kernel.",
       call_with(
           conv, [](auto& layer) { layer.groups = 0; }, text)},
      {kind, "[ConvTranspose] 0 dilations given, expected one for each of 1 spatial dims.",
       call_with(
           conv, [](auto& layer) { layer.dilation = {}; }, text)},
      {kind, "[ConvTranspose] a stride = 0, expected 1 or more.",
       call_with(
           conv, [](auto& layer) { layer.strides = {0}; }, text)},
      {kind, "[MoeMlp] top_k = 0 of 2 experts, expected 1 to 2.",
       call_with(
           moe, [](auto& layer) { layer.top_k = 0; }, text)},
      {kind, "[MoeMlp] capacity_factor = nan, expected a number above 0.",
       call_with(
           moe, [](auto& layer) { layer.capacity_factor = NAN; }, text)},
  });
}

TEST(LayerFields, NumbersOfHeadsAreCheckedByTheCall) {
  constexpr auto kind = ErrorKind::invalid_argument;
  const auto layer = MultiheadAttention::init(Key(0), embed, heads, 2);
  for (int64_t n : {0, 5, -2}) {
    const std::string rest = " = " + std::to_string(n) + ", expected a divisor of the 6 features.";
    const auto queries = [=](auto& attention) { attention.num_heads = n; };
    const auto keys = [=](auto& attention) { attention.num_kv_heads = n; };
    expect_error(kind, "[MultiheadAttention] num_heads" + rest, call_with(layer, queries, text));
    expect_error(kind, "[MultiheadAttention] num_kv_heads" + rest, call_with(layer, keys, text));
  }
  expect_error(kind,
               "[MultiheadAttention] num_heads = 2 of 3 features each and num_kv_heads = 3 of 2, expected as many "
               "features, and a divisor of the heads.",
               call_with(
                   layer, [](auto& attention) { attention.num_kv_heads = 3; }, text));
}

TEST(LayerFields, OptionsOfAttention) {
  constexpr auto kind = ErrorKind::shape_mismatch;
  const auto layer = MultiheadAttention::init(Key(0), embed, heads, 2);
  const auto cross = MultiheadAttention::init(Key(0), embed, heads, 2, {.causal = false, .context = Axis{"c", 5}});
  const std::string expected = ", expected to broadcast to (batch, heads, seq, keys) = (1, 2, 3, 3).";
  expect_errors({
      {kind, "[MultiheadAttention] mask bool[3,2]" + expected, CALL(layer(text, {.mask = ones({3, 2}, boolean)}))},
      {kind, "[MultiheadAttention] bias float32[2,2,3,3]" + expected, CALL(layer(text, {.bias = ones({2, 2, 3, 3})}))},
      {kind, "[MultiheadAttention] given a batch of 1 and a context of 2, expected as many.",
       CALL(cross(text, {.context = ones({2, 4, 5})}))},
      {ErrorKind::invalid_argument,
       "[MultiheadAttention] no context given to a layer whose keys and values read one of (batch, keys, c) with 5 "
       "features, expected attention(x, {.context = encoded}).",
       CALL(cross(text))},
  });
  EXPECT_EQ(layer(text, {.bias = ones({2, 1, 3})}).shape(), text.shape());
  EXPECT_EQ(cross(text, {.context = ones({1, 4, 5}), .mask = ones({4}, boolean)}).shape(), text.shape());
}

TEST(LayerFields, DecodeAsksForACausalLayer) {
  KeyValueCache cache;
  expect_error(ErrorKind::invalid_argument,
               "[MultiheadAttention.decode] the layer is not causal, so its result at a position depends on later "
               "positions. Make it with {.causal = true}.",
               CALL(MultiheadAttention::init(Key(0), embed, heads, 2, {.causal = false}).decode(text, cache)));
  EXPECT_EQ(cache.length(), 0);
}

TEST(LayerFields, DecodeAsksForItsOwnCache) {
  const auto layer = MultiheadAttention::init(Key(0), embed, heads, 2);
  const auto refused = [&](KeyValueCache cache, const std::string& keys, const std::string& values) {
    expect_error(ErrorKind::shape_mismatch,
                 "[MultiheadAttention.decode] the cache's keys are " + keys + " and its values " + values +
                     ", expected (batch, length, kv_heads, head_dim) with a batch of 1 and 2 kv heads of 3. Give each "
                     "layer and each text its own cache.",
                 CALL(layer.decode(text, cache)));
  };
  const Array of_three = ones({1, 2, 3, 2}), of_two = ones({2, 3, 2, 3}), own = ones({1, 2, 2, 3});
  refused({of_three, of_three}, "float32[1,2,3,2]", "float32[1,2,3,2]");
  refused({of_two, of_two}, "float32[2,3,2,3]", "float32[2,3,2,3]");
  refused({own, ones({1, 1, 2, 3})}, "float32[1,2,2,3]", "float32[1,1,2,3]");
  refused({ones({}), ones({})}, "float32[]", "float32[]");
  refused({Array(), own}, "absent", "float32[1,2,2,3]");
  KeyValueCache cache{own, own};
  layer.decode(text, cache);
  EXPECT_EQ(cache.length(), 5);
}

TEST(LayerFields, StatesOfCells) {
  constexpr auto kind = ErrorKind::shape_mismatch;
  const auto lstm = LSTMCell::init(Key(0), embed, hidden);
  const auto gru = GRUCell::init(Key(0), embed, hidden);
  const std::string rest = ", expected (2, 6) for x float32[2,6]. Begin with cell.start(x).";
  expect_errors({
      {kind, "[LSTMCell] state h = float32[3,6]" + rest, CALL(lstm(x, {ones({3, 6}), x}))},
      {kind, "[LSTMCell] state c = float32[2,7]" + rest, CALL(lstm(x, {x, ones({2, 7})}))},
      {kind, "[GRUCell] state h = float32[2,1]" + rest, CALL(gru(x, {ones({2, 1})}))},
  });
  testing::expect_near(gru(x, {ones({6})}).h, gru(x, {x}).h, 0, "one state for all rows");
}

TEST(LayerFields, AxesAndInitializers) {
  constexpr auto kind = ErrorKind::shape_mismatch;
  const Initializer other = [](const Key&, const Shape&) { return ones({7}); };
  const auto gave = [](const std::string& layer, const std::string& shape) {
    return "[" + layer + " gave float32[7], expected (" + shape + "), the requested shape.";
  };
  expect_errors({
      {kind, gave("Linear] kernel_init", "6, 6"), CALL(Linear::init(Key(0), embed, hidden, {.kernel_init = other}))},
      {kind, gave("Linear] bias_init", "6"), CALL(Linear::init(Key(0), embed, hidden, {.bias_init = other}))},
      {kind, gave("Embedding] initializer", "6, 6"), CALL(Embedding::init(Key(0), embed, hidden, other))},
      {kind, gave("Conv] kernel_init", "3, 6, 6"),
       CALL(Conv::init(Key(0), embed, hidden, {3}, {.kernel_init = other}))},
      {kind, gave("LSTMCell] recurrent_init", "6, 6"),
       CALL(LSTMCell::init(Key(0), embed, hidden, {.recurrent_init = other}))},
      {kind, gave("GRUCell] bias_init", "6"), CALL(GRUCell::init(Key(0), embed, hidden, {.bias_init = other}))},
      {kind, gave("MoeMlp] down_init", "2, 6, 6"),
       CALL(MoeMlp::init(Key(0), embed, hidden, {"experts", 2}, {.down_init = other}))},
      {ErrorKind::invalid_argument, "[Linear] kernel_init is empty, expected an initializer of nn::init.",
       CALL(Linear::init(Key(0), embed, hidden, {.kernel_init = Initializer()}))},
      {ErrorKind::invalid_argument, "[Linear] axis \"in\" = -3, expected 0 or more. Give its size: Axis{\"in\", 512}.",
       CALL(Linear::init(Key(0), {"in", -3}, hidden))},
      {ErrorKind::invalid_argument, "[Linear] axis \"in\" = -1, expected 0 or more. Give its size: Axis{\"in\", 512}.",
       CALL(Linear::init(Key(0), Axis{"in"}, hidden))},
      {ErrorKind::invalid_argument, "[RMSNorm] axis \"in\" = -3, expected 0 or more. Give its size: Axis{\"in\", 512}.",
       CALL(RMSNorm::init({"in", -3}))},
  });
}

TEST(LayerFields, AbsentArrays) {
  constexpr auto kind = ErrorKind::missing_array;
  const std::string rest =
      " is absent, expected an array. Make the layer with init, or combine the tree that a filter took it out of.";
  expect_errors({
      {kind, "[BatchNorm] mean" + rest, call_with(BatchNorm::init(embed), [](auto& n) { n.mean.value = Array(); })},
      {kind, "[BatchNorm] variance" + rest,
       call_with(BatchNorm::init(embed), [](auto& n) { n.variance.value = Array(); })},
      {kind, "[WeightNorm] kernel" + rest, CALL(WeightNorm<Linear>::init(Linear{}))},
      {kind, "[SpectralNorm] kernel" + rest, CALL(SpectralNorm<Linear>::init(Key(0), Linear{}))},
      {kind, "[with_lora] kernel" + rest, CALL(with_lora(Key(0), Linear{}))},
  });
}

}  // namespace
}  // namespace tessera::nn::fields_test
