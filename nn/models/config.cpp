// Checks of a DecoderConfig: its sizes, and the options that its family supports.
#include "nn/models/config.h"

#include <cmath>

#include "sharding/base/fail.h"

namespace tessera::nn {

namespace {

constexpr std::string_view names[] = {"gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2", "mixtral"};

template <class... Args>
void refuse_if(bool is_wrong, fmt::format_string<const Args&...> message, const Args&... args) {
  if (is_wrong) fail(ErrorKind::invalid_argument, "DecoderConfig", message, args...);
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
  refuse_if(c.num_hidden_layers > max_decoder_layers || c.num_local_experts > max_decoder_layers,
            "{} layers and {} experts, expected at most {}.", c.num_hidden_layers, c.num_local_experts,
            max_decoder_layers);
  refuse_if(c.num_attention_heads > max_decoder_size / c.head_dim, "{} heads of {}, expected at most {} features.",
            c.num_attention_heads, c.head_dim, max_decoder_size);
  refuse_if(!(c.rope.scaling.original_positions >= 0 && c.rope.scaling.original_positions <= max_decoder_size),
            "rope.scaling.original_positions = {}, expected 0 to {}.", c.rope.scaling.original_positions,
            max_decoder_size);
  refuse_if(c.attention_scale && !(std::isfinite(*c.attention_scale) && *c.attention_scale > 0),
            "attention_scale = {}, expected a finite one above 0.", c.attention_scale.value_or(0));
  refuse_if(c.num_attention_heads % c.num_key_value_heads != 0,
            "num_attention_heads = {} and num_key_value_heads = {}, expected a divisor.", c.num_attention_heads,
            c.num_key_value_heads);
  refuse_if(!c.windows.empty() && static_cast<int64_t>(c.windows.size()) != c.num_hidden_layers,
            "{} windows for {} layers, expected one for each, or none.", c.windows.size(), c.num_hidden_layers);
  for (const int64_t window : c.windows) refuse_if(window < 0, "a window of {}, expected 0 or more.", window);
  refuse_if(c.vocab_rows && c.vocab_rows < c.vocab_size,
            "vocab_rows = {} and vocab_size = {}, expected as many rows or more.", c.vocab_rows, c.vocab_size);
}

void check_only(const DecoderConfig& c, const char* option, bool given, bool has) {
  refuse_if(given && !has, "{}: {} has no such option.", option, name_of(c.family));
}

}  // namespace

std::string_view name_of(DecoderFamily family) { return names[static_cast<size_t>(family)]; }

void check(const DecoderConfig& c) {
  using enum DecoderFamily;
  check_sizes(c);
  const bool is_gpt2 = c.family == gpt2, is_gemma2 = c.family == gemma2, is_mixtral = c.family == mixtral;
  check_only(c, "scale_attn_by_inverse_layer_idx", c.scale_attn_by_inverse_layer_idx, is_gpt2);
  check_only(c, "attn_logit_softcapping", c.attn_logit_softcapping != 0, is_gemma2);
  check_only(c, "final_logit_softcapping", c.final_logit_softcapping != 0, is_gemma2);
  check_only(c, "num_local_experts", c.num_local_experts != 0, is_mixtral);
  check_only(c, "num_experts_per_tok", c.num_experts_per_tok != 0, is_mixtral);
  check_only(c, "router_aux_loss_coef", c.router_aux_loss_coef != 0, is_mixtral);
  refuse_if(!(c.router_aux_loss_coef >= 0 && std::isfinite(c.router_aux_loss_coef)),
            "router_aux_loss_coef = {}, expected a finite number from 0 on.", c.router_aux_loss_coef);
  refuse_if(is_mixtral &&
                (c.num_local_experts < 1 || c.num_experts_per_tok < 1 || c.num_experts_per_tok > c.num_local_experts),
            "num_local_experts = {} and num_experts_per_tok = {}, expected 1 or more, and at most as many per token as "
            "there are.",
            c.num_local_experts, c.num_experts_per_tok);
  const RotaryEmbedding& rope = c.rope;
  check_only(c, "rope", rope.base != 10000 || rope.dims || rope.scaling.kind != RotaryScaling::none, !is_gpt2);
  check_only(c, "mlp_bias", c.mlp_bias, !is_mixtral);
  check_only(c, "hidden_act", c.hidden_act.function != Activation::silu, !is_mixtral);
  check_only(c, "windows", !c.windows.empty(), !is_gpt2 && c.family != llama);
  check_only(c, "num_key_value_heads", c.num_key_value_heads != c.num_attention_heads, !is_gpt2);
  check_only(c, "head_dim", c.head_dim * c.num_attention_heads != c.hidden_size, !is_gpt2);
}

}  // namespace tessera::nn
