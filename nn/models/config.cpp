// Checks of a DecoderConfig: its sizes, and options that exclude each other.
#include "nn/models/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "sharding/base/fail.h"

namespace tessera::nn {

namespace {

template <class... Args>
void refuse_if(bool is_wrong, fmt::format_string<const Args&...> message, const Args&... args) {
  if (is_wrong) fail(ErrorKind::invalid_argument, "DecoderConfig", message, args...);
}

void check_number(const char* name, double number, bool may_be_zero = false) {
  constexpr double most = std::numeric_limits<float>::max();  // models compute in float32
  refuse_if(!(number <= most && (number > 0 || (may_be_zero && number == 0))), "{} = {}, expected a finite number {}.",
            name, number, may_be_zero ? "from 0 on" : "above 0");
}

void check_per_layer(const char* name, const std::vector<int64_t>& values, int64_t layers) {
  refuse_if(!values.empty() && static_cast<int64_t>(values.size()) != layers,
            "{} {} for {} layers, expected one for each, or none.", values.size(), name, layers);
}

void check_sizes(const DecoderConfig& c) {
  const struct {
    const char* name;
    int64_t size;
  } sizes[] = {{"vocab_size", c.vocab_size},
               {"hidden_size", c.hidden_size},
               {"num_hidden_layers", c.num_hidden_layers},
               {"num_attention_heads", c.num_attention_heads},
               {"num_key_value_heads", c.num_key_value_heads},
               {"head_dim", c.head_dim},
               {"intermediate_size", c.intermediate_size},
               {"max_position_embeddings", c.max_position_embeddings}};
  for (const auto& [name, size] : sizes)
    refuse_if(size < 1 || size > max_decoder_size, "{} = {}, expected 1 to {}.", name, size, max_decoder_size);
  refuse_if(c.head_dim > max_head_dim, "head_dim = {}, expected 1 to {}.", c.head_dim, max_head_dim);
  refuse_if(c.num_hidden_layers > max_decoder_layers || c.num_local_experts > max_decoder_layers,
            "{} layers and {} experts, expected at most {}.", c.num_hidden_layers, c.num_local_experts,
            max_decoder_layers);
  refuse_if(c.num_attention_heads > max_decoder_size / c.head_dim, "{} heads of {}, expected at most {} features.",
            c.num_attention_heads, c.head_dim, max_decoder_size);
  refuse_if(c.num_attention_heads % c.num_key_value_heads != 0,
            "num_attention_heads = {} and num_key_value_heads = {}, expected a divisor.", c.num_attention_heads,
            c.num_key_value_heads);
  check_per_layer("windows", c.windows, c.num_hidden_layers);
  for (const int64_t window : c.windows) refuse_if(window < 0, "a window of {}, expected 0 or more.", window);
  refuse_if(c.vocab_rows && c.vocab_rows < c.vocab_size,
            "vocab_rows = {} and vocab_size = {}, expected as many rows or more.", c.vocab_rows, c.vocab_size);
}

void check_numbers(const DecoderConfig& c) {
  if (c.attention_scale) check_number("attention_scale", *c.attention_scale);
  check_number("embedding_multiplier", c.embedding_multiplier);
  check_number("residual_multiplier", c.residual_multiplier);
  check_number("logits_scaling", c.logits_scaling);
  check_number("attn_logit_softcapping", c.attn_logit_softcapping, true);
  check_number("final_logit_softcapping", c.final_logit_softcapping, true);
  check_number("router_aux_loss_coef", c.router_aux_loss_coef, true);
  check_number("rms_norm_eps", c.rms_norm_eps, true);
  if (c.query_temperature) {
    check_number("query_temperature.scale", c.query_temperature->scale, true);
    check_number("query_temperature.floor_scale", c.query_temperature->floor_scale);
  }
  if (c.clamped_gate) {
    check_number("clamped_gate.limit", c.clamped_gate->limit);
    check_number("clamped_gate.alpha", c.clamped_gate->alpha);
  }
  refuse_if(c.norm_offset != 0 && c.norm != NormKind::rms, "norm_offset = {}, expected 0 for LayerNorms.",
            c.norm_offset);
}

void check_positions(const DecoderConfig& c) {
  const auto check_rope = [&](const char* name, const RotaryEmbedding& rope) {
    const double positions = rope.scaling.original_positions;
    refuse_if(!(positions >= 0 && positions <= max_decoder_size),
              "{}.scaling.original_positions = {}, expected 0 to {}.", name, positions, max_decoder_size);
    if (!c.learned_positions)
      tessera::detail::check_rotary([&] { return fmt::format("float32[1,1,{}]", c.head_dim); }, c.head_dim, rope.base,
                                    rope.dims, rope.scaling);
  };
  check_rope("rope", c.rope);
  if (c.local_rope) check_rope("local_rope", *c.local_rope);
  check_per_layer("no_rope_layers", c.no_rope_layers, c.num_hidden_layers);
  for (const int64_t rotates : c.no_rope_layers)
    refuse_if(rotates != 0 && rotates != 1, "{} in no_rope_layers, expected 0 or 1.", rotates);
  refuse_if(c.position_offset < 0 || c.position_offset > max_decoder_size - c.max_position_embeddings,
            "position_offset = {}, expected 0 or more, and a table of at most {} rows.", c.position_offset,
            max_decoder_size);
  refuse_if(c.position_offset && !c.learned_positions, "position_offset = {} without learned_positions, expected 0.",
            c.position_offset);
  const bool rotates = c.rope.base != RotaryEmbedding{}.base || c.rope.dims ||
                       c.rope.scaling.kind != RotaryScaling::none || c.local_rope || !c.no_rope_layers.empty();
  refuse_if(rotates && c.learned_positions, "rope with learned_positions = {}, expected one of the two.",
            c.learned_positions);
}

void check_expert_options(const DecoderConfig& c) {
  check_per_layer("moe_layers", c.moe_layers, c.num_hidden_layers);
  check_number("routed_scaling_factor", c.routed_scaling_factor);
  const int64_t hidden = c.moe_intermediate_size ? c.moe_intermediate_size : c.intermediate_size;
  refuse_if(hidden < 1 || hidden > max_decoder_size || c.n_shared_experts < 0 ||
                c.n_shared_experts > max_decoder_size / hidden,
            "moe_intermediate_size = {} and n_shared_experts = {}, expected at most {} hidden units.",
            c.moe_intermediate_size, c.n_shared_experts, max_decoder_size);
  refuse_if(c.n_group < 1 || c.num_local_experts % c.n_group || c.topk_group < 1 || c.topk_group > c.n_group ||
                c.num_experts_per_tok > c.num_local_experts / c.n_group * c.topk_group,
            "n_group = {} and topk_group = {} for {} of {} experts, expected a divisor of the experts, and groups with "
            "as many experts as a token uses.",
            c.n_group, c.topk_group, c.num_experts_per_tok, c.num_local_experts);
}

void check_attention(const DecoderConfig& c) {
  refuse_if(c.attention_chunk_size < 0, "attention_chunk_size = {}, expected 0 or more.", c.attention_chunk_size);
  if (c.kv_lora_rank == 0) return;
  const int64_t most = max_decoder_size / c.num_attention_heads / 2;
  refuse_if(std::min({c.kv_lora_rank, c.qk_nope_head_dim, c.v_head_dim, c.q_lora_rank + 1}) < 1 ||
                std::max({c.kv_lora_rank, c.qk_nope_head_dim, c.v_head_dim, c.q_lora_rank}) > most,
            "kv_lora_rank = {}, q_lora_rank = {}, qk_nope_head_dim = {} and v_head_dim = {}, expected 1 to {}.",
            c.kv_lora_rank, c.q_lora_rank, c.qk_nope_head_dim, c.v_head_dim, most);
  refuse_if(c.learned_positions || !c.no_rope_layers.empty() || !c.windows.empty() || c.qk_norm ||
                c.qk_norm_after_rope || c.attention_sinks || c.attention_chunk_size || c.attn_logit_softcapping != 0 ||
                c.num_key_value_heads != c.num_attention_heads,
            "kv_lora_rank = {} with options that latent attention does not have, expected rotary positions, and no "
            "fewer kv heads, norms of heads, sinks, windows, chunks or softcap.",
            c.kv_lora_rank);
}

void check_experts(const DecoderConfig& c) {
  if (c.num_local_experts == 0 && c.num_experts_per_tok == 0) {
    refuse_if(c.router_aux_loss_coef != 0, "router_aux_loss_coef = {} without experts, expected 0.",
              c.router_aux_loss_coef);
    return;
  }
  refuse_if(c.num_local_experts < 1 || c.num_experts_per_tok < 1 || c.num_experts_per_tok > c.num_local_experts,
            "num_local_experts = {} and num_experts_per_tok = {}, expected 1 or more, and at most as many per token as "
            "there are.",
            c.num_local_experts, c.num_experts_per_tok);
  check_expert_options(c);
  refuse_if(c.mlp_bias || !c.gated_mlp || c.hidden_act.function != Activation::silu,
            "experts with mlp_bias = {}, gated_mlp = {} and hidden_act {} silu, expected gated ones without bias, with "
            "silu.",
            c.mlp_bias, c.gated_mlp, c.hidden_act.function == Activation::silu ? "=" : "other than");
}

}  // namespace

std::optional<RotaryEmbedding> DecoderConfig::rope_of(int64_t layer) const {
  if (learned_positions || (!no_rope_layers.empty() && !no_rope_layers[static_cast<size_t>(layer)]))
    return std::nullopt;
  return local_rope && sliding_window(layer) ? local_rope : rope;
}

double DecoderConfig::scale_of_attention() const {
  const int64_t features = kv_lora_rank ? head_dim + qk_nope_head_dim : head_dim;
  return attention_scale.value_or(1 / std::sqrt(static_cast<double>(features)));
}

void check(const DecoderConfig& c) {
  check_sizes(c);
  check_numbers(c);
  check_positions(c);
  check_experts(c);
  check_attention(c);
}

}  // namespace tessera::nn
