// Rows of the table of families: Qwen 3 with experts, DeepSeek V3, gpt-oss and Llama 4.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "nn/models/families.h"

namespace tessera::nn::detail {

namespace {

namespace json = boost::json;
using C = DecoderConfig;
using Names = std::vector<HuggingFaceName>;

// ---- names of tensors. If a path is in two rows, the first has precedence.

Names expert_names() {
  return layer_names({{"mlp.router", "mlp.gate.weight", true},
                      {"mlp.gate", "mlp.experts.*.gate_proj.weight", true},
                      {"mlp.up", "mlp.experts.*.up_proj.weight", true},
                      {"mlp.down", "mlp.experts.*.down_proj.weight", true}});
}

Names qwen3_moe_names(const C& c) { return joined({expert_names(), llama_names(c)}); }

Names shared_expert_names(const std::string& theirs) {
  return layer_names(projections("mlp.shared", theirs, {"gate", "up", "down"}));
}

Names deepseek_v3_names(const C& c) {
  return joined({{{"layers.#.mlp.bias", "model.layers.#.mlp.gate.e_score_correction_bias"}},
                 layer_names({{"attn.q_down", "self_attn.q_a_proj"},
                              {"attn.q_norm", "self_attn.q_a_layernorm"},
                              {"attn.q", c.q_lora_rank ? "self_attn.q_b_proj" : "self_attn.q_proj"},
                              {"attn.kv_down", "self_attn.kv_a_proj_with_mqa"},
                              {"attn.kv_norm", "self_attn.kv_a_layernorm"},
                              {"attn.kv_up", "self_attn.kv_b_proj"}}),
                 expert_names(),
                 shared_expert_names("mlp.shared_experts"),
                 llama_names(c)});
}

// Returns the names of experts with gate and up in one tensor, in groups of a block of gate and a block of up.
Names fused_expert_names(const std::string& theirs, int64_t groups) {
  const std::string ours = "layers.#.mlp.", mlp = "model.layers.#." + theirs, experts = mlp + ".experts.";
  return {{ours + "gate", experts + "gate_up_proj", false, {groups, 2, 0}},
          {ours + "up", experts + "gate_up_proj", false, {groups, 2, 1}},
          {ours + "down", experts + "down_proj"},
          {ours + "gate_bias", experts + "gate_up_proj_bias", false, {groups, 2, 0}},
          {ours + "up_bias", experts + "gate_up_proj_bias", false, {groups, 2, 1}},
          {ours + "down_bias", experts + "down_proj_bias"},
          {ours + "router", mlp + ".router.weight", true},
          {ours + "router_bias", mlp + ".router.bias"}};
}

// gate has the even columns, up the odd ones.
Names gpt_oss_names(const C& c) {
  return joined({fused_expert_names("mlp", c.intermediate_size),
                 {{"layers.#.attn.sinks", "model.layers.#.self_attn.sinks"}},
                 llama_names(c)});
}

Names llama4_names(const C& c) {
  return joined({fused_expert_names("feed_forward", 1), shared_expert_names("feed_forward.shared_expert"),
                 layer_names(projections("mlp", "feed_forward", {"gate", "up", "down"})), llama_names(c)});
}

// ---- fields of config.json

// Returns a field that config_of_family does not read from the given sizes.
ConfigField option(ConfigField given) {
  given.is_size = false;
  return given;
}

// The number of experts, how many a token uses, and their hidden units.
ConfigFields expert_sizes(const char* number, const char* hidden) {
  return {field(number, &C::num_local_experts, max_decoder_layers),
          field("num_experts_per_tok", &C::num_experts_per_tok), field(hidden, &C::moe_intermediate_size)};
}

json::array layers_where(const C& c, bool has_experts) {
  json::array all;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i)
    if (c.has_experts(i) == has_experts) all.push_back(i);
  return all;
}

// Layers with experts: those whose number, from 1 on, is a multiple of `step`, except the listed ones (Qwen); or the
// listed ones, if there is a list (Llama 4).
ConfigField listed_layers(const char* step, const char* list, bool has_experts) {
  return {list,
          [=](const JsonPart& config, C& c) {
            const int64_t every = config.integer(step, 1);
            if (every < 1) config.at(step).refuse_type("1 or more");
            const bool is_list = has_experts && config.has(list);
            for (int64_t i = 0; i < c.num_hidden_layers; ++i) c.moe_layers.push_back(!is_list && (i + 1) % every == 0);
            if (!config.has(list)) return;
            for (const JsonPart& layer : config.at(list).items())
              c.moe_layers[static_cast<size_t>(layer.integer(0, c.num_hidden_layers - 1))] = has_experts;
          },
          [=](const C& c, json::object& all) { all[step] = 1, all[list] = layers_where(c, has_experts); }};
}

// DeepSeek has experts from a layer on.
ConfigField deepseek_layers() {
  return {"first_k_dense_replace",
          [](const JsonPart& config, C& c) {
            const int64_t first = config.integer("first_k_dense_replace", 3);
            for (int64_t i = 0; i < c.num_hidden_layers; ++i) c.moe_layers.push_back(i >= first);
          },
          [](const C& c, json::object& all) { all["first_k_dense_replace"] = layers_where(c, false).size(); }};
}

// Returns by how much mscale_all_dim = 1 lengthens queries and keys.
double stretch_of(const C& c) { return tessera::detail::yarn_attention_factor(c.rope.scaling.factor) - 1; }

// The scale of attention with yarn's mscale_all_dim, as in transformers.
ConfigField latent_scale() {
  return {"rope_interleave",
          [](const JsonPart& config, C& c) {
            c.rope.interleaved = config.flag("rope_interleave", true);
            const JsonPart rope = config.at_or_null(config.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
            const double all = c.rope.scaling.kind == RotaryScaling::none ? 0 : rope.number("mscale_all_dim", 0);
            if (all == 0) return;
            const double mscale = tessera::detail::yarn_attention_factor(c.rope.scaling.factor, all);
            c.attention_scale = c.scale_of_attention() * mscale * mscale;
          },
          [](const C& c, json::object& all) {
            all["rope_interleave"] = c.rope.interleaved;
            C plain = c;
            plain.attention_scale = {};
            const double mscale = std::sqrt(c.scale_of_attention() / plain.scale_of_attention());
            if (c.attention_scale && stretch_of(c) > 0)
              all["rope_parameters"].as_object()["mscale_all_dim"] = (mscale - 1) / stretch_of(c);
          }};
}

ConfigFields latent_sizes() {
  return {option(nullable("q_lora_rank", &C::q_lora_rank)), option(field("kv_lora_rank", &C::kv_lora_rank)),
          option(field("qk_nope_head_dim", &C::qk_nope_head_dim)), option(field("v_head_dim", &C::v_head_dim)),
          latent_scale()};
}

// Llama 4's temperature of layers without rotary positions. Published folders have 4 instead of true.
ConfigField temperature() {
  return {"attn_temperature_tuning",
          [](const JsonPart& config, C& c) {
            const JsonPart tuning = config.at_or_null("attn_temperature_tuning");
            if (config.names("attn_temperature_tuning") && !tuning.value.is_bool() && !tuning.value.is_int64())
              tuning.refuse_type("true, false or an integer");
            if (tuning.value == boost::json::value(false) || tuning.value == boost::json::value(0)) return;
            c.query_temperature = {config.number("attn_scale", 0.1),
                                   static_cast<double>(size_or(config, "floor_scale", 8192))};
          },
          [](const C& c, json::object& all) {
            all["attn_temperature_tuning"] = c.query_temperature.has_value();
            if (!c.query_temperature) return;
            all["attn_scale"] = c.query_temperature->scale,
            all["floor_scale"] = std::llround(c.query_temperature->floor_scale);
          }};
}

// Throws unless the layers that attend to chunks are those with rotary positions. Without a chunk size, none does.
ConfigField chunked_layers() {
  return {
      "layer_types", [](const JsonPart& config, C& c) {
        if (!config.has("layer_types")) return;
        const JsonPart types = config.at("layer_types");
        for (size_t i = 0; i < types.length() && i < c.no_rope_layers.size(); ++i) {
          const bool has_chunks = c.attention_chunk_size && c.no_rope_layers[i];
          if ((types.item(i).text() == "chunked_attention") != has_chunks)
            types.item(i).refuse_type(has_chunks ? "chunked_attention, with rotary positions" : "full_attention");
        }
      }};
}

ConfigField clamped_gate() {
  return {"swiglu_limit",
          [](const JsonPart& config, C& c) {
            c.clamped_gate = {config.number("swiglu_limit", 7), config.number("swiglu_alpha", 1.702)};
          },
          [](const C& c, json::object& all) {
            const ClampedGate gate = c.clamped_gate.value_or(ClampedGate{});
            all["swiglu_limit"] = gate.limit, all["swiglu_alpha"] = gate.alpha;
          }};
}

Family qwen3_moe() {
  return {"Qwen3MoeForCausalLM",
          {.model_type = "qwen3_moe",
           .qk_norm = true,
           .num_local_experts = 128,
           .num_experts_per_tok = 8,
           .moe_intermediate_size = 768,
           .norm_topk_prob = false},
          llama_fields({attention_bias(), expert_sizes("num_experts", "moe_intermediate_size"),
                        field("num_local_experts", &C::num_local_experts, max_decoder_layers),
                        field("norm_topk_prob", &C::norm_topk_prob), only("mlp_bias", false),
                        listed_layers("decoder_sparse_step", "mlp_only_layers", false), router_loss(),
                        windows({.size = 4096, .has_switch = true})}),
          qwen3_moe_names,
          /*num_key_value_heads=*/4};
}

Family deepseek_v3() {
  return {
      "DeepseekV3ForCausalLM",
      {.model_type = "deepseek_v3",
       .kv_lora_rank = 512,
       .q_lora_rank = 1536,
       .num_local_experts = 256,
       .num_experts_per_tok = 8,
       .moe_intermediate_size = 2048,
       .n_shared_experts = 1,
       .router_score = RouterScore::sigmoid,
       .routed_scaling_factor = 2.5,
       .n_group = 8,
       .topk_group = 4,
       .has_balance_bias = true},
      {sizes(), required(field("intermediate_size", &C::intermediate_size)),
       option(nullable("num_key_value_heads", &C::num_key_value_heads)), field("qk_rope_head_dim", &C::head_dim),
       inner_fields(), option(field("n_shared_experts", &C::n_shared_experts)),
       field("norm_topk_prob", &C::norm_topk_prob), field("routed_scaling_factor", &C::routed_scaling_factor),
       option(field("n_group", &C::n_group)), option(field("topk_group", &C::topk_group)),
       only("topk_method", "noaux_tc"), only("scoring_func", "sigmoid"), only("moe_layer_freq", 1), deepseek_layers(),
       attention_bias(), expert_sizes("n_routed_experts", "moe_intermediate_size"), latent_sizes()},
      deepseek_v3_names,
      0,
      /*head_dim=*/64};
}

Family gpt_oss() {
  return {
      "GptOssForCausalLM",
      {.model_type = "gpt_oss",
       .rms_norm_eps = 1e-5,
       .rope = {.base = 150000,
                .scaling = {.kind = RotaryScaling::yarn, .factor = 32, .original_positions = 4096, .truncate = false}},
       .attention_bias = true,
       .output_bias = true,
       .attention_sinks = true,
       .num_local_experts = 128,
       .num_experts_per_tok = 4,
       .expert_bias = true},
      llama_fields({attention_bias(), field("num_local_experts", &C::num_local_experts, max_decoder_layers),
                    field("num_experts_per_tok", &C::num_experts_per_tok), clamped_gate(), router_loss(),
                    windows({.size = 128, .has_layer_types = true, .has = every_second})}),
      gpt_oss_names,
      /*num_key_value_heads=*/8,
      /*head_dim=*/64};
}

Family llama4() {
  return {"Llama4ForCausalLM",
          {.model_type = "llama4_text",
           .intermediate_size = 16384,
           .rms_norm_eps = 1e-5,
           .rope = {.base = 5e5, .interleaved = true},
           .qk_norm_after_rope = true,
           .attention_chunk_size = 8192,
           .num_local_experts = 16,
           .num_experts_per_tok = 1,
           .moe_intermediate_size = 8192,
           .n_shared_experts = 1,
           .router_score = RouterScore::sigmoid,
           .norm_topk_prob = false,
           .scale_expert_inputs = true},
          {sizes(), field("intermediate_size_mlp", &C::intermediate_size),
           nullable("num_key_value_heads", &C::num_key_value_heads), nullable("head_dim", &C::head_dim), inner_fields(),
           only("router_jitter_noise", 0), listed_layers("interleave_moe_layer_step", "moe_layers", true),
           no_rope_layers(/*may_be_empty=*/true),  // as in published folders
           option(nullable("attention_chunk_size", &C::attention_chunk_size)), chunked_layers(), temperature(),
           field("use_qk_norm", &C::qk_norm_after_rope), attention_bias(),
           expert_sizes("num_local_experts", "intermediate_size")},
          llama4_names,
          /*num_key_value_heads=*/8,
          /*head_dim=*/128};
}

}  // namespace

std::vector<Family> expert_families() { return {qwen3_moe(), deepseek_v3(), gpt_oss(), llama4()}; }

}  // namespace tessera::nn::detail
