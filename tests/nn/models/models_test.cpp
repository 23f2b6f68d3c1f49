// The decoders: every family on every mesh, packed documents, decoding, padding and recomputation.
#include <gtest/gtest.h>

#include "nn/layers/linear.h"
#include "nn/models/causal_lm.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"

namespace tessera::nn::models_test {
namespace {

using testing::expect_near;
using testing::expect_trees_near;

constexpr double tolerance = 2e-5;

// A small config of each family, with every option that the family has.
std::vector<DecoderConfig> families() {
  const DecoderConfig small{.vocab_size = 30,
                            .hidden_size = 16,
                            .num_hidden_layers = 2,
                            .num_attention_heads = 4,
                            .num_key_value_heads = 2,
                            .head_dim = 8,
                            .intermediate_size = 24,
                            .max_position_embeddings = 32};
  const auto with = [&](const char* family, auto change) {
    DecoderConfig config = config_of_family(family, small);
    change(config);
    return config;
  };
  return {with("llama",
               [](auto& c) { c.rope.scaling = {.kind = RotaryScaling::llama3, .factor = 4, .original_positions = 8}; }),
          with("mistral",
               [](auto& c) {
                 c.windows = {3, 3}, c.tie_word_embeddings = true;
               }),
          with("qwen2", [](auto&) {}),
          with("qwen3",
               [](auto& c) { c.rope.scaling = {.kind = RotaryScaling::yarn, .factor = 4, .original_positions = 8}; }),
          with("gemma2",
               [](auto& c) {
                 c.windows = {3, 0}, c.attn_logit_softcapping = 0.5, c.final_logit_softcapping = 0.3,
                 c.attention_scale = 0.7;
               }),
          with("mixtral", [](auto& c) { c.num_local_experts = 4, c.num_experts_per_tok = 2; }),
          with("qwen3_moe",
               [](auto& c) {
                 c.num_local_experts = 4, c.num_experts_per_tok = 2, c.moe_intermediate_size = 8, c.moe_layers = {0, 1};
               }),
          with("deepseek_v3",
               [](auto& c) {
                 c.num_local_experts = 4, c.num_experts_per_tok = 2, c.moe_intermediate_size = 8, c.moe_layers = {0, 1};
                 c.n_group = 2, c.topk_group = 1, c.kv_lora_rank = 12, c.q_lora_rank = 10, c.qk_nope_head_dim = 6;
                 c.v_head_dim = 4, c.num_key_value_heads = 4;
               }),
          with("gpt_oss",
               [](auto& c) {
                 c.num_local_experts = 4, c.num_experts_per_tok = 2, c.windows = {3, 0};
               }),
          with("llama4_text",
               [](auto& c) {
                 c.num_local_experts = 4, c.moe_layers = {1, 0}, c.attention_chunk_size = 3, c.no_rope_layers = {1, 0};
                 c.query_temperature->floor_scale = 2;
               }),
          with("gemma3_text",
               [](auto& c) {
                 c.windows = {3, 0}, c.local_rope->base = 50;
               }),
          with("olmo2", [](auto& c) { c.attention_bias = true; }),
          with("cohere", [](auto& c) { c.rope.dims = 6, c.logits_scaling = 0.5; }),
          with("opt", [](auto& c) { c.num_key_value_heads = 2; }),
          with("llama",  // options that no family combines
               [](auto& c) {
                 c.norm_placement = NormPlacement::parallel_shared, c.norm_offset = 0.5, c.gated_mlp = false;
                 c.qk_norm = c.qk_norm_all_heads = c.output_bias = true, c.no_rope_layers = {0, 1}, c.windows = {0, 3};
                 c.local_rope = RotaryEmbedding{.base = 30, .dims = 4}, c.embedding_multiplier = 3;
                 c.residual_multiplier = 0.6, c.final_logit_softcapping = 0.3, c.logits_scaling = 2;
               }),
          with("gpt2", [](auto& c) { c.scale_attn_by_inverse_layer_idx = true; })};
}

std::vector<MeshRules> all_mesh_rules() {
  std::vector<MeshRules> all;
  for (const std::vector<MeshAxis>& axes : std::vector<std::vector<MeshAxis>>{
           {{"data", 8}}, {{"fsdp", 8}}, {{"model", 8}}, {{"data", 2}, {"model", 4}}, {{"fsdp", 2}, {"model", 2}}})
    for (const bool is_private : {false, true}) {
      const Mesh mesh = make_mesh(axes, {.private_replicas = is_private});
      all.emplace_back(mesh, decoder_rules(mesh));
    }
  return all;
}

Array ids_of(int64_t rows, int64_t seq, uint32_t seed = 5) { return randint(Key(seed), {rows, seq}, 0, 30); }

// A model whose values are far from their initial ones, so that none is zero or one.
CausalLM model_of(const DecoderConfig& config) {
  CausalLM model = CausalLM::init(Key(1), config);
  uint32_t i = 0;
  for (const Leaf& leaf : leaves(model)) *leaf.value = *leaf.value + 0.1 * normal(Key(100 + i++), leaf.value->shape());
  return model;
}

Array placed(const Array& x, const MeshRules& mesh_rules) { return device_put(x, {"batch", none}, mesh_rules); }

// A scalar that depends on every logit.
Array weighted(const Array& logits) {
  const Array weights = normal(Key(9), {logits.shape(0), logits.shape(1), 30});
  return sum(slice_in_dim(logits, 0, 30, 2) * weights);
}

std::string what(const DecoderConfig& config) { return config.model_type; }

TEST(Models, are_the_same_on_every_mesh) {
  const Array ids = ids_of(8, 7);
  const auto loss = [](const CausalLM& model, const Array& ids) { return weighted(model(ids)); };
  for (const DecoderConfig& config : families()) {
    const CausalLM model = model_of(config);
    const auto [expected, gradient] = value_and_grad(loss)(model, ids);
    for (const MeshRules& mesh_rules : all_mesh_rules()) {
      const CausalLM there = filter_shard(model, mesh_rules);
      const std::string where = what(config) + " on " + mesh_rules.mesh().to_string();
      expect_near(gather(there(placed(ids, mesh_rules))), model(ids), tolerance, where);
      const auto [got, gradient_there] = value_and_grad(loss)(there, placed(ids, mesh_rules));
      expect_trees_near(gradient_there, gradient, tolerance, where);
    }
  }
}

TEST(Models, start_with_the_same_values_on_every_mesh) {
  for (const DecoderConfig& config : families()) {
    const CausalLM model = filter_shard(CausalLM::init(Key(3), config), all_mesh_rules()[0]);
    for (const MeshRules& mesh_rules : all_mesh_rules())
      expect_trees_near(filter_shard(CausalLM::init(Key(3), config), mesh_rules), model, 0, what(config));
  }
}

TEST(Models, decode_as_they_read) {
  const Array ids = ids_of(2, 9);
  for (const DecoderConfig& config : families()) {
    const CausalLM model = model_of(config);
    DecoderCache cache;
    std::vector<Array> parts;
    for (const auto& [from, to] : {std::pair(0, 4), {4, 5}, {5, 9}})
      parts.push_back(model.decode(slice_in_dim(ids, from, to, 1), cache));
    EXPECT_EQ(cache.length(), 9);
    expect_near(concatenate(parts, 1), model(ids), tolerance, what(config));
  }
}

// Documents of 4, 3 and 2 tokens in one row, and documents of 2 and 5 tokens with padding in another.
struct Packed {
  Array ids = ids_of(2, 9);
  TokenInputs with{.segment_ids = array<int32_t>({1, 1, 1, 1, 2, 2, 2, 3, 3, 1, 1, 2, 2, 2, 2, 2, 0, 0}, {2, 9}),
                   .positions = array<int32_t>({0, 1, 2, 3, 0, 1, 2, 0, 1, 0, 1, 0, 1, 2, 3, 4, 0, 0}, {2, 9})};
  struct Document {
    int64_t row, from, to;
  };
  std::vector<Document> documents{{0, 0, 4}, {0, 4, 7}, {0, 7, 9}, {1, 0, 2}, {1, 2, 7}};

  static Array part(const Array& x, const Document& d) {
    return slice_in_dim(slice_in_dim(x, d.row, d.row + 1, 0), d.from, d.to, 1);
  }
};

TEST(Models, read_packed_documents_as_each_by_itself) {
  const Packed packed;
  for (const DecoderConfig& config : families()) {
    const CausalLM model = model_of(config);
    const Array together = model(packed.ids, packed.with);
    for (const Packed::Document& d : packed.documents)
      expect_near(Packed::part(together, d), model(Packed::part(packed.ids, d)), tolerance, what(config));
  }
}

// The sum over the documents' tokens; the weight of padding is 0.
Array loss_of_packed(const CausalLM& model, const Array& ids, const TokenInputs& with, const Array& weights) {
  return sum(model(ids, with) * weights);
}

TEST(Models, have_the_gradients_of_the_documents_one_by_one) {
  const Packed packed;
  const Array weights = normal(Key(4), {2, 9, 30}) * astype(expand_dims(packed.with.segment_ids > 0, {2}), float32);
  for (const DecoderConfig& config : families()) {
    const CausalLM model = model_of(config);
    const auto one_by_one = [&](const CausalLM& m, const Array& ids) {
      Array total = zeros({});
      for (const Packed::Document& d : packed.documents)
        total = total + sum(m(Packed::part(ids, d)) * Packed::part(weights, d));
      return total;
    };
    const auto [expected, gradient] = value_and_grad(one_by_one)(model, packed.ids);
    for (const MeshRules& mesh_rules : all_mesh_rules()) {
      if (mesh_rules.mesh().has_axis("data") && mesh_rules.mesh().size("data") > 2) continue;
      const CausalLM there = filter_shard(model, mesh_rules);
      const bool divides = !mesh_rules.mesh().has_axis("fsdp") || mesh_rules.mesh().size("fsdp") <= 2;
      const auto put = [&](const Array& x) { return divides ? placed(x, mesh_rules) : x; };
      const TokenInputs with{put(packed.with.segment_ids), put(packed.with.positions)};
      const auto [got, there_gradient] = value_and_grad(loss_of_packed)(there, put(packed.ids), with, weights);
      const std::string where = what(config) + " on " + mesh_rules.mesh().to_string();
      expect_near(got, expected, tolerance, where);
      expect_trees_near(there_gradient, gradient, tolerance, where);
    }
  }
}

// The label of each token is the next token of its document. Positions at the end of documents have weight 0.
TEST(Models, have_the_loss_of_the_documents_one_by_one) {
  const Packed packed;
  const Array labels = concatenate({slice_in_dim(packed.ids, 1, 9, 1), zeros({2, 1}, int32)}, 1);
  const Array weights = array<float>({1, 1, 1, 0, 1, 1, 0, 1, 0, 1, 0, 1, 1, 1, 1, 0, 0, 0}, {2, 9});
  for (DecoderConfig config : families()) {
    for (const int64_t rows : {30, 32}) {
      config.vocab_rows = rows;
      const CausalLM model = model_of(config);
      const auto one_by_one = [&](const CausalLM& m) {
        WeightedSum total{zeros({}), zeros({})};
        for (const Packed::Document& d : packed.documents) {
          const Array ids = Packed::part(packed.ids, d), inputs = slice_in_dim(ids, 0, ids.shape(1) - 1, 1);
          total = total + m.loss(inputs, slice_in_dim(ids, 1, ids.shape(1), 1));
        }
        return total;
      };
      const auto together = [&](const CausalLM& m, const Array& ids, const Array& labels, const Array& weights,
                                const TokenInputs& with) { return m.loss(ids, labels, weights, with); };
      const auto [expected, gradient] = value_and_grad(one_by_one)(model);
      for (const std::vector<MeshAxis>& axes : std::vector<std::vector<MeshAxis>>{
               {{"data", 1}}, {{"data", 2}}, {{"fsdp", 2}, {"model", 2}}, {{"model", 8}}}) {
        if (rows == 30 && axes[0].size == 8) continue;  // 8 does not divide 30 rows
        const Mesh mesh = make_mesh(axes);
        const MeshRules mesh_rules{mesh, decoder_rules(mesh)};
        const auto put = [&](const Array& x) { return placed(x, mesh_rules); };
        const TokenInputs with{put(packed.with.segment_ids), put(packed.with.positions)};
        const auto [got, there] =
            value_and_grad(together)(filter_shard(model, mesh_rules), put(packed.ids), put(labels), put(weights), with);
        const std::string where = what(config) + " on " + mesh.to_string();
        expect_near(got, expected, tolerance, where);
        expect_trees_near(there, gradient, tolerance, where);
      }
    }
  }
}

TEST(Models, recompute_activations_without_another_result) {
  const Packed packed;
  const Array weights = normal(Key(4), {2, 9, 30});
  for (const DecoderConfig& config : families()) {
    CausalLM model = model_of(config);
    const auto [loss, gradient] = value_and_grad(loss_of_packed)(model, packed.ids, packed.with, weights);
    model.remat = true;
    const auto [again, same] = value_and_grad(loss_of_packed)(model, packed.ids, packed.with, weights);
    expect_near(again, loss, 0, what(config));
    expect_trees_near(same, gradient, 1e-6, what(config));
  }
}

// Returns the model with 36 instead of 30 rows in the vocabulary. The additional rows are filled with 7.
CausalLM padded(const CausalLM& plain) {
  DecoderConfig config = plain.config;
  config.vocab_rows = 36;
  CausalLM wide = CausalLM::init(Key(1), config);
  const Leaves to = leaves(wide), from = leaves(plain);
  for (size_t i = 0; i < to.size(); ++i) {
    Array rows = *from[i].value;
    for (int d = 0; d < rows.ndim(); ++d)
      if (rows.shape(d) == 30) rows = pad(rows, {{0, d == 0 ? 6 : 0}, {0, d == 1 ? 6 : 0}}, 7);
    *to[i].value = rows;
  }
  return wide;
}

// Compares in float64; expect_near reads float32.
void expect_equal(const Array& got, const Array& expected, const std::string& where, double most = 1e-12) {
  EXPECT_EQ(got.dtype(), float64) << where;
  EXPECT_LE(max(abs(gather(got) - expected)).item<double>(), most) << where;
}

// Checks that the gradients of padding are 0, and that all others are equal.
void expect_without_padding(const CausalLM& got, const CausalLM& expected, const std::string& where) {
  const Leaves a = leaves(got), b = leaves(expected);
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i].value->is_absent()) continue;  // the gradient of a buffer
    Array kept = gather(*a[i].value);
    for (int d = 0; d < kept.ndim(); ++d)
      if (kept.shape(d) == 36) {
        expect_equal(slice_in_dim(kept, 30, 36, d), zeros({}, float64), a[i].path, 0);
        kept = slice_in_dim(kept, 0, 30, d);
      }
    expect_equal(kept, *b[i].value, where + ' ' + a[i].path);
  }
}

// With six devices along the vocabulary, the last one has only padding.
TEST(Models, let_no_padding_of_the_vocabulary_into_a_result) {
  const Array ids = ids_of(2, 7);
  const auto loss = [](const CausalLM& model, const Array& ids) { return model.loss(ids, ids); };
  for (DecoderConfig config : families()) {
    config.dtypes.params = float64;
    const CausalLM plain = model_of(config), wide = padded(plain);
    const Array logits = plain(ids);
    const auto [expected, gradient] = value_and_grad(loss)(plain, ids);
    for (const std::vector<MeshAxis>& axes : std::vector<std::vector<MeshAxis>>{
             {{"data", 1}}, {{"model", 6}}, {{"data", 2}, {"model", 2}}, {{"fsdp", 2}, {"model", 2}}}) {
      const Mesh mesh = make_mesh(axes);
      const MeshRules mesh_rules{mesh, decoder_rules(mesh)};
      const CausalLM there = filter_shard(wide, mesh_rules);
      const auto [got, wide_gradient] = value_and_grad(loss)(there, placed(ids, mesh_rules));
      const std::string where = what(config) + " on " + mesh.to_string();
      expect_equal(there(placed(ids, mesh_rules)), logits, where);
      DecoderCache cache;
      EXPECT_EQ(there.decode(ids, cache).shape(), logits.shape()) << where;
      expect_equal(got, expected, where);
      expect_without_padding(wide_gradient, gradient, where);
    }
  }
}

TEST(Models, refuse_ids_and_labels_of_padding) {
  const Array ids = ids_of(2, 7), beyond = concatenate({ids, array<int32_t>({30, 35}, {2, 1})}, 1);
  const Array labels = ids_of(2, 8);
  for (const DecoderConfig& config : families()) {
    const CausalLM wide = padded(model_of(config));
    const Mesh mesh = make_mesh({{"model", 6}});
    for (const CausalLM& model : {wide, filter_shard(wide, MeshRules{mesh, decoder_rules(mesh)})}) {
      DecoderCache cache;
      testing::expect_error_with(ErrorKind::invalid_argument,
                                 {"[embedding] ", "indices from ", " to 35 given, expected 0 to 29."},
                                 [&] { sum(model(beyond)).item<float>(); });  // an accelerator reports it late
      testing::expect_error_with(ErrorKind::invalid_argument, {"35 given, expected 0 to 29."},
                                 [&] { sum(model.decode(beyond, cache)).item<float>(); });
      testing::expect_error_with(ErrorKind::invalid_argument,
                                 {"[linear_cross_entropy] ", "indices from ", " to 35 given, expected 0 to 29."},
                                 [&] { model.loss(labels, beyond).sum.item<float>(); });
    }
  }
}

// The loss includes the head's LoRA adapter, as the logits do.
TEST(Models, lose_what_a_low_rank_change_of_the_head_says) {
  CausalLM model = model_of(families()[0]);
  auto& head = model.head;
  head = with_lora(Key(4), *head, {.rank = 2});
  const Array ids = ids_of(2, 7), labels = ids_of(2, 7, 6);
  const double before = model.loss(ids, labels).mean().item<double>();
  head->lora->b.value = normal(Key(5), head->lora->b.value.shape());
  const double expected = cross_entropy(model(ids), labels).item<double>();
  EXPECT_GT(std::abs(before - expected), 0.01);
  EXPECT_NEAR(model.loss(ids, labels).mean().item<double>(), expected, 1e-5);
}

// The expected numbers come from transformers: tests/reference/hf/mixtral_balance.
TEST(Models, add_the_balance_of_routers_to_the_loss_where_it_is_asked_for) {
  const Array ids = ids_of(8, 7), labels = ids_of(8, 7, 6);
  const auto loss = [](const CausalLM& model, const Array& ids, const Array& labels) {
    return model.loss(ids, labels);
  };
  CausalLM model = model_of(families()[5]);
  const double plain = value_and_grad(loss)(model, ids, labels).first.item<double>();
  model.set_router_aux_loss_coef(0.5);
  const auto [expected, gradient] = value_and_grad(loss)(model, ids, labels);
  EXPECT_GT(expected.item<double>(), plain + 0.5);
  for (const MeshRules& mesh_rules : all_mesh_rules())
    for (const bool remat : {false, true}) {
      CausalLM there = filter_shard(model, mesh_rules);
      there.remat = remat;
      const auto [got, gradient_there] =
          value_and_grad(loss)(there, placed(ids, mesh_rules), placed(labels, mesh_rules));
      expect_near(got, expected, tolerance, mesh_rules.mesh().to_string());
      expect_trees_near(gradient_there, gradient, tolerance, mesh_rules.mesh().to_string());
    }
  testing::expect_errors(
      {{ErrorKind::invalid_argument, "[DecoderConfig] router_aux_loss_coef = 0.1 without experts, expected 0.",
        [] { CausalLM::init(Key(0), {}).set_router_aux_loss_coef(0.1); }},
       {ErrorKind::invalid_argument, "[DecoderConfig] router_aux_loss_coef = -1, expected a finite number from 0 on.",
        [&] { model.set_router_aux_loss_coef(-1); }}});
}

TEST(Models, refuse_options_that_exclude_each_other) {
  const auto refused = [](DecoderConfig config) { return [=] { CausalLM::init(Key(0), config); }; };
  testing::expect_errors(
      {{ErrorKind::invalid_argument, "[DecoderConfig] norm_offset = 1, expected 0 for LayerNorms.",
        refused({.norm = NormKind::layer, .norm_offset = 1})},
       {ErrorKind::invalid_argument, "[DecoderConfig] position_offset = 2 without learned_positions, expected 0.",
        refused({.position_offset = 2})},
       {ErrorKind::invalid_argument, "[DecoderConfig] 2 in no_rope_layers, expected 0 or 1.",
        refused({.no_rope_layers = {2, 0}})},
       {ErrorKind::invalid_argument,
        "[DecoderConfig] num_local_experts = 4 and num_experts_per_tok = 0, expected 1 or more, and at most "
        "as many per token as there are.",
        refused({.num_local_experts = 4})},
       {ErrorKind::invalid_argument,
        "[DecoderConfig] experts with mlp_bias = true, gated_mlp = true and hidden_act = silu, expected gated ones "
        "without bias, with silu.",
        refused({.mlp_bias = true, .num_local_experts = 4, .num_experts_per_tok = 2})},
       {ErrorKind::invalid_argument,
        "[DecoderConfig] num_attention_heads = 4 and num_key_value_heads = 3, expected a divisor.",
        refused({.num_key_value_heads = 3})},
       {ErrorKind::invalid_argument,
        "[DecoderConfig] n_group = 3 and topk_group = 1 for 2 of 4 experts, expected a divisor of the experts, and "
        "groups with as many experts as a token uses.",
        refused({.num_local_experts = 4, .num_experts_per_tok = 2, .n_group = 3})},
       {ErrorKind::invalid_argument,
        "[DecoderConfig] kv_lora_rank = 8 with options that latent attention does not have, expected rotary positions, "
        "and no fewer kv heads, norms of heads, sinks, windows, chunks or softcap.",
        refused({.attention_sinks = true, .kv_lora_rank = 8})},
       {ErrorKind::invalid_argument,
        "[DecoderConfig] query_temperature.floor_scale = 0, expected a finite number above 0.",
        refused({.query_temperature = QueryTemperature{.floor_scale = 0}})},
       {ErrorKind::invalid_argument, "[DecoderConfig] clamped_gate.limit = 1e+300, expected a finite number above 0.",
        refused({.clamped_gate = ClampedGate{.limit = 1e300}})},
       {ErrorKind::invalid_argument, "[DecoderConfig] 3 windows for 2 layers, expected one for each, or none.",
        refused({.windows = {1, 2, 3}})},
       {ErrorKind::invalid_argument,
        "[DecoderConfig] vocab_rows = 10 and vocab_size = 256, expected as many rows or more.",
        refused({.vocab_rows = 10})},
       {ErrorKind::invalid_argument, "[DecoderConfig] num_hidden_layers = 0, expected 1 to 2147483648.",
        refused({.num_hidden_layers = 0})}});
  CausalLM three = CausalLM::init(Key(0), {.num_hidden_layers = 3});
  DecoderCache cache;
  CausalLM::init(Key(0), {}).decode(ids_of(1, 2), cache);
  testing::expect_errors(
      {{ErrorKind::invalid_argument, "[decode] a cache of 2 layers, expected 3. Give each model and text its own.",
        [&] { three.decode(ids_of(1, 1), cache); }},
       {ErrorKind::invalid_argument, "[DecoderConfig] rope with learned_positions = true, expected one of the two.",
        [] { CausalLM::init(Key(0), {.rope = {.base = 5}, .learned_positions = true}); }},
       {ErrorKind::invalid_argument,
        "[config_of_family] tie_word_embeddings: given with the sizes. Set it in the result.",
        [] { config_of_family("llama", {.tie_word_embeddings = true}); }}});
  const CausalLM gpt = model_of(families().back());
  testing::expect_errors(
      {{ErrorKind::invalid_argument, "[DecoderEmbedding] 40 tokens, expected at most 32, for which it has positions.",
        [&] { gpt(ids_of(1, 40)); }}});
  const CausalLM opt = CausalLM::init(Key(0), {.learned_positions = true, .position_offset = 2});
  testing::expect_error_with(ErrorKind::invalid_argument, {"-1"}, [&] {
    opt(ids_of(1, 2), {.positions = array<int32_t>({-1, 0}, {1, 2})});
  });
}

TEST(DecoderRules, name_every_axis_and_let_own_rules_come_first) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  for (const DecoderConfig& config : families())
    EXPECT_NO_THROW(filter_shard(CausalLM::init(Key(0), config), MeshRules{mesh, decoder_rules(mesh)}));
  const MeshRules own{mesh, decoder_rules(mesh, {{"mlp", "data"}})};
  const CausalLM llama = filter_shard(CausalLM::init(Key(0), {}), own);
  EXPECT_EQ(std::get<GatedMlp>(llama.layers[0].mlp).up.kernel.value.sharding().spec(), (P{none, "data"}));
  EXPECT_EQ(std::get<MultiheadAttention>(llama.layers[0].attn).q.kernel.value.sharding().spec(), (P{none, "model"}));
}

}  // namespace
}  // namespace tessera::nn::models_test
