// The layers: shapes, names, initial values and errors.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "nn/layers/attention.h"
#include "nn/layers/embedding.h"
#include "nn/layers/linear.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"
#include "nn/placement/filter_shard.h"
#include "sharding/array/array_impl.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"

namespace tessera::nn::layers_test {
namespace {

using testing::expect_near;
using testing::strategies;

constexpr double tolerance = 2e-6;

void expect_values(const Array& got, const at::Tensor& expected, const std::string& what) {
  expect_near(got, from_tensor(expected), tolerance, what);
}

Array batch_of(const Shape& shape, const Axes& axes, const MeshRules& mesh_rules) {
  return device_put(normal(Key(5), shape), axes, mesh_rules);
}

const Axis embed{"embed", 8}, hidden{"hidden", 16}, heads{"heads", 8}, vocab{"vocab", 12}, norm{"norm", 8};
const Axes stream{"batch", "seq", none};

TEST(Linear, shapes_and_names) {
  const Linear layer = Linear::init(Key(0), embed, hidden);
  EXPECT_EQ(layer.kernel.value.shape(), (Shape{8, 16}));
  EXPECT_EQ(layer.kernel.axes, (Axes{"embed", "hidden"}));
  EXPECT_EQ(layer.bias->value.shape(), Shape{16});
  EXPECT_EQ(layer.bias->axes, Axes{"hidden"});
  EXPECT_EQ(layer.bias->value.to_host<float>(), std::vector<float>(16, 0));
  EXPECT_EQ(layer(ones({3, 5, 8})).shape(), (Shape{3, 5, 16}));
  EXPECT_EQ(layer(ones({8})).shape(), Shape{16});
  EXPECT_FALSE(Linear::init(Key(0), embed, hidden, {.bias = false}).bias);
}

TEST(Linear, the_default_kernel_has_variance_one_over_in) {
  const at::Tensor kernel = to_tensor(Linear::init(Key(0), {"embed", 400}, {"hidden", 500}).kernel);
  EXPECT_NEAR(kernel.std().item<double>(), 1 / std::sqrt(400.0), 2e-4);
  EXPECT_NEAR(kernel.mean().item<double>(), 0, 5e-4);
  EXPECT_LE(kernel.abs().max().item<double>(), 2 / 0.8796 / std::sqrt(400.0));
}

TEST(Embedding, shapes_and_names) {
  const Embedding layer = Embedding::init(Key(0), vocab, embed);
  EXPECT_EQ(layer.tokens.value.shape(), (Shape{12, 8}));
  EXPECT_EQ(layer.tokens.axes, (Axes{"vocab", "embed"}));
  EXPECT_EQ(layer(array<int32_t>(std::vector<int32_t>(6, 11), {2, 3})).shape(), (Shape{2, 3, 8}));
  EXPECT_EQ(layer.attend(ones({2, 3, 8})).shape(), (Shape{2, 3, 12}));
}

TEST(LayerNorm, shapes_names_and_starting_values) {
  const LayerNorm layer = LayerNorm::init(norm, 1e-3);
  EXPECT_EQ(layer.scale.axes, Axes{"norm"});
  EXPECT_EQ(layer.bias.axes, Axes{"norm"});
  EXPECT_EQ(layer.scale.value.to_host<float>(), std::vector<float>(8, 1));
  EXPECT_EQ(layer.bias.value.to_host<float>(), std::vector<float>(8, 0));
  EXPECT_EQ(layer.eps, 1e-3);
}

TEST(RMSNorm, shape_name_and_starting_values) {
  const RMSNorm layer = RMSNorm::init(norm, 1e-3);
  EXPECT_EQ(layer.scale.axes, Axes{"norm"});
  EXPECT_EQ(layer.scale.value.to_host<float>(), std::vector<float>(8, 1));
  EXPECT_EQ(layer.eps, 1e-3);
  const at::Tensor x = to_tensor(normal(Key(5), {4, 8}));
  expect_values(layer(from_tensor(x)), x / (x.square().mean(-1, true) + 1e-3).sqrt(), "eps is the layer's");
}

TEST(Mlp, shapes_and_names) {
  const Mlp mlp = Mlp::init(Key(0), embed, hidden);
  EXPECT_EQ(mlp.up.kernel.axes, (Axes{"embed", "hidden"}));
  EXPECT_EQ(mlp.down.kernel.axes, (Axes{"hidden", "embed"}));
  EXPECT_EQ(mlp.down.bias->axes, Axes{"embed"});
  EXPECT_EQ(mlp(ones({3, 8})).shape(), (Shape{3, 8}));
}

TEST(GatedMlp, shapes_and_names) {
  const GatedMlp mlp = GatedMlp::init(Key(0), embed, hidden, {.up_init = init::normal(1), .down_init = init::zeros()});
  EXPECT_EQ(testing::paths_of(leaves(mlp)), (std::vector<std::string>{"gate.kernel", "up.kernel", "down.kernel"}));
  EXPECT_EQ(mlp.gate.kernel.axes, (Axes{"embed", "hidden"}));
  EXPECT_EQ(mlp.up.kernel.axes, (Axes{"embed", "hidden"}));
  EXPECT_EQ(mlp.down.kernel.axes, (Axes{"hidden", "embed"}));
  EXPECT_NE(mlp.gate.kernel.value.to_host<float>(), mlp.up.kernel.value.to_host<float>());
  EXPECT_GT(to_tensor(mlp.gate.kernel).std().item<double>(), 0.8);
  EXPECT_EQ(to_tensor(mlp.down.kernel).abs().max().item<double>(), 0);
  EXPECT_EQ(mlp(ones({3, 8})).shape(), (Shape{3, 8}));
}

TEST(MultiheadAttention, shapes_and_names) {
  const MultiheadAttention layer = MultiheadAttention::init(Key(0), embed, {"heads", 12}, 3);
  EXPECT_EQ(layer.q.kernel.axes, (Axes{"embed", "heads"}));
  EXPECT_EQ(layer.o.kernel.axes, (Axes{"heads", "embed"}));
  EXPECT_EQ(layer.k.bias->axes, Axes{"heads"});
  EXPECT_EQ(layer.o.bias->value.shape(), Shape{8});
  EXPECT_EQ(layer(ones({2, 5, 8})).shape(), (Shape{2, 5, 8}));
}

TEST(MultiheadAttention, kv_heads_have_a_name_and_a_number_of_their_own) {
  const auto layer = MultiheadAttention::init(
      Key(0), embed, {"heads", 24}, 6,
      {.bias = false, .kv_features = Axis{"kv_heads", 8}, .rope = RotaryEmbedding{.base = 100}});
  EXPECT_EQ(layer.num_kv_heads, 2);
  EXPECT_EQ(testing::paths_of(leaves(layer)),
            (std::vector<std::string>{"q.kernel", "k.kernel", "v.kernel", "o.kernel"}));
  EXPECT_EQ(layer.k.kernel.axes, (Axes{"embed", "kv_heads"}));
  EXPECT_EQ(layer.v.kernel.value.shape(), (Shape{8, 8}));
  EXPECT_EQ(layer.o.kernel.axes, (Axes{"heads", "embed"}));
  EXPECT_EQ(layer(ones({2, 5, 8})).shape(), (Shape{2, 5, 8}));
}

TEST(MultiheadAttention, without_rope_the_order_of_the_keys_does_not_matter) {
  const auto differs = [](std::optional<RotaryEmbedding> rope) {
    const auto layer = MultiheadAttention::init(Key(0), embed, heads, 2, {.causal = false, .rope = rope});
    const at::Tensor x = to_tensor(normal(Key(5), {1, 6, 8}));
    const at::Tensor a = to_tensor(layer(from_tensor(x))), b = to_tensor(layer(from_tensor(x.flip(1)))).flip(1);
    return !at::allclose(a, b, 1e-5, 1e-5);
  };
  EXPECT_FALSE(differs({}));
  EXPECT_TRUE(differs(RotaryEmbedding{.base = 100}));
}

TEST(MultiheadAttention, causal_positions_do_not_see_later_ones) {
  const MultiheadAttention layer = MultiheadAttention::init(Key(0), embed, heads, 2);
  const Array x = normal(Key(5), {1, 6, 8}), other = normal(Key(6), {1, 6, 8});
  const at::Tensor changed = at::cat({to_tensor(x).slice(1, 0, 4), to_tensor(other).slice(1, 4)}, 1);
  const at::Tensor a = to_tensor(layer(x)), b = to_tensor(layer(from_tensor(changed)));
  EXPECT_TRUE(at::allclose(a.slice(1, 0, 4), b.slice(1, 0, 4), 1e-6, 1e-6));
  EXPECT_FALSE(at::allclose(a.slice(1, 4), b.slice(1, 4), 1e-3, 1e-3));
}

TEST(MultiheadAttention, heads_must_divide) {
  testing::expect_error(ErrorKind::invalid_argument,
                        "[MultiheadAttention] axis \"heads\" = 8 is not divisible by 3 heads. Change one of them.",
                        [] { MultiheadAttention::init(Key(0), embed, heads, 3); });
  for (const int64_t size : {-4, 0, 3, 6})
    testing::expect_error(
        ErrorKind::invalid_argument,
        "[MultiheadAttention] axis \"kv_heads\" = " + std::to_string(size) +
            " for 4 heads of 2, expected 2 times a divisor of 4.",
        [=] { MultiheadAttention::init(Key(0), embed, heads, 4, {.kv_features = Axis{"kv_heads", size}}); });
}

TEST(MultiheadAttention, zero_rows_and_zero_positions) {
  const auto layer = MultiheadAttention::init(Key(0), embed, heads, 4, {.rope = RotaryEmbedding{.base = 100}});
  for (const Shape& shape : {Shape{0, 4, 8}, Shape{4, 0, 8}}) {
    EXPECT_EQ(layer(ones(shape)).shape(), shape);
    for (const auto& [name, mesh_rules] : strategies())
      EXPECT_EQ(filter_shard(layer, mesh_rules)(batch_of(shape, stream, mesh_rules)).shape(), shape) << name;
  }
}

TEST(MultiheadAttention, takes_batch_seq_embed) {
  const MultiheadAttention layer = MultiheadAttention::init(Key(0), embed, heads, 2);
  testing::expect_error(ErrorKind::shape_mismatch,
                        "[MultiheadAttention] given float32[5,8], expected (batch, seq, embed).", [&] {
                          layer(ones({5, 8}));
                        });
}

TEST(MultiheadAttention, a_rope_is_checked_at_init) {
  const std::vector<std::pair<double, std::string>> refused{{0.0, "0"}, {-1.0, "-1"}, {NAN, "nan"}, {INFINITY, "inf"}};
  for (const auto& [base, name] : refused)
    testing::expect_error(
        ErrorKind::invalid_argument, "[rotary_embedding] base " + name + ", expected a finite one above 0.",
        [b = base] { MultiheadAttention::init(Key(0), embed, heads, 2, {.rope = RotaryEmbedding{.base = b}}); });
}

TEST(MultiheadAttention, a_decode_that_fails_leaves_the_cache) {
  MultiheadAttention layer = MultiheadAttention::init(Key(0), embed, heads, 2);
  KeyValueCache cache;
  layer.decode(ones({1, 3, 8}), cache);
  layer.o.kernel.value = ones({7, 8});
  EXPECT_THROW(layer.decode(ones({1, 2, 8}), cache), Error);
  EXPECT_EQ(cache.length(), 3);
  EXPECT_EQ(cache.values.shape(1), 3);
}

TEST(MultiheadAttention, a_window_and_a_softcap_are_checked_at_init) {
  const auto made = [](const AttentionOptions& options) {
    return [=] { MultiheadAttention::init(Key(0), embed, heads, 2, options); };
  };
  testing::expect_error(ErrorKind::invalid_argument,
                        "[MultiheadAttention] window -1, expected 1 or more, or 0 for all keys.", made({.window = -1}));
  testing::expect_error(ErrorKind::invalid_argument,
                        "[MultiheadAttention] softcap -2, expected a finite one above 0, or 0 for none.",
                        made({.softcap = -2}));
}

// A dropout rate of almost zero selects the code path of dropout, with the same result.
TEST(MultiheadAttention, with_dropout_sees_what_it_sees_without) {
  const Array x = normal(Key(1), {2, 6, 8}), ids = array<int32_t>({1, 1, 1, 2, 2, 2, 1, 2, 2, 2, 2, 3}, {2, 6});
  for (const bool causal : {true, false})
    for (const int64_t window : {0, 2})
      for (const double cap : {0.0, 0.3})
        for (const Array& segments : {Array{}, ids}) {
          AttentionOptions options{.causal = causal, .window = window, .scale = 1.5, .softcap = cap};
          const MultiheadAttention plain = MultiheadAttention::init(Key(0), embed, heads, 2, options);
          options.dropout = 1e-12;
          const MultiheadAttention dropping = MultiheadAttention::init(Key(0), embed, heads, 2, options);
          expect_near(dropping(x, {.segment_ids = segments, .key = Key(2)}), plain(x, {.segment_ids = segments}),
                      tolerance, "window " + std::to_string(window) + ", cap " + std::to_string(cap));
        }
}

TEST(KeyValueCache, that_two_go_on_from_has_the_tokens_of_each) {
  const MultiheadAttention layer = MultiheadAttention::init(Key(0), embed, heads, 2, {.rope = RotaryEmbedding{}});
  const Array text = normal(Key(1), {2, 5, 8}), one = normal(Key(2), {2, 1, 8}), other = normal(Key(3), {2, 1, 8});
  const auto after = [&](const Array& last) { return slice_in_dim(layer(concatenate({text, last}, 1)), 5, 6, 1); };
  KeyValueCache first;
  layer.decode(text, first);
  KeyValueCache second = first;
  expect_near(layer.decode(one, first), after(one), tolerance, "the first");
  expect_near(layer.decode(other, second), after(other), tolerance, "the second");
  KeyValueCache third = first;
  expect_near(layer.decode(other, third), slice_in_dim(layer(concatenate({text, one, other}, 1)), 6, 7, 1), tolerance,
              "the third");
  expect_near(layer.decode(one, first), slice_in_dim(layer(concatenate({text, one, one}, 1)), 6, 7, 1), tolerance,
              "the first once more");
}

TEST(KeyValueCache, whose_rows_are_exchanged_goes_on_with_those) {
  const MultiheadAttention layer = MultiheadAttention::init(Key(0), embed, heads, 2);
  const Array text = normal(Key(1), {2, 5, 8}), next = normal(Key(2), {2, 1, 8}), order = array<int32_t>({1, 0}, {2});
  KeyValueCache cache, other;
  layer.decode(text, cache);
  cache.keys = take(cache.keys, order, 0), cache.values = take(cache.values, order, 0);
  layer.decode(take(text, order, 0), other);
  expect_near(layer.decode(next, cache), layer.decode(next, other), tolerance, "exchanged");
}

TEST(KeyValueCache, is_written_where_it_lies) {
  for (const auto& [name, mesh_rules] : strategies()) {
    const MultiheadAttention layer = filter_shard(MultiheadAttention::init(Key(0), embed, heads, 2), mesh_rules);
    KeyValueCache cache;
    layer.decode(batch_of({8, 3, 8}, {"batch", none, none}, mesh_rules), cache);
    const void* first = cache.keys.impl()->local[0].const_data_ptr();
    int64_t moves = 0;
    for (int i = 0; i < 90; ++i) {
      layer.decode(batch_of({8, 1, 8}, {"batch", none, none}, mesh_rules), cache);
      const void* now = cache.keys.impl()->local[0].const_data_ptr();
      moves += now != first, first = now;
    }
    EXPECT_EQ(cache.length(), 93) << name;
    EXPECT_LE(moves, 2) << name;
  }
}

TEST(RMSNorm, takes_floating_types) {
  testing::expect_error(ErrorKind::dtype_mismatch,
                        "[rms_norm] x is int32[2,8], expected a floating type. Convert with astype.",
                        [] { RMSNorm::init(norm)(ones({2, 8}, int32)); });
}

}  // namespace
}  // namespace tessera::nn::layers_test
