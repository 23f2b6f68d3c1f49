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

// Names outside of the layers. The tied head is the embedding.
Names outer_names(const std::string& embed, const std::string& norm, const std::string& head = "lm_head") {
  return joined<HuggingFaceName>(
      {{{"embed.tokens", embed + ".weight"}, {"head.kernel", head + ".weight", true, {}, embed + ".weight"}},
       completed("", "", {{"final_norm", norm}})});
}

}  // namespace

// ---- names and fields that families share

Names layer_names(const Names& rows, const std::string& theirs, bool transposed) {
  return completed("layers.#.", theirs, rows, transposed);
}

Names projections(const std::string& ours, const std::string& theirs, std::initializer_list<const char*> layers) {
  Names rows;
  for (const std::string layer : layers) rows.push_back({ours + "." + layer, theirs + "." + layer + "_proj"});
  return rows;
}

Names llama_names(const C&) {
  return joined({outer_names("model.embed_tokens", "model.norm"),
                 layer_names(joined({projections("attn", "self_attn", {"q", "k", "v", "o"}),
                                     projections("mlp", "mlp", {"gate", "up", "down"}),
                                     {{"attn.q_norm", "self_attn.q_norm"},
                                      {"attn.k_norm", "self_attn.k_norm"},
                                      {"norm1", "input_layernorm"},
                                      {"norm2", "post_attention_layernorm"}}}))});
}

ConfigFields sizes(const char* hidden, const char* layers, const char* heads, const char* positions) {
  return {required(field("vocab_size", &C::vocab_size)),
          required(field(hidden, &C::hidden_size)),
          required(field(layers, &C::num_hidden_layers, max_decoder_layers)),
          required(field(heads, &C::num_attention_heads)),
          field(positions, &C::max_position_embeddings),
          field("tie_word_embeddings", &C::tie_word_embeddings)};
}

ConfigFields llama_fields(const ConfigFields& more, const RopeKeys& keys, const char* activation) {
  return {sizes(),
          required(field("intermediate_size", &C::intermediate_size)),
          nullable("num_key_value_heads", &C::num_key_value_heads),
          nullable("head_dim", &C::head_dim),
          inner_fields(keys, activation),
          more};
}

ConfigFields inner_fields(const RopeKeys& keys, const char* activation) {
  return {derived_sizes(), field("rms_norm_eps", &C::rms_norm_eps), field(activation, &C::hidden_act), rope(keys)};
}

ConfigFields attention_bias() {
  return {field("attention_bias", &C::attention_bias), field("attention_bias", &C::output_bias)};
}

ConfigField no_rope_layers(bool may_be_empty) {
  return {"no_rope_layers",
          [=](const JsonPart& config, C& c) {
            const int64_t interval = config.integer("no_rope_layer_interval", 4);
            if (interval < 1) config.at("no_rope_layer_interval").refuse_type("1 or more");
            const JsonPart list = config.at_or_null("no_rope_layers");
            const auto length = static_cast<int64_t>(list.is_null() ? 0 : list.length());
            const bool is_missing = list.is_null() || (may_be_empty && length == 0);
            if (!is_missing && length < c.num_hidden_layers)
              list.refuse(fmt::format("{} of them, expected {} or more.", length, c.num_hidden_layers));
            for (int64_t i = 0; i < c.num_hidden_layers; ++i)
              c.no_rope_layers.push_back(is_missing ? (i + 1) % interval != 0
                                                    : list.item(static_cast<size_t>(i)).integer(0, 1));
          },
          [](const C& c, json::object& all) {
            const std::vector<int64_t> every(static_cast<size_t>(c.num_hidden_layers), 1);
            all["no_rope_layers"] = json::value_from(c.no_rope_layers.empty() ? every : c.no_rope_layers);
          }};
}

ConfigField router_loss() {
  return {"router_aux_loss_coef",
          [](const JsonPart& config, C& c) {
            if (config.flag("output_router_logits", false))
              c.router_aux_loss_coef = config.number("router_aux_loss_coef", 0.001);
          },
          [](const C& c, json::object& all) {
            if (c.router_aux_loss_coef != 0)
              all["output_router_logits"] = true, all["router_aux_loss_coef"] = c.router_aux_loss_coef;
          }};
}

namespace {

// ---- names of tensors. If a path is in two rows, the first has precedence.

Names gemma2_names(const C& c) {
  return joined({layer_names({{"attn_norm", "post_attention_layernorm"},
                              {"norm2", "pre_feedforward_layernorm"},
                              {"mlp_norm", "post_feedforward_layernorm"}}),
                 llama_names(c)});
}

// q, k and v in one tensor, in groups of as many kv heads: in each its queries, then its keys, then its values.
Names fused_attention(const char* theirs, const C& c, int64_t groups) {
  const int64_t q = c.num_attention_heads / groups, kv = c.num_key_value_heads / groups, all = q + 2 * kv;
  return {{"attn.q", theirs, false, {groups, all, 0, q}},
          {"attn.k", theirs, false, {groups, all, q, kv}},
          {"attn.v", theirs, false, {groups, all, q + kv, kv}}};
}

Names phi3_names(const C& c) {
  return joined({layer_names(fused_attention("self_attn.qkv_proj", c, 1)),
                 layer_names({{"mlp.gate", "mlp.gate_up_proj", false, {1, 2, 0}},
                              {"mlp.up", "mlp.gate_up_proj", false, {1, 2, 1}}}),
                 llama_names(c)});
}

Names olmo2_names(const C& c) {
  return joined({layer_names({{"attn_norm", "post_attention_layernorm"}, {"mlp_norm", "post_feedforward_layernorm"}}),
                 llama_names(c)});
}

Names gpt_neox_names(const C& c) {
  return joined({outer_names("gpt_neox.embed_in", "gpt_neox.final_layer_norm", "embed_out"),
                 layer_names(joined({fused_attention("attention.query_key_value", c, c.num_key_value_heads),
                                     {{"attn.o", "attention.dense"},
                                      {"mlp.up", "mlp.dense_h_to_4h"},
                                      {"mlp.down", "mlp.dense_4h_to_h"},
                                      {"norm1", "input_layernorm"},
                                      {"norm2", "post_attention_layernorm"}}}),
                             "gpt_neox.layers.#.")});
}

Names falcon_names(const C& c) {
  const bool has_two = c.norm_placement == NormPlacement::parallel;
  return joined({outer_names("transformer.word_embeddings", "transformer.ln_f"),
                 layer_names(joined({fused_attention("self_attention.query_key_value", c, c.num_key_value_heads),
                                     {{"attn.o", "self_attention.dense"},
                                      {"mlp.up", "mlp.dense_h_to_4h"},
                                      {"mlp.down", "mlp.dense_4h_to_h"},
                                      {"norm1", has_two ? "ln_attn" : "input_layernorm"},
                                      {"norm2", has_two ? "ln_mlp" : "post_attention_layernorm"}}}),
                             "transformer.h.#.")});
}

Names opt_names(const C&) {
  return joined({outer_names("model.decoder.embed_tokens", "model.decoder.final_layer_norm"),
                 {{"embed.positions", "model.decoder.embed_positions.weight"}},
                 layer_names(joined({projections("attn", "self_attn", {"q", "k", "v"}),
                                     {{"attn.o", "self_attn.out_proj"},
                                      {"norm1", "self_attn_layer_norm"},
                                      {"norm2", "final_layer_norm"},
                                      {"mlp.up", "fc1"},
                                      {"mlp.down", "fc2"}}}),
                             "model.decoder.layers.#.")});
}

Names starcoder2_names(const C& c) {
  return joined({layer_names({{"mlp.up", "mlp.c_fc"}, {"mlp.down", "mlp.c_proj"}}), llama_names(c)});
}

Names mixtral_names(const C& c) {
  return joined({layer_names({{"mlp.router", "block_sparse_moe.gate.weight", true},
                              {"mlp.gate", "block_sparse_moe.experts.*.w1.weight", true},
                              {"mlp.down", "block_sparse_moe.experts.*.w2.weight", true},
                              {"mlp.up", "block_sparse_moe.experts.*.w3.weight", true}}),
                 llama_names(c)});
}

// ln1, ln2 and final_ln are other names of norm1, norm2 and final_norm, for custom models.
Names gpt2_names(const C&) {
  return joined({outer_names("transformer.wte", "transformer.ln_f"),
                 {{"embed.positions", "transformer.wpe.weight"}},
                 completed("", "", {{"final_ln", "transformer.ln_f"}}),
                 layer_names({{"attn.q", "attn.c_attn", false, {1, 3, 0}},
                              {"attn.k", "attn.c_attn", false, {1, 3, 1}},
                              {"attn.v", "attn.c_attn", false, {1, 3, 2}},
                              {"attn.o", "attn.c_proj"},
                              {"mlp.up", "mlp.c_fc"},
                              {"mlp.down", "mlp.c_proj"},
                              {"norm1", "ln_1"},
                              {"norm2", "ln_2"},
                              {"ln1", "ln_1"},
                              {"ln2", "ln_2"}},
                             "transformer.h.#.", /*transposed=*/false)});
}

// ---- fields of config.json

// A member with one value in the family, which is not the default.
template <class T>
ConfigField fixed(T C::*member, T value) {
  return {.read = [=](const JsonPart&, C& c) { c.*member = value; }};
}

// Fields that may all be missing, for a family whose folders rely on the defaults of their sizes.
ConfigFields none_required(ConfigFields fields) {
  for (ConfigField& field : fields) field.is_required = false;
  return fields;
}

bool from_a_layer_on(const JsonPart& config, const C&, int64_t layer) {
  return layer >= config.integer("max_window_layers", 28);
}

ConfigField qwen_windows() {
  return windows({.size = 4096, .has_layer_types = true, .has_switch = true, .has = from_a_layer_on});
}

// Gemma 2's and 3's scale of attention. transformers accepts integers only.
ConfigField attention_scalar() {
  return {"query_pre_attn_scalar",
          [](const JsonPart& config, C& c) {
            c.attention_scale = 1 / std::sqrt(static_cast<double>(size_or(config, "query_pre_attn_scalar", 256)));
          },
          [](const C& c, json::object& all) {
            all["query_pre_attn_scalar"] = std::llround(std::pow(c.scale_of_attention(), -2));
          }};
}

// The fields of all Gemmas. The embedding is multiplied by the root of the hidden size.
ConfigFields gemma_fields() {
  return {attention_bias(), only("mlp_bias", false), only("use_bidirectional_attention", false),
          ConfigField{.read = [](const JsonPart&, C& c) {
            c.embedding_multiplier = std::sqrt(static_cast<double>(c.hidden_size));
          }}};
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

// A flag that chooses between two placements of norms; the first if it is true or missing.
ConfigField placement(const char* key, NormPlacement if_true, NormPlacement if_false) {
  return {key, [=](const JsonPart& config, C& c) { c.norm_placement = config.flag(key, true) ? if_true : if_false; },
          [=](const C& c, json::object& all) { all[key] = c.norm_placement == if_true; }};
}

// Falcon's norms and kv heads. A new decoder architecture expresses all of Falcon's blocks with parallel halves.
ConfigField falcon_architecture() {
  return {"new_decoder_architecture",
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
          }};
}

ConfigFields all_biases(const char* key) {
  return {field(key, &C::attention_bias), field(key, &C::output_bias), field(key, &C::mlp_bias)};
}

C gemma_defaults(const char* model_type, NormPlacement placement) {
  return {.model_type = model_type,
          .norm_placement = placement,
          .norm_offset = 1,
          .hidden_act = {Activation::gelu},
          .tie_word_embeddings = true};
}

C gemma3_defaults() {
  C c = gemma_defaults("gemma3_text", NormPlacement::both);
  c.vocab_size = 262208, c.hidden_size = 2304, c.num_hidden_layers = 26, c.num_attention_heads = 8;
  c.intermediate_size = 9216, c.max_position_embeddings = 131072;
  c.qk_norm = true, c.rope.base = 1e6, c.local_rope = RotaryEmbedding{};
  return c;
}

// The defaults of decoders with LayerNorms and MLPs that are not gated.
C gpt_defaults(const char* model_type, Activation::Function activation, bool has_biases = true, bool is_tied = true) {
  return {.model_type = model_type,
          .intermediate_size = 0,
          .norm = NormKind::layer,
          .rms_norm_eps = 1e-5,
          .hidden_act = {activation},
          .gated_mlp = false,
          .attention_bias = has_biases,
          .output_bias = has_biases,
          .mlp_bias = has_biases,
          .tie_word_embeddings = is_tied};
}

C olmo_defaults(const char* model_type, double base = 10000, std::optional<RotaryEmbedding> local_rope = {}) {
  return {.model_type = model_type,
          .norm_placement = NormPlacement::post,
          .rms_norm_eps = 1e-5,
          .qk_norm = true,
          .qk_norm_all_heads = true,
          .rope = {.base = base},
          .local_rope = std::move(local_rope)};
}

C cohere_defaults(const char* model_type, double base) {
  return {.model_type = model_type,
          .norm = NormKind::layer,
          .norm_placement = NormPlacement::parallel_shared,
          .norm_bias = false,
          .rms_norm_eps = 1e-5,
          .rope = {.base = base, .interleaved = true},
          .tie_word_embeddings = true,
          .logits_scaling = 16};
}

ConfigFields cohere_fields(const ConfigFields& more) {
  const ConfigField scale{
      "logit_scale", [](const JsonPart& config, C& c) { c.logits_scaling = 1 / config.number("logit_scale", 0.0625); },
      [](const C& c, json::object& all) { all["logit_scale"] = 1 / c.logits_scaling; }};
  return llama_fields({attention_bias(), field("layer_norm_eps", &C::rms_norm_eps), only("use_qk_norm", false),
                       only("mlp_bias", false), scale, more});
}

// Refuses one rope_theta for all layers of OLMo 3, unless it is the default: some versions of transformers ignore it in
// layers with a window.
ConfigField olmo3_local_base() {
  return {.read = [](const JsonPart& config, C& c) {
    if (config.has("rope_local_base_freq"))
      config.at("rope_local_base_freq").refuse("is not supported in this family, expected none.");
    const bool has_windows = std::any_of(c.windows.begin(), c.windows.end(), [](int64_t size) { return size != 0; });
    if (config.has("rope_parameters") || c.local_rope->base == c.rope.base || !has_windows) return;
    config.refuse(
        "rope_theta for all layers, which some versions of transformers ignore in layers with a window. Give "
        "rope_parameters with full_attention and sliding_attention.");
  }};
}

// Cohere 2's layers without a window have no rotary positions.
ConfigField rope_with_window() {
  return {.read = [](const JsonPart& config, C& c) {
    if (config.names("sliding_window") && !config.has("sliding_window") && !config.has("layer_types"))
      config.refuse("sliding_window is null, expected a number, or layer_types with full_attention only.");
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) c.no_rope_layers.push_back(c.sliding_window(i) != 0);
  }};
}

ConfigFields no_biases() { return {only("attention_bias", false), only("mlp_bias", false)}; }

std::vector<Family> make_families() {
  return {
      {"LlamaForCausalLM",
       {.model_type = "llama"},
       llama_fields({attention_bias(), field("mlp_bias", &C::mlp_bias)}),
       llama_names},
      {"MistralForCausalLM",
       {.model_type = "mistral"},
       llama_fields({no_biases(), windows({.size = 4096})}),
       llama_names,
       /*num_key_value_heads=*/8},
      {"Qwen2ForCausalLM",
       {.model_type = "qwen2", .attention_bias = true},
       llama_fields({only("attention_bias", true), only("mlp_bias", false), qwen_windows()}),
       llama_names},
      {"Qwen3ForCausalLM",
       {.model_type = "qwen3", .qk_norm = true},
       llama_fields({attention_bias(), only("mlp_bias", false), qwen_windows()}),
       llama_names,
       0,
       /*head_dim=*/128},
      {"Gemma2ForCausalLM", gemma_defaults("gemma2", NormPlacement::both),
       llama_fields({gemma_fields(), fixed(&C::attn_logit_softcapping, 50.0), fixed(&C::final_logit_softcapping, 30.0),
                     cap("attn_logit_softcapping", &C::attn_logit_softcapping),
                     cap("final_logit_softcapping", &C::final_logit_softcapping), attention_scalar(),
                     windows({.size = 4096, .has_layer_types = true, .has = every_second})},
                    {}, "hidden_activation"),
       gemma2_names, /*num_key_value_heads=*/4, /*head_dim=*/256},
      {"MixtralForCausalLM",
       {.model_type = "mixtral",
        .rms_norm_eps = 1e-5,
        .rope = {.base = 1e6},
        .num_local_experts = 8,
        .num_experts_per_tok = 2},
       llama_fields({no_biases(), field("num_local_experts", &C::num_local_experts),
                     field("num_experts_per_tok", &C::num_experts_per_tok), only("router_jitter_noise", 0),
                     router_loss(), windows({})}),
       mixtral_names,
       /*num_key_value_heads=*/8},
      {"GemmaForCausalLM", gemma_defaults("gemma", NormPlacement::pre),
       llama_fields({gemma_fields(), gemma_activation()}), llama_names, /*num_key_value_heads=*/16, /*head_dim=*/256},
      {"Gemma3ForCausalLM", gemma3_defaults(),
       none_required(llama_fields({gemma_fields(), attention_scalar(), only("attn_logit_softcapping", nullptr),
                                   cap("final_logit_softcapping", &C::final_logit_softcapping),
                                   windows({.size = 4096, .has_layer_types = true, .has = not_every(6)})},
                                  {.local_theta = "rope_local_base_freq"}, "hidden_activation")),
       gemma2_names, /*num_key_value_heads=*/4, /*head_dim=*/256},
      {"Phi3ForCausalLM",
       {.model_type = "phi3", .rms_norm_eps = 1e-5},
       llama_fields({no_biases(), only("lm_head_bias", false), windows({})},
                    {.partial = "partial_rotary_factor", .original_positions = 4096}),
       phi3_names},
      {"SmolLM3ForCausalLM",
       {.model_type = "smollm3", .rope = {.base = 2e6}, .tie_word_embeddings = true},
       llama_fields({attention_bias(), field("mlp_bias", &C::mlp_bias), no_rope_layers(),
                     windows({.has_layer_types = true,
                              .has_switch = true,
                              .has = [](const JsonPart&, const C& c, int64_t i) { return !c.rope_of(i); }})}),
       llama_names,
       /*num_key_value_heads=*/4},
      {"GraniteForCausalLM",
       {.model_type = "granite", .attention_scale = 1},
       llama_fields(
           {attention_bias(), field("mlp_bias", &C::mlp_bias), field("embedding_multiplier", &C::embedding_multiplier),
            field("residual_multiplier", &C::residual_multiplier), field("logits_scaling", &C::logits_scaling),
            ConfigField{
                "attention_multiplier",
                [](const JsonPart& config, C& c) { c.attention_scale = config.number("attention_multiplier", 1); },
                [](const C& c, json::object& all) { all["attention_multiplier"] = c.scale_of_attention(); }}}),
       llama_names},
      {"MinistralForCausalLM",
       {.model_type = "ministral"},
       llama_fields({no_biases(), windows({.size = 4096, .has_layer_types = true})}),
       llama_names,
       /*num_key_value_heads=*/8},
      {"Olmo2ForCausalLM", olmo_defaults("olmo2"), llama_fields({attention_bias(), only("mlp_bias", false)}),
       olmo2_names},
      {"Olmo3ForCausalLM", olmo_defaults("olmo3", 5e5, RotaryEmbedding{.base = 5e5}),
       llama_fields({attention_bias(), only("mlp_bias", false),
                     windows({.size = 4096, .has_layer_types = true, .has = not_every(4)}), olmo3_local_base()},
                    {.local_theta = "rope_local_base_freq"}),
       olmo2_names},
      {"CohereForCausalLM", cohere_defaults("cohere", 5e5), cohere_fields({}), llama_names},
      {"Cohere2ForCausalLM", cohere_defaults("cohere2", 10000),
       cohere_fields({windows({.size = 4096, .has_layer_types = true, .has = not_every(4)}), rope_with_window()}),
       llama_names},
      {"GPTNeoXForCausalLM",
       gpt_defaults("gpt_neox", Activation::gelu_exact, true, false),
       {sizes(), attention_bias(), required(field("intermediate_size", &C::intermediate_size)), derived_sizes(),
        field("layer_norm_eps", &C::rms_norm_eps), field("hidden_act", &C::hidden_act),
        placement("use_parallel_residual", NormPlacement::parallel, NormPlacement::pre),
        rope({.theta = "rotary_emb_base", .partial = "rotary_pct", .fraction = 0.25})},
       gpt_neox_names},
      {"FalconForCausalLM",
       gpt_defaults("falcon", Activation::gelu_exact, false),
       {sizes(), all_biases("bias"), nullable("num_kv_heads", &C::num_key_value_heads), falcon_architecture(),
        nullable("ffn_hidden_size", &C::intermediate_size), derived_sizes(),
        field("layer_norm_epsilon", &C::rms_norm_eps), field("activation", &C::hidden_act), only("alibi", false),
        rope()},
       falcon_names},
      {"OPTForCausalLM",
       gpt_defaults("opt", Activation::relu),
       {sizes(), fixed(&C::learned_positions, true), fixed(&C::position_offset, int64_t{2}), all_biases("enable_bias"),
        required(field("ffn_dim", &C::intermediate_size)), derived_sizes(),
        field("activation_function", &C::hidden_act), only("do_layer_norm_before", true),
        only("_remove_final_layer_norm", false), only("layer_norm_elementwise_affine", true),
        ConfigField{"word_embed_proj_dim",
                    [](const JsonPart& config, C& c) {
                      if (config.integer("word_embed_proj_dim", c.hidden_size) != c.hidden_size)
                        config.at("word_embed_proj_dim").refuse_type(fmt::format("{}", c.hidden_size));
                    },
                    [](const C& c, json::object& all) { all["word_embed_proj_dim"] = c.hidden_size; }}},
       opt_names},
      {"Starcoder2ForCausalLM",
       gpt_defaults("starcoder2", Activation::gelu),
       {sizes(), all_biases("use_bias"), required(field("intermediate_size", &C::intermediate_size)),
        nullable("num_key_value_heads", &C::num_key_value_heads), derived_sizes(),
        field("norm_epsilon", &C::rms_norm_eps), field("hidden_act", &C::hidden_act), rope(), windows({})},
       starcoder2_names,
       /*num_key_value_heads=*/2},
      {"GPT2LMHeadModel",
       gpt_defaults("gpt2", Activation::gelu),
       {sizes("n_embd", "n_layer", "n_head", "n_positions"), fixed(&C::learned_positions, true),
        nullable("n_inner", &C::intermediate_size), derived_sizes(), field("layer_norm_epsilon", &C::rms_norm_eps),
        field("activation_function", &C::hidden_act),
        ConfigField{"scale_attn_weights",
                    [](const JsonPart& config, C& c) {
                      if (!config.flag("scale_attn_weights", true)) c.attention_scale = 1;
                    },
                    [](const C& c, json::object& all) { all["scale_attn_weights"] = c.attention_scale != 1.0; }},
        field("scale_attn_by_inverse_layer_idx", &C::scale_attn_by_inverse_layer_idx),
        only("add_cross_attention", false)},
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
