// Decoding token by token or in chunks gives the logits of the full forward pass, on any mesh.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "examples/transformer.h"
#include "nn/placement/filter_shard.h"
#include "nn/tree/tree.h"
#include "sharding/accounting/ledger.h"

namespace tessera::examples::decode_test {
namespace {

constexpr int64_t batch = 2, seq = 12, vocab = 64;

// Returns the model with weights far from zero, so that each token's logits depend on all tokens before it.
template <class Model>
Model shaken(const Model& model) {
  uint32_t n = 0;
  return nn::tree_map(
      [&](const std::string&, const Array& x) { return x + 0.2 * normal(fold_in(Key(7), n++), x.shape()); }, model);
}

nn::CausalLM gpt() {
  return shaken(nn::CausalLM::init(Key(0), nn::config_of_family("gpt2", {.vocab_size = vocab,
                                                                         .hidden_size = 32,
                                                                         .head_dim = 8,
                                                                         .intermediate_size = 48,
                                                                         .max_position_embeddings = seq})));
}
nn::CausalLM llama(int64_t kv_heads = 2) {
  return shaken(nn::CausalLM::init(Key(0), {.vocab_size = vocab,
                                            .hidden_size = 32,
                                            .num_key_value_heads = kv_heads,
                                            .head_dim = 8,
                                            .intermediate_size = 48,
                                            .rms_norm_eps = 1e-5,
                                            .tie_word_embeddings = true}));
}

Array text(const MeshRules& mesh_rules) {
  std::vector<int32_t> ids(batch * seq);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>((i * i * 5 + i * 11 + 3) % vocab);
  return device_put(array<int32_t>(ids, {batch, seq}), {"batch", none}, mesh_rules);
}

double largest_difference(const Array& a, const Array& b) {
  EXPECT_EQ(a.shape(), b.shape());
  const std::vector<float> x = a.to_host<float>(), y = b.to_host<float>();
  double most = 0;
  for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(double(x[i]) - y[i]));
  return most;
}

MeshRules mesh_rules_of(std::vector<MeshAxis> axes, bool private_replicas = false) {
  return MeshRules(make_mesh(std::move(axes), {.private_replicas = private_replicas}),
                   with_all_names({{"batch", "data"},
                                   {"embed", "data"},
                                   {"heads", "model"},
                                   {"kv_heads", "model"},
                                   {"mlp", "model"},
                                   {"vocab", "model"}}),
                   {.missing_axes = MissingAxes::ok});
}

// Decodes the text in chunks of these sizes.
template <class Model>
void expect_same_in_parts(const Model& model, const MeshRules& mesh_rules, const std::vector<int64_t>& parts) {
  const Model placed = nn::filter_shard(model, mesh_rules);
  const Array ids = text(mesh_rules), at_once = placed(ids);
  nn::DecoderCache cache;
  for (const int64_t n : parts) {
    const int64_t start = cache.length();
    const Array logits = placed.decode(slice_in_dim(ids, start, start + n, 1), cache);
    EXPECT_LT(largest_difference(logits, slice_in_dim(at_once, start, start + n, 1)), 1e-5)
        << "positions " << start << " to " << start + n << " on " << mesh_rules.mesh().to_string();
    EXPECT_EQ(cache.length(), start + n);
  }
  EXPECT_EQ(cache.length(), seq);
}

const std::vector<int64_t> one_by_one(seq, 1), a_prompt_first{7, 1, 1, 1, 1, 1}, in_parts{5, 4, 3};

template <class Model>
void expect_same_everywhere(const Model& model) {
  for (const auto& parts : {one_by_one, a_prompt_first, in_parts})
    for (const MeshRules& mesh_rules : {mesh_rules_of({{"data", 1}}), mesh_rules_of({{"data", 2}, {"model", 4}}),
                                        mesh_rules_of({{"data", 2}, {"model", 4}}, true)})
      expect_same_in_parts(model, mesh_rules, parts);
}

TEST(Decode, GptInPartsIsGptAtOnce) { expect_same_everywhere(gpt()); }
TEST(Decode, LlamaInPartsIsLlamaAtOnce) { expect_same_everywhere(llama()); }
TEST(Decode, LlamaOfOneKvHeadInPartsIsItselfAtOnce) { expect_same_everywhere(llama(1)); }
TEST(Decode, LlamaOfAsManyKvHeadsInPartsIsItselfAtOnce) { expect_same_everywhere(llama(4)); }

TEST(Decode, TheCacheIsShardedLikeTheHeads) {
  const MeshRules mesh_rules = mesh_rules_of({{"data", 2}, {"model", 2}});
  const nn::CausalLM placed = nn::filter_shard(llama(), mesh_rules);
  nn::DecoderCache cache;
  const Array ids = text(mesh_rules);
  placed.decode(slice_in_dim(ids, 0, 5, 1), cache);
  CommLedger ledger;
  placed.decode(slice_in_dim(ids, 5, 6, 1), cache);
  for (const nn::KeyValueCache& layer : cache.layers) {
    EXPECT_EQ(layer.keys.type_string(), "float32[2@data,6,2@model,8]");
    EXPECT_EQ(layer.values.type_string(), "float32[2@data,6,2@model,8]");
  }
  for (const CommRecord& r : ledger.records())
    EXPECT_TRUE(r.operation != std::string("concatenate") && r.operation != std::string("dot_product_attention"))
        << r.operation << ' ' << r.kind;
}

TEST(Decode, GptEndsWithItsPositionsAndLlamaContinues) {
  const Array ids = array<int32_t>(std::vector<int32_t>(seq, 3), {1, seq}), next = slice_in_dim(ids, 0, 1, 1);
  nn::DecoderCache of_gpt, of_llama;
  const nn::CausalLM a = gpt();
  const nn::CausalLM b = llama();
  a.decode(ids, of_gpt);
  b.decode(ids, of_llama);
  EXPECT_THROW(a.decode(next, of_gpt), Error);
  EXPECT_EQ(b.decode(next, of_llama).shape(), (Shape{1, 1, vocab}));
  EXPECT_EQ(of_llama.length(), seq + 1);
}

// The second layer throws after the first has written to its cache.
template <class Model>
void expect_same_cache_after_an_error(Model model) {
  const Array ids = array<int32_t>({1, 2, 3}, {1, 3});
  nn::DecoderCache cache;
  model.decode(ids, cache);
  for (const nn::Leaf& leaf : nn::leaves(model))
    if (leaf.path == "layers.1.attn.o.kernel") *leaf.value = ones({1, 1});
  EXPECT_THROW(model.decode(ids, cache), Error);
  for (const nn::KeyValueCache& layer : cache.layers) EXPECT_EQ(layer.length(), 3);
  nn::DecoderCache empty;
  EXPECT_THROW(model.decode(ids, empty), Error);
  EXPECT_TRUE(empty.layers.empty());
}

TEST(Decode, AnErrorLeavesTheCacheAsItWas) {
  expect_same_cache_after_an_error(gpt());
  expect_same_cache_after_an_error(llama());
}

}  // namespace
}  // namespace tessera::examples::decode_test
