// The table of families of decoders, with the defaults of transformers' configuration classes.
#include "nn/models/families.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "sharding/base/fail.h"

namespace tessera::nn::detail {

namespace {

namespace json = boost::json;
using C = DecoderConfig;
using Names = std::vector<HuggingFaceName>;

// ---- names of tensors

// Completes rows of layers or norms: {"attn.q", "self_attn.q_proj"} becomes the rows of its kernel and bias, and
// {"norm1", "input_layernorm"} those of its scale and bias. A name that ends with .weight is complete.
Names completed(const std::string& ours, const std::string& theirs, const Names& rows, bool transposed = true) {
  Names all;
  for (const HuggingFaceName& row : rows) {
    const std::string path = ours + row.path, name = theirs + row.name;
    const bool is_norm = path.find("norm") != path.npos || path.find("ln") != path.npos;
    if (name.ends_with(".weight")) {
      all.push_back({path, name, row.transposed, row.part, row.otherwise});
    } else {
      all.push_back({path + (is_norm ? ".scale" : ".kernel"), name + ".weight", transposed && !is_norm, row.part});
      all.push_back({path + ".bias", name + ".bias", false, row.part});
    }
  }
  return all;
}

}  // namespace

Names layer_names(const Names& rows, const std::string& theirs) { return completed("layers.#.", theirs, rows); }

namespace {

// Names outside of the layers. The tied head is the embedding.
Names outer_names(const std::string& embed, const std::string& norm, const std::string& head = "lm_head") {
  return joined<HuggingFaceName>(
      {{{"embed.tokens", embed + ".weight"}, {"head.kernel", head + ".weight", true, {}, embed + ".weight"}},
       completed("", "", {{"final_norm", norm}})});
}

Names llama_outer_names() { return outer_names("model.embed_tokens", "model.norm"); }

Names attention_names() {
  return layer_names({{"attn.q", "self_attn.q_proj"},
                      {"attn.k", "self_attn.k_proj"},
                      {"attn.v", "self_attn.v_proj"},
                      {"attn.o", "self_attn.o_proj"},
                      {"attn.q_norm", "self_attn.q_norm"},
                      {"attn.k_norm", "self_attn.k_norm"}});
}
Names gated_mlp_names() {
  return layer_names({{"mlp.gate", "mlp.gate_proj"}, {"mlp.up", "mlp.up_proj"}, {"mlp.down", "mlp.down_proj"}});
}
Names two_norms_names(const std::string& layers = "model.layers.#.") {
  return layer_names({{"norm1", "input_layernorm"}, {"norm2", "post_attention_layernorm"}}, layers);
}

}  // namespace

Names llama_names(const C&) {
  return joined({llama_outer_names(), attention_names(), gated_mlp_names(), two_norms_names()});
}

namespace {

Names gemma2_names(const C&) {
  return joined({llama_outer_names(), attention_names(), gated_mlp_names(),
                 layer_names({{"norm1", "input_layernorm"},
                              {"attn_norm", "post_attention_layernorm"},
                              {"norm2", "pre_feedforward_layernorm"},
                              {"mlp_norm", "post_feedforward_layernorm"}})});
}

// q, k and v in one tensor, in groups of as many kv heads: in each its queries, then its keys, then its values.
Names fused_attention(const char* theirs, const C& c, int64_t groups) {
  const int64_t q = c.num_attention_heads / groups, kv = c.num_key_value_heads / groups, all = q + 2 * kv;
  return {{"attn.q", theirs, false, {groups, all, 0, q}},
          {"attn.k", theirs, false, {groups, all, q, kv}},
          {"attn.v", theirs, false, {groups, all, q + kv, kv}}};
}

Names phi3_names(const C& c) {
  return joined({llama_outer_names(), layer_names(fused_attention("self_attn.qkv_proj", c, 1)),
                 layer_names({{"attn.o", "self_attn.o_proj"},
                              {"mlp.gate", "mlp.gate_up_proj", false, {1, 2, 0}},
                              {"mlp.up", "mlp.gate_up_proj", false, {1, 2, 1}},
                              {"mlp.down", "mlp.down_proj"}}),
                 two_norms_names()});
}

Names olmo2_names(const C&) {
  return joined({llama_outer_names(), attention_names(), gated_mlp_names(),
                 layer_names({{"attn_norm", "post_attention_layernorm"}, {"mlp_norm", "post_feedforward_layernorm"}})});
}

Names gpt_neox_names(const C& c) {
  const char* layers = "gpt_neox.layers.#.";
  return joined(
      {outer_names("gpt_neox.embed_in", "gpt_neox.final_layer_norm", "embed_out"),
       layer_names(fused_attention("attention.query_key_value", c, c.num_key_value_heads), layers),
       layer_names({{"attn.o", "attention.dense"}, {"mlp.up", "mlp.dense_h_to_4h"}, {"mlp.down", "mlp.dense_4h_to_h"}},
                   layers),
       two_norms_names(layers)});
}

Names falcon_names(const C& c) {
  const char* layers = "transformer.h.#.";
  const bool has_two = c.norm_placement == NormPlacement::parallel;
  return joined({outer_names("transformer.word_embeddings", "transformer.ln_f"),
                 layer_names(fused_attention("self_attention.query_key_value", c, c.num_key_value_heads), layers),
                 layer_names({{"attn.o", "self_attention.dense"},
                              {"mlp.up", "mlp.dense_h_to_4h"},
                              {"mlp.down", "mlp.dense_4h_to_h"},
                              {"norm1", has_two ? "ln_attn" : "input_layernorm"},
                              {"norm2", has_two ? "ln_mlp" : "post_attention_layernorm"}},
                             layers)});
}

Names opt_names(const C&) {
  return joined({outer_names("model.decoder.embed_tokens", "model.decoder.final_layer_norm"),
                 {{"embed.positions", "model.decoder.embed_positions.weight"}},
                 layer_names({{"attn.q", "self_attn.q_proj"},
                              {"attn.k", "self_attn.k_proj"},
                              {"attn.v", "self_attn.v_proj"},
                              {"attn.o", "self_attn.out_proj"},
                              {"norm1", "self_attn_layer_norm"},
                              {"norm2", "final_layer_norm"},
                              {"mlp.up", "fc1"},
                              {"mlp.down", "fc2"}},
                             "model.decoder.layers.#.")});
}

Names starcoder2_names(const C&) {
  return joined({llama_outer_names(), attention_names(), two_norms_names(),
                 layer_names({{"mlp.up", "mlp.c_fc"}, {"mlp.down", "mlp.c_proj"}})});
}

Names mixtral_names(const C&) {
  return joined({llama_outer_names(), attention_names(), two_norms_names(),
                 layer_names({{"mlp.router", "block_sparse_moe.gate.weight", true},
                              {"mlp.gate", "block_sparse_moe.experts.*.w1.weight", true},
                              {"mlp.down", "block_sparse_moe.experts.*.w2.weight", true},
                              {"mlp.up", "block_sparse_moe.experts.*.w3.weight", true}})});
}

// ln1, ln2 and final_ln are other names of norm1, norm2 and final_norm, for custom models.
Names gpt2_names(const C&) {
  Names all = completed("layers.#.", "transformer.h.#.",
                        {{"attn.q", "attn.c_attn", false, {1, 3, 0}},
                         {"attn.k", "attn.c_attn", false, {1, 3, 1}},
                         {"attn.v", "attn.c_attn", false, {1, 3, 2}},
                         {"attn.o", "attn.c_proj"},
                         {"mlp.up", "mlp.c_fc"},
                         {"mlp.down", "mlp.c_proj"}},
                        /*transposed=*/false);
  return joined({outer_names("transformer.wte", "transformer.ln_f"),
                 all,
                 {{"embed.positions", "transformer.wpe.weight"}},
                 completed("", "", {{"final_ln", "transformer.ln_f"}}),
                 completed("layers.#.", "transformer.h.#.",
                           {{"norm1", "ln_1"}, {"norm2", "ln_2"}, {"ln1", "ln_1"}, {"ln2", "ln_2"}})});
}

// ---- fields of config.json

}  // namespace

ConfigFields sizes(const char* hidden, const char* layers, const char* heads, const char* positions) {
  return {required(field("vocab_size", &C::vocab_size)),
          required(field(hidden, &C::hidden_size)),
          required(field(layers, &C::num_hidden_layers, max_decoder_layers)),
          required(field(heads, &C::num_attention_heads)),
          field(positions, &C::max_position_embeddings),
          field("tie_word_embeddings", &C::tie_word_embeddings)};
}

ConfigFields llama_fields(const ConfigFields& more, const RopeKeys& keys, const char* activation) {
  return joined(
      {sizes(),
       {required(field("intermediate_size", &C::intermediate_size)),
        nullable("num_key_value_heads", &C::num_key_value_heads), nullable("head_dim", &C::head_dim), derived_sizes(),
        field("rms_norm_eps", &C::rms_norm_eps), field(activation, &C::hidden_act), rope(keys)},
       more});
}

ConfigFields attention_bias() {
  return {field("attention_bias", &C::attention_bias), field("attention_bias", &C::output_bias)};
}

ConfigField custom(const char* key, std::function<void(const JsonPart& config, C& c)> read,
                   std::function<void(const C& c, json::object& all)> write) {
  return {.key = key, .read = std::move(read), .write = std::move(write)};
}

namespace {

// Fields that may all be missing, for a family whose folders rely on the defaults of their sizes.
ConfigFields none_required(ConfigFields fields) {
  for (ConfigField& field : fields) field.is_required = false;
  return fields;
}

ConfigFields no_biases() { return {only("attention_bias", false), only("mlp_bias", false)}; }

bool from_a_layer_on(const JsonPart& config, const C&, int64_t layer) {
  return layer >= config.integer("max_window_layers", 28);
}

ConfigField qwen_windows() {
  return windows({.size = 4096, .has_layer_types = true, .has_switch = true, .has = from_a_layer_on});
}

// Gemma's scale of attention, and its embedding times the root of the hidden size.
ConfigFields gemma_scales(bool has_scalar) {
  return {custom(
      "query_pre_attn_scalar",
      [=](const JsonPart& config, C& c) {
        c.embedding_multiplier = std::sqrt(static_cast<double>(c.hidden_size));
        if (has_scalar) c.attention_scale = 1 / std::sqrt(config.number("query_pre_attn_scalar", 256));
      },
      [=](const C& c, json::object& all) {  // transformers accepts integers only
        if (has_scalar) all["query_pre_attn_scalar"] = std::llround(std::pow(c.scale_of_attention(), -2));
      })};
}

// All layers have a window, except every `otherwise`-th, or every sliding_window_pattern-th if that key is given.
auto not_every(int64_t otherwise) {
  return [otherwise](const JsonPart& config, const C&, int64_t layer) {
    const int64_t interval = config.integer("sliding_window_pattern", otherwise);
    if (interval < 1) config.at("sliding_window_pattern").refuse_type("1 or more");
    return (layer + 1) % interval != 0;
  };
}

// Gemma's "gelu" is the tanh approximation, as in transformers.
ConfigField gemma_activation() {
  ConfigField activation = field("hidden_act", &C::hidden_act);
  activation.read = [read = activation.read](const JsonPart& config, C& c) {
    read(config, c);
    if (c.hidden_act.function == Activation::gelu_exact) c.hidden_act = {Activation::gelu};
  };
  return activation;
}

}  // namespace

ConfigField no_rope_layers() {
  return custom(
      "no_rope_layers",
      [](const JsonPart& config, C& c) {
        const int64_t interval = config.integer("no_rope_layer_interval", 4);
        if (interval < 1) config.at("no_rope_layer_interval").refuse_type("1 or more");
        const bool is_given = config.has("no_rope_layers");
        if (is_given && static_cast<int64_t>(config.at("no_rope_layers").length()) < c.num_hidden_layers)
          config.at("no_rope_layers").refuse(fmt::format("expected {} or more.", c.num_hidden_layers));
        for (int64_t i = 0; i < c.num_hidden_layers; ++i)
          c.no_rope_layers.push_back(is_given ? config.at("no_rope_layers").item(static_cast<size_t>(i)).integer(0, 1)
                                              : (i + 1) % interval != 0);
      },
      [](const C& c, json::object& all) {
        const std::vector<int64_t> every(static_cast<size_t>(c.num_hidden_layers), 1);
        all["no_rope_layers"] = json::value_from(c.no_rope_layers.empty() ? every : c.no_rope_layers);
      });
}

namespace {

// A flag that chooses between two placements of norms; the first if it is true.
ConfigField placement(const char* key, NormPlacement if_true, NormPlacement if_false) {
  return custom(
      key,
      [=](const JsonPart& config, C& c) {
        if (config.has(key)) c.norm_placement = config.at(key).flag() ? if_true : if_false;
      },
      [=](const C& c, json::object& all) { all[key] = c.norm_placement == if_true; });
}

// Falcon's norms and kv heads. A new decoder architecture expresses all of Falcon's blocks with parallel halves.
ConfigField falcon_architecture() {
  return custom(
      "new_decoder_architecture",
      [](const JsonPart& config, C& c) {
        using enum NormPlacement;
        const bool is_new = config.flag("new_decoder_architecture", false);
        const bool is_parallel = is_new || config.flag("parallel_attn", true);
        const int64_t norms = config.integer("num_ln_in_parallel_attn", is_new ? 2 : 1);
        c.norm_placement = !is_parallel ? pre : norms == 2 ? parallel : parallel_shared;
        if (!is_new && config.flag("multi_query", true)) c.num_key_value_heads = 1;
      },
      [](const C& c, json::object& all) {
        const bool is_parallel = c.norm_placement != NormPlacement::pre;
        all["new_decoder_architecture"] = is_parallel;
        all["parallel_attn"] = is_parallel;
        all["multi_query"] = c.num_key_value_heads == 1;
        if (is_parallel) all["num_ln_in_parallel_attn"] = c.norm_placement == NormPlacement::parallel ? 2 : 1;
      });
}

ConfigFields all_biases(const char* key) {
  return joined(
      {ConfigFields{field(key, &C::attention_bias)}, {field(key, &C::output_bias)}, {field(key, &C::mlp_bias)}});
}

C cohere_defaults(const char* model_type, double base) {
  return {.model_type = model_type,
          .num_key_value_heads = 0,
          .head_dim = 0,
          .norm = NormKind::layer,
          .norm_placement = NormPlacement::parallel_shared,
          .norm_bias = false,
          .rms_norm_eps = 1e-5,
          .rope = {.base = base, .interleaved = true},
          .tie_word_embeddings = true,
          .logits_scaling = 16};
}

ConfigFields cohere_fields(const ConfigFields& more) {
  const ConfigField scale = custom(
      "logit_scale", [](const JsonPart& config, C& c) { c.logits_scaling = 1 / config.number("logit_scale", 0.0625); },
      [](const C& c, json::object& all) { all["logit_scale"] = 1 / c.logits_scaling; });
  return llama_fields(
      joined({attention_bias(),
              {field("layer_norm_eps", &C::rms_norm_eps), only("use_qk_norm", false), only("mlp_bias", false), scale},
              more}));
}

// Cohere 2's layers without a window have no rotary positions.
ConfigField rope_with_window() {
  return {.read =
              [](const JsonPart&, C& c) {
                for (int64_t i = 0; i < c.num_hidden_layers; ++i) c.no_rope_layers.push_back(c.sliding_window(i) != 0);
              },
          .write = [](const C&, json::object&) {}};
}

}  // namespace

ConfigField router_loss() {
  return custom(
      "router_aux_loss_coef",
      [](const JsonPart& config, C& c) {
        if (config.flag("output_router_logits", false))
          c.router_aux_loss_coef = config.number("router_aux_loss_coef", 0.001);
      },
      [](const C& c, json::object& all) {
        if (c.router_aux_loss_coef != 0)
          all["output_router_logits"] = true, all["router_aux_loss_coef"] = c.router_aux_loss_coef;
      });
}

namespace {

std::vector<Family> make_families() {
  return {
      {"LlamaForCausalLM",
       {.model_type = "llama", .num_key_value_heads = 0, .head_dim = 0},
       llama_fields(joined({attention_bias(), {field("mlp_bias", &C::mlp_bias)}})),
       llama_names},
      {"MistralForCausalLM",
       {.model_type = "mistral", .num_key_value_heads = 8, .head_dim = 0},
       llama_fields(joined({no_biases(), {windows({.size = 4096})}})),
       llama_names},
      {"Qwen2ForCausalLM",
       {.model_type = "qwen2", .num_key_value_heads = 0, .head_dim = 0, .attention_bias = true},
       llama_fields({only("attention_bias", true), only("mlp_bias", false), qwen_windows()}),
       llama_names},
      {"Qwen3ForCausalLM",
       {.model_type = "qwen3", .num_key_value_heads = 0, .head_dim = 128, .qk_norm = true},
       llama_fields(joined({attention_bias(), {only("mlp_bias", false), qwen_windows()}})),
       llama_names},
      {"Gemma2ForCausalLM",
       {.model_type = "gemma2",
        .num_key_value_heads = 4,
        .head_dim = 256,
        .norm_placement = NormPlacement::both,
        .norm_offset = 1,
        .hidden_act = {Activation::gelu},
        .tie_word_embeddings = true,
        .attn_logit_softcapping = 50,
        .final_logit_softcapping = 30},
       llama_fields(joined({attention_bias(),
                            gemma_scales(true),
                            {cap("attn_logit_softcapping", &C::attn_logit_softcapping),
                             cap("final_logit_softcapping", &C::final_logit_softcapping), only("mlp_bias", false),
                             only("use_bidirectional_attention", false),
                             windows({.size = 4096,
                                      .has_layer_types = true,
                                      .has = [](const JsonPart&, const C&, int64_t i) { return i % 2 == 0; }})}}),
                    {}, "hidden_activation"),
       gemma2_names},
      {"MixtralForCausalLM",
       {.model_type = "mixtral",
        .num_key_value_heads = 8,
        .head_dim = 0,
        .rms_norm_eps = 1e-5,
        .rope = {.base = 1e6},
        .num_local_experts = 8,
        .num_experts_per_tok = 2},
       llama_fields(joined(
           {no_biases(),
            {field("num_local_experts", &C::num_local_experts), field("num_experts_per_tok", &C::num_experts_per_tok),
             only("router_jitter_noise", 0), router_loss(), windows({})}})),
       mixtral_names},
      {"GemmaForCausalLM",
       {.model_type = "gemma",
        .num_key_value_heads = 16,
        .head_dim = 256,
        .norm_offset = 1,
        .hidden_act = {Activation::gelu},
        .tie_word_embeddings = true},
       llama_fields(
           joined({attention_bias(),
                   gemma_scales(false),
                   {gemma_activation(), only("mlp_bias", false), only("use_bidirectional_attention", false)}})),
       llama_names},
      {"Gemma3ForCausalLM",
       {.model_type = "gemma3_text",
        .vocab_size = 262208,
        .hidden_size = 2304,
        .num_hidden_layers = 26,
        .num_attention_heads = 8,
        .num_key_value_heads = 4,
        .head_dim = 256,
        .intermediate_size = 9216,
        .max_position_embeddings = 131072,
        .norm_placement = NormPlacement::both,
        .norm_offset = 1,
        .qk_norm = true,
        .hidden_act = {Activation::gelu},
        .rope = {.base = 1e6},
        .local_rope = RotaryEmbedding{},
        .tie_word_embeddings = true},
       none_required(llama_fields(joined({attention_bias(),
                                          gemma_scales(true),
                                          {only("attn_logit_softcapping", nullptr),
                                           cap("final_logit_softcapping", &C::final_logit_softcapping),
                                           only("mlp_bias", false), only("use_bidirectional_attention", false),
                                           windows({.size = 4096, .has_layer_types = true, .has = not_every(6)})}}),
                                  {.local_theta = "rope_local_base_freq"}, "hidden_activation")),
       gemma2_names},
      {"Phi3ForCausalLM",
       {.model_type = "phi3", .num_key_value_heads = 0, .head_dim = 0, .rms_norm_eps = 1e-5},
       llama_fields(joined({no_biases(), {only("lm_head_bias", false), windows({})}}),
                    {.partial = "partial_rotary_factor", .original_positions = 4096}),
       phi3_names},
      {"SmolLM3ForCausalLM",
       {.model_type = "smollm3",
        .num_key_value_heads = 4,
        .head_dim = 0,
        .rope = {.base = 2e6},
        .tie_word_embeddings = true},
       llama_fields(joined({attention_bias(),
                            {field("mlp_bias", &C::mlp_bias), no_rope_layers(),
                             windows({.has_layer_types = true,
                                      .has_switch = true,
                                      .has = [](const JsonPart&, const C& c, int64_t i) { return !c.rope_of(i); }})}})),
       llama_names},
      {"GraniteForCausalLM",
       {.model_type = "granite", .num_key_value_heads = 0, .head_dim = 0, .attention_scale = 1},
       llama_fields(joined(
           {attention_bias(),
            {field("mlp_bias", &C::mlp_bias), field("embedding_multiplier", &C::embedding_multiplier),
             field("residual_multiplier", &C::residual_multiplier), field("logits_scaling", &C::logits_scaling),
             custom(
                 "attention_multiplier",
                 [](const JsonPart& config, C& c) { c.attention_scale = config.number("attention_multiplier", 1); },
                 [](const C& c, json::object& all) { all["attention_multiplier"] = c.scale_of_attention(); })}})),
       llama_names},
      {"MinistralForCausalLM",
       {.model_type = "ministral", .num_key_value_heads = 8, .head_dim = 0},
       llama_fields(joined({no_biases(), {windows({.size = 4096, .has_layer_types = true})}})),
       llama_names},
      {"Olmo2ForCausalLM",
       {.model_type = "olmo2",
        .num_key_value_heads = 0,
        .head_dim = 0,
        .norm_placement = NormPlacement::post,
        .rms_norm_eps = 1e-5,
        .qk_norm = true,
        .qk_norm_all_heads = true},
       llama_fields(joined({attention_bias(), {only("mlp_bias", false)}})),
       olmo2_names},
      {"Olmo3ForCausalLM",
       {.model_type = "olmo3",
        .num_key_value_heads = 0,
        .head_dim = 0,
        .norm_placement = NormPlacement::post,
        .rms_norm_eps = 1e-5,
        .qk_norm = true,
        .qk_norm_all_heads = true,
        .rope = {.base = 5e5},
        .local_rope = RotaryEmbedding{.base = 5e5}},
       llama_fields(
           joined({attention_bias(),
                   {only("mlp_bias", false), windows({.size = 4096, .has_layer_types = true, .has = not_every(4)})}}),
           {.local_theta = "rope_local_base_freq"}),
       olmo2_names},
      {"CohereForCausalLM", cohere_defaults("cohere", 5e5), cohere_fields({}), llama_names},
      {"Cohere2ForCausalLM", cohere_defaults("cohere2", 10000),
       cohere_fields({windows({.size = 4096, .has_layer_types = true, .has = not_every(4)}), rope_with_window()}),
       llama_names},
      {"GPTNeoXForCausalLM",
       {.model_type = "gpt_neox",
        .num_key_value_heads = 0,
        .head_dim = 0,
        .norm = NormKind::layer,
        .norm_placement = NormPlacement::parallel,
        .rms_norm_eps = 1e-5,
        .hidden_act = {Activation::gelu_exact},
        .gated_mlp = false,
        .attention_bias = true,
        .output_bias = true,
        .mlp_bias = true},
       joined({sizes(),
               attention_bias(),
               {required(field("intermediate_size", &C::intermediate_size)), derived_sizes(),
                field("layer_norm_eps", &C::rms_norm_eps), field("hidden_act", &C::hidden_act),
                placement("use_parallel_residual", NormPlacement::parallel, NormPlacement::pre),
                rope({.theta = "rotary_emb_base", .partial = "rotary_pct", .fraction = 0.25})}}),
       gpt_neox_names},
      {"FalconForCausalLM",
       {.model_type = "falcon",
        .num_key_value_heads = 0,
        .head_dim = 0,
        .intermediate_size = 0,
        .norm = NormKind::layer,
        .norm_placement = NormPlacement::parallel_shared,
        .rms_norm_eps = 1e-5,
        .hidden_act = {Activation::gelu_exact},
        .gated_mlp = false,
        .tie_word_embeddings = true},
       joined({sizes(),
               all_biases("bias"),
               {nullable("num_kv_heads", &C::num_key_value_heads), falcon_architecture(),
                nullable("ffn_hidden_size", &C::intermediate_size), derived_sizes(),
                field("layer_norm_epsilon", &C::rms_norm_eps), field("activation", &C::hidden_act),
                only("alibi", false), rope()}}),
       falcon_names},
      {"OPTForCausalLM",
       {.model_type = "opt",
        .num_key_value_heads = 0,
        .head_dim = 0,
        .norm = NormKind::layer,
        .rms_norm_eps = 1e-5,
        .hidden_act = {Activation::relu},
        .gated_mlp = false,
        .learned_positions = true,
        .position_offset = 2,
        .attention_bias = true,
        .output_bias = true,
        .mlp_bias = true,
        .tie_word_embeddings = true},
       joined({sizes(),
               all_biases("enable_bias"),
               {required(field("ffn_dim", &C::intermediate_size)), derived_sizes(),
                field("activation_function", &C::hidden_act), only("do_layer_norm_before", true),
                only("_remove_final_layer_norm", false), only("layer_norm_elementwise_affine", true),
                custom(
                    "word_embed_proj_dim",
                    [](const JsonPart& config, C& c) {
                      if (config.integer("word_embed_proj_dim", c.hidden_size) != c.hidden_size)
                        config.at("word_embed_proj_dim").refuse(fmt::format("expected {}.", c.hidden_size));
                    },
                    [](const C& c, json::object& all) { all["word_embed_proj_dim"] = c.hidden_size; })}}),
       opt_names},
      {"Starcoder2ForCausalLM",
       {.model_type = "starcoder2",
        .num_key_value_heads = 2,
        .head_dim = 0,
        .norm = NormKind::layer,
        .rms_norm_eps = 1e-5,
        .hidden_act = {Activation::gelu},
        .gated_mlp = false,
        .attention_bias = true,
        .output_bias = true,
        .mlp_bias = true,
        .tie_word_embeddings = true},
       joined({sizes(),
               all_biases("use_bias"),
               {required(field("intermediate_size", &C::intermediate_size)),
                nullable("num_key_value_heads", &C::num_key_value_heads), derived_sizes(),
                field("norm_epsilon", &C::rms_norm_eps), field("hidden_act", &C::hidden_act), rope(), windows({})}}),
       starcoder2_names},
      {"GPT2LMHeadModel",
       {.model_type = "gpt2",
        .num_key_value_heads = 0,
        .head_dim = 0,
        .intermediate_size = 0,
        .norm = NormKind::layer,
        .rms_norm_eps = 1e-5,
        .hidden_act = {Activation::gelu},
        .gated_mlp = false,
        .learned_positions = true,
        .attention_bias = true,
        .output_bias = true,
        .mlp_bias = true,
        .tie_word_embeddings = true},
       joined({sizes("n_embd", "n_layer", "n_head", "n_positions"),
               {nullable("n_inner", &C::intermediate_size), derived_sizes(),
                field("layer_norm_epsilon", &C::rms_norm_eps), field("activation_function", &C::hidden_act),
                custom(
                    "scale_attn_weights",
                    [](const JsonPart& config, C& c) {
                      if (!config.flag("scale_attn_weights", true)) c.attention_scale = 1;
                    },
                    [](const C& c, json::object& all) { all["scale_attn_weights"] = c.attention_scale != 1.0; }),
                field("scale_attn_by_inverse_layer_idx", &C::scale_attn_by_inverse_layer_idx),
                only("add_cross_attention", false)}}),
       gpt2_names},
  };
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> all = joined({make_families(), expert_families()});
  return all;
}

const Family* find_family(std::string_view model_type) {
  const auto& all = families();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Family& f) { return f.defaults.model_type == model_type; });
  return found == all.end() ? nullptr : &*found;
}

const Family& family_of(const char* verb, std::string_view model_type) {
  const Family* family = find_family(model_type);
  if (!family)
    fail(ErrorKind::invalid_argument, verb, "model_type: \"{}\" given, expected one of {}.", model_type,
         known_families());
  return *family;
}

std::string known_families() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.defaults.model_type);
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace tessera::nn::detail
