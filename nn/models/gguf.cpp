// Converts decoders to the architectures of llama.cpp: keys, tensor names, and the layout of values.
#include "nn/models/gguf.h"

#include <ATen/ops/add.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "nn/checkpoint/hugging_face_tensors.h"
#include "nn/models/gguf_file.h"
#include "nn/models/pretrained.h"
#include "sharding/base/fail.h"
#include "sharding/files/file.h"

namespace tessera::nn::detail {

namespace {

// An architecture of llama.cpp.
struct Architecture {
  std::string name;
  bool is_gpt2 = name == "gpt2", is_llama = name == "llama", is_gemma = name.starts_with("gemma");
  // Every period-th layer has full attention, the others have a window. 0: llama.cpp has no windows here.
  int64_t period = name == "gemma2" ? 2 : name == "gemma3" ? 6 : 0;
};

Architecture architecture_of(const std::string& model_type) {
  for (const char* known : {"gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"})
    if (model_type == known)
      return {model_type == "mistral" ? "llama" : model_type == "gemma3_text" ? "gemma3" : model_type};
  fail(ErrorKind::invalid_argument, gguf_verb,
       "model_type = {}, expected gpt2, llama, mistral, qwen2, qwen3, gemma, gemma2 or gemma3_text.", model_type);
}

// Returns the smallest window; 0 if no layer has one.
int64_t window_of(const DecoderConfig& c) {
  int64_t smallest = 0;
  for (const int64_t window : c.windows)
    if (window && (!smallest || window < smallest)) smallest = window;
  return smallest;
}

// Returns the scale of the attention's logits in llama.cpp.
double scale_in_gguf(const Architecture& a, const DecoderConfig& c) {
  const bool is_27b =
      (a.name == "gemma2" && c.num_hidden_layers == 46) || (a.name == "gemma3" && c.num_hidden_layers == 62);
  return 1 / std::sqrt(static_cast<double>(is_27b ? c.hidden_size / c.num_attention_heads : c.head_dim));
}

// Throws if llama.cpp (src/models/*.cpp) computes an option of the family differently.
void check_options(const Architecture& a, const DecoderConfig& c) {
  const auto need = [&](bool is_supported, const char* option) {
    if (!is_supported)
      fail(ErrorKind::invalid_argument, gguf_verb, "{}: llama.cpp's architecture {} does not support its value.",
           option, a.name);
  };
  need(c.hidden_act.function == (a.is_gpt2 || a.is_gemma ? Activation::gelu : Activation::silu), "hidden_act");
  need(a.is_gpt2 || a.is_llama || !c.output_bias, "attention_bias");
  need(a.name != "qwen2" || c.num_attention_heads * c.head_dim == c.hidden_size, "head_dim");
  need(std::abs(c.scale_of_attention() / scale_in_gguf(a, c) - 1) < 1e-6, "attention_scale");
  need(!c.scale_attn_by_inverse_layer_idx, "scale_attn_by_inverse_layer_idx");
  need((a.name == "gemma2") == (c.attn_logit_softcapping != 0), "attn_logit_softcapping");
  const RotaryScaling& s = c.rope.scaling;
  need(s.kind == RotaryScaling::none || s.kind == RotaryScaling::linear ||
           (s.kind == RotaryScaling::llama3 && a.is_llama) || (s.kind == RotaryScaling::yarn && s.truncate),
       "rope.scaling");
  need(a.name != "gemma2" || window_of(c) > 0, "windows");
  for (int64_t i = 0; a.period && i < c.num_hidden_layers; ++i)
    need(c.sliding_window(i) == (i % a.period == a.period - 1 ? 0 : window_of(c)), "windows");
}

GgufMetadata metadata_of(const Architecture& a, const DecoderConfig& c, DType dtype) {
  GgufMetadata all{{"general.architecture", a.name}, {"general.type", "model"}};
  const auto at = [&](const char* key) { return a.name + "." + key; };
  const auto count = [&](const char* key, int64_t n) { all.emplace_back(at(key), static_cast<uint32_t>(n)); };
  const auto number = [&](const char* key, double n) { all.emplace_back(at(key), static_cast<float>(n)); };
  // llama_ftype of llama.h, and GGML_QNT_VERSION of ggml.h.
  all.emplace_back("general.file_type", dtype == DType::bfloat16 ? uint32_t{32} : gguf_type(dtype));
  all.emplace_back("general.quantization_version", uint32_t{2});
  const int64_t window = window_of(c), positions = c.max_position_embeddings;
  count("context_length", window && !a.period ? std::min(window, positions) : positions);
  count("embedding_length", c.hidden_size);
  count("block_count", c.num_hidden_layers);
  count("feed_forward_length", c.intermediate_size);
  count("attention.head_count", c.num_attention_heads);
  count("attention.head_count_kv", c.num_key_value_heads);
  count("attention.key_length", c.head_dim);
  count("attention.value_length", c.head_dim);
  count("vocab_size", c.vocab_size);
  number(a.is_gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c.rms_norm_eps);
  if (a.period && window) count("attention.sliding_window", window);
  if (c.attn_logit_softcapping != 0) number("attn_logit_softcapping", c.attn_logit_softcapping);
  if (a.name == "gemma2" || c.final_logit_softcapping != 0)
    number("final_logit_softcapping", c.final_logit_softcapping);
  if (a.is_gpt2) return all;
  count("rope.dimension_count", c.head_dim);
  number("rope.freq_base", c.rope.base);
  if (c.local_rope) number("rope.freq_base_swa", c.local_rope->base);
  const RotaryScaling& s = c.rope.scaling;
  if (s.kind != RotaryScaling::linear && s.kind != RotaryScaling::yarn) return all;
  all.emplace_back(at("rope.scaling.type"), s.kind == RotaryScaling::linear ? "linear" : "yarn");
  number("rope.scaling.factor", s.factor);
  if (s.kind == RotaryScaling::linear) return all;
  count("rope.scaling.original_context_length", static_cast<int64_t>(s.original_positions));
  number("rope.scaling.yarn_beta_fast", s.beta_fast);
  number("rope.scaling.yarn_beta_slow", s.beta_slow);
  const double usual = tessera::detail::yarn_attention_factor(s.factor);  // llama.cpp multiplies by it
  number("rope.scaling.attn_factor", s.attention_factor.value_or(usual) / usual);
  return all;
}

// ---- tensors

// Returns llama.cpp's name of a tensor: blk.2.attn_q.weight for model.layers.2.self_attn.q_proj.weight.
std::string name_in_gguf(const Architecture& a, const std::string& name) {
  static const std::map<std::string, std::string> names{{"model.embed_tokens", "token_embd"},
                                                        {"model.norm", "output_norm"},
                                                        {"lm_head", "output"},
                                                        {"input_layernorm", "attn_norm"},
                                                        {"self_attn.q_proj", "attn_q"},
                                                        {"self_attn.k_proj", "attn_k"},
                                                        {"self_attn.v_proj", "attn_v"},
                                                        {"self_attn.o_proj", "attn_output"},
                                                        {"self_attn.q_norm", "attn_q_norm"},
                                                        {"self_attn.k_norm", "attn_k_norm"},
                                                        {"post_attention_layernorm", "ffn_norm"},
                                                        {"pre_feedforward_layernorm", "ffn_norm"},
                                                        {"post_feedforward_layernorm", "post_ffw_norm"},
                                                        {"mlp.gate_proj", "ffn_gate"},
                                                        {"mlp.up_proj", "ffn_up"},
                                                        {"mlp.down_proj", "ffn_down"},
                                                        {"transformer.wte", "token_embd"},
                                                        {"transformer.wpe", "position_embd"},
                                                        {"transformer.ln_f", "output_norm"},
                                                        {"ln_1", "attn_norm"},
                                                        {"attn.c_attn", "attn_qkv"},
                                                        {"attn.c_proj", "attn_output"},
                                                        {"ln_2", "ffn_norm"},
                                                        {"mlp.c_fc", "ffn_up"},
                                                        {"mlp.c_proj", "ffn_down"}};
  const size_t end = name.rfind('.');
  std::string stem = name.substr(0, end), block;
  for (const std::string_view prefix : {"model.layers.", "transformer.h."})
    if (stem.starts_with(prefix)) {
      const size_t dot = stem.find('.', prefix.size());
      block = fmt::format("blk.{}.", stem.substr(prefix.size(), dot - prefix.size()));
      stem = stem.substr(dot + 1);
    }
  const bool is_after_attention = a.period && stem == "post_attention_layernorm";
  return block + (is_after_attention ? "post_attention_norm" : names.at(stem)) + name.substr(end);
}

bool is_transposed(const Architecture& a, const TensorEntry& theirs) {
  return a.is_gpt2 && theirs.shape.size() == 2 && theirs.name.find(".c_") != theirs.name.npos;
}

TensorEntry entry_in_gguf(const Architecture& a, const TensorEntry& theirs, DType dtype) {
  TensorEntry ours{name_in_gguf(a, theirs.name), dtype, theirs.shape};
  if (ours.shape.size() == 1 || ours.name.starts_with("position_embd")) ours.dtype = DType::float32;
  if (is_transposed(a, theirs)) std::swap(ours.shape[0], ours.shape[1]);
  return ours;
}

// Returns the values of a tensor as llama.cpp stores them.
at::Tensor values_in_gguf(const Architecture& a, const DecoderConfig& c, const TensorEntry& theirs, at::Tensor values,
                          const TensorEntry& ours) {
  const bool is_q = ours.name.find(".attn_q.") != ours.name.npos, is_k = ours.name.find(".attn_k.") != ours.name.npos;
  if (is_transposed(a, theirs)) values = values.t();
  // Rotary positions pair neighbors in llama.cpp's architecture llama, the halves of a head in the others.
  if (a.is_llama && (is_q || is_k))
    values = values.unflatten(0, {is_q ? c.num_attention_heads : c.num_key_value_heads, 2, -1})
                 .transpose(1, 2)
                 .flatten(0, 2);
  at::Tensor cast = values.to(static_cast<at::ScalarType>(ours.dtype));
  if (a.is_gemma && ours.name.ends_with("_norm.weight")) cast = cast.add(1);
  if (ours.dtype == DType::float16 && at::isfinite(values).ne(at::isfinite(cast)).any().item<bool>())
    fail(ErrorKind::invalid_argument, gguf_verb, "{}: float16 cannot hold its values. Give .dtype = bfloat16.",
         theirs.name);
  return cast.contiguous();
}

// Returns the divisors of llama3's frequencies.
at::Tensor rope_factors(const RotaryEmbedding& rope, int64_t head_dim) {
  std::vector<double> factors;
  for (int64_t i = 0; i < head_dim; i += 2) {
    const double f = std::pow(rope.base, -static_cast<double>(i) / static_cast<double>(head_dim));
    factors.push_back(f / tessera::detail::llama3_frequency(f, rope.scaling));
  }
  return at::tensor(factors, at::kFloat);
}

// Returns the plan to write the tensors `theirs`, as save_pretrained has them, to a GGUF file.
TensorsToWrite plan_of(const std::filesystem::path& file, const DecoderConfig& c, const GgufOptions& options,
                       DType dtype, const std::vector<TensorEntry>& theirs) {
  check_gguf_path(file);
  config_to_hugging_face(c, dtype);  // throws for options that the family does not have
  const Architecture a = architecture_of(c.model_type);
  check_options(a, c);
  GgufMetadata metadata = metadata_of(a, c, dtype), tokenizer{{"tokenizer.ggml.model", "none"}};
  metadata.emplace_back("general.name", file.stem().string());
  if (options.tokenizer) tokenizer = gguf_tokenizer(*options.tokenizer, c.vocab_size);
  metadata.insert(metadata.end(), tokenizer.begin(), tokenizer.end());
  TensorsToWrite tensors;
  std::vector<TensorEntry> ours;
  for (const TensorEntry& entry : theirs) {
    tensors.order.push_back(entry.name);
    tensors.identity += fmt::format("{} {}, ", entry.name, to_string(entry.shape));
    ours.push_back(entry_in_gguf(a, entry, dtype));
  }
  if (c.rope.scaling.kind == RotaryScaling::llama3)
    ours.push_back({"rope_freqs.weight", DType::float32, {c.head_dim / 2}});
  tensors.identity = fmt::format("{} tensors, mark {:x}", theirs.size(), std::hash<std::string>{}(tensors.identity));
  tensors.write = [=, &c](const auto& next) {
    at::Tensor held;
    write_gguf(file, metadata, ours, [&, i = size_t{0}](const TensorEntry& entry) mutable {
      held = i < theirs.size() ? values_in_gguf(a, c, theirs[i], next(), entry) : rope_factors(c.rope, c.head_dim);
      ++i;
      return std::span(static_cast<const std::byte*>(held.const_data_ptr()), held.nbytes());
    });
  };
  return tensors;
}

}  // namespace

}  // namespace tessera::nn::detail

namespace tessera::nn {

void check_gguf_path(const std::filesystem::path& file) {
  check_replaceable(file, "GGUF", "a GGUF file", detail::gguf_verb);
}

void save_gguf(const std::filesystem::path& file, const CausalLM& model, const GgufOptions& options) {
  CausalLM copy = model;
  const DecoderConfig& c = copy.config;
  const Leaves all = leaves(copy);
  const DType dtype = options.dtype.value_or(all.front().value->dtype());
  detail::save_tensors(file, hugging_face_names(c), all, c.vocab_size,
                       [&](const auto& theirs) { return detail::plan_of(file, c, options, dtype, theirs); });
}

}  // namespace tessera::nn
