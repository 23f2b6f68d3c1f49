// Converts Hugging Face's config.json to a DecoderConfig, and back.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json.hpp>
#include <cmath>
#include <map>

#include "nn/models/config.h"
#include "sharding/base/fail.h"
#include "sharding/files/json.h"
#include "sharding/files/json_part.h"

namespace tessera::nn {

namespace {

namespace json = boost::json;
using tessera::detail::JsonPart;

const std::map<std::string, Activation::Function>& activations() {
  static const std::map<std::string, Activation::Function> all{
      {"gelu_new", Activation::gelu},   {"gelu_pytorch_tanh", Activation::gelu},
      {"gelu", Activation::gelu_exact}, {"relu", Activation::relu},
      {"silu", Activation::silu},       {"swish", Activation::silu},
      {"tanh", Activation::tanh},       {"sigmoid", Activation::sigmoid}};
  return all;
}

template <class Values>
std::string known(const Values& values) {
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

Activation activation_of(const JsonPart& config, const char* key, const char* otherwise) {
  const std::string name = config.text(key, otherwise);
  const auto found = activations().find(name);
  if (found == activations().end())
    config.at(key).refuse(fmt::format("\"{}\" is not supported, expected one of {}.", name, known(activations())));
  return {found->second};
}

DecoderFamily family_of(const JsonPart& config) {
  std::map<std::string, DecoderFamily> families;
  for (int i = 0; i <= static_cast<int>(DecoderFamily::mixtral); ++i)
    families.emplace(name_of(static_cast<DecoderFamily>(i)), static_cast<DecoderFamily>(i));
  const JsonPart type = config.at("model_type");
  const auto found = families.find(type.text());
  if (found == families.end())
    type.refuse(fmt::format("\"{}\" is not supported, expected one of {}.", type.text(), known(families)));
  return found->second;
}

// Throws if keys are missing, and lists all of them.
void check_names(const JsonPart& config, std::initializer_list<const char*> keys) {
  std::vector<std::string> missing;
  for (const char* key : keys)
    if (!config.names(key)) missing.push_back(fmt::format("\"{}\"", key));
  if (!missing.empty()) config.refuse(fmt::format("has no {}.", fmt::join(missing, ", ")));
}

// Throws if an option has a value that the library does not support.
void check_flag(const JsonPart& config, const char* key, bool expected) {
  if (config.has(key) && config.flag(key, expected) != expected)
    config.at(key).refuse(fmt::format("{} is not supported, expected {}.", !expected, expected));
}

void check_zero(const JsonPart& config, const char* key) {
  if (config.number(key, 0) != 0) config.at(key).refuse("is not supported, expected 0.");
}

// Reads a size of the model. Checks the bounds of check(DecoderConfig) before the size is used.
int64_t size_in(const JsonPart& config, const char* key, int64_t most = max_decoder_size) {
  return config.at(key).integer(1, most);
}
int64_t size_or(const JsonPart& config, const char* key, int64_t otherwise) {
  return config.has(key) ? size_in(config, key) : otherwise;
}

double above_zero(const JsonPart& part) {
  const double number = part.number();
  if (!(number > 0)) part.refuse_type("a number above 0");
  return number;
}
double above_zero_or(const JsonPart& config, const char* key, double otherwise) {
  return config.has(key) ? above_zero(config.at(key)) : otherwise;
}

// ---- rotary positions

double yarn_attention_factor(const JsonPart& rope, double factor) {
  const auto length = [&](double scale) { return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1; };
  const double mine = rope.number("mscale", 0), all = rope.number("mscale_all_dim", 0);
  return rope.number("attention_factor", mine != 0 && all != 0 ? length(mine) / length(all) : length(1));
}

// Reads one number per frequency.
std::vector<double> factors_of(const JsonPart& list, int64_t head_dim) {
  std::vector<double> factors;
  for (const JsonPart& number : list.items()) factors.push_back(number.number());
  if (static_cast<int64_t>(factors.size()) != head_dim / 2)
    list.refuse(fmt::format("{} of them, expected {}, half of the head's size.", factors.size(), head_dim / 2));
  return factors;
}

// Returns the maximum length before rotary positions were scaled. As in transformers, original_max_position_embeddings
// of the config takes precedence over rope's; type dynamic ignores both.
double original_positions_of(const JsonPart& config, const JsonPart& rope, const std::string& type, int64_t positions) {
  constexpr const char* key = "original_max_position_embeddings";
  const auto all = static_cast<double>(positions);
  return type == "dynamic" ? all : config.number(key, rope.number(key, all));
}

RotaryScaling scaling_of(const JsonPart& config, const JsonPart& rope, int64_t positions, int64_t head_dim) {
  const std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return {};
  RotaryScaling scaling{.factor = 1, .original_positions = original_positions_of(config, rope, type, positions)};
  const double stretch = static_cast<double>(positions) / scaling.original_positions;
  if (type == "linear") {
    scaling.kind = RotaryScaling::linear, scaling.factor = above_zero(rope.at("factor"));
  } else if (type == "llama3") {
    scaling.kind = RotaryScaling::llama3, scaling.factor = above_zero(rope.at("factor"));
    scaling.low_frequency = rope.at("low_freq_factor").number();
    scaling.high_frequency = rope.at("high_freq_factor").number();
  } else if (type == "yarn") {
    scaling.kind = RotaryScaling::yarn;
    scaling.factor = above_zero_or(rope, "factor", stretch);
    scaling.beta_fast = rope.number("beta_fast", 32), scaling.beta_slow = rope.number("beta_slow", 1);
    scaling.attention_factor = yarn_attention_factor(rope, scaling.factor);
    scaling.truncate = rope.flag("truncate", true);
  } else if (type == "dynamic") {
    scaling.kind = RotaryScaling::dynamic, scaling.factor = above_zero(rope.at("factor"));
  } else if (type == "longrope") {
    scaling.kind = RotaryScaling::longrope, scaling.factor = above_zero_or(rope, "factor", stretch);
    scaling.short_factors = factors_of(rope.at("short_factor"), head_dim);
    scaling.long_factors = factors_of(rope.at("long_factor"), head_dim);
    if (rope.has("attention_factor")) scaling.attention_factor = rope.at("attention_factor").number();
  } else {
    rope.refuse(fmt::format(
        "rope_type \"{}\" is not supported, expected default, linear, llama3, yarn, dynamic or longrope.", type));
  }
  return scaling;
}

RotaryEmbedding rope_of(const JsonPart& config, const DecoderConfig& c) {
  const bool is_new = config.has("rope_parameters");
  if (is_new && config.has("rope_scaling"))
    config.at("rope_scaling").refuse("given together with rope_parameters, expected one of the two.");
  const char* key = is_new ? "rope_parameters" : "rope_scaling";
  const double base = above_zero_or(config, "rope_theta", c.family == DecoderFamily::mixtral ? 1e6 : 10000);
  if (!config.has(key)) return {.base = base};
  const JsonPart rope = config.at(key);
  for (const JsonPart& part : {config, rope})
    if (part.number("partial_rotary_factor", 1) != 1)
      part.at("partial_rotary_factor").refuse("is not supported in this family, expected 1.");
  return {.base = above_zero_or(rope, "rope_theta", base),
          .scaling = scaling_of(config, rope, c.max_position_embeddings, c.head_dim)};
}

// ---- windows

// Returns the window of each layer, from the config's layer_types or the family's rule.
std::vector<int64_t> windows_of(const JsonPart& config, const DecoderConfig& c) {
  using enum DecoderFamily;
  const bool is_qwen = c.family == qwen2 || c.family == qwen3;
  const bool is_none = config.names("sliding_window") ? !config.has("sliding_window") : c.family == mixtral;
  if (is_none || (is_qwen && !config.flag("use_sliding_window", false))) return {};
  const int64_t size = config.integer("sliding_window", 4096), from = config.integer("max_window_layers", 28);
  if (size < 1) config.at("sliding_window").refuse("expected 1 or more.");
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const bool by_rule = is_qwen ? i >= from : c.family == gemma2 ? i % 2 == 0 : true;
    windows.push_back(by_rule ? size : 0);
  }
  if (!config.has("layer_types")) return windows;
  const JsonPart types = config.at("layer_types");
  if (static_cast<int64_t>(types.length()) != c.num_hidden_layers)
    types.refuse(fmt::format("{} of them, expected {}.", types.length(), c.num_hidden_layers));
  for (size_t i = 0; i < types.length(); ++i) {
    const std::string type = types.item(i).text();
    if (type != "full_attention" && type != "sliding_attention")
      types.item(i).refuse(fmt::format("\"{}\" is not supported, expected full_attention or sliding_attention.", type));
    windows[i] = type == "sliding_attention" ? size : 0;
  }
  return windows;
}

// ---- families

void read_gpt2(const JsonPart& config, DecoderConfig& c) {
  check_names(config, {"vocab_size", "n_embd", "n_layer", "n_head", "n_positions"});
  c.vocab_size = size_in(config, "vocab_size"), c.hidden_size = size_in(config, "n_embd");
  c.num_hidden_layers = size_in(config, "n_layer", max_decoder_layers),
  c.num_attention_heads = c.num_key_value_heads = size_in(config, "n_head");
  c.max_position_embeddings = size_in(config, "n_positions");
  if (c.hidden_size % c.num_attention_heads)
    config.at("n_head").refuse(fmt::format("expected a divisor of {}.", c.hidden_size));
  c.head_dim = c.hidden_size / c.num_attention_heads;
  c.intermediate_size = size_or(config, "n_inner", 4 * c.hidden_size);
  c.rms_norm_eps = above_zero_or(config, "layer_norm_epsilon", 1e-5);
  c.hidden_act = activation_of(config, "activation_function", "gelu_new");
  c.attention_bias = c.output_bias = c.mlp_bias = true;
  c.tie_word_embeddings = config.flag("tie_word_embeddings", true);
  if (!config.flag("scale_attn_weights", true)) c.attention_scale = 1;
  c.scale_attn_by_inverse_layer_idx = config.flag("scale_attn_by_inverse_layer_idx", false);
  check_flag(config, "add_cross_attention", false);
}

void read_biases(const JsonPart& config, DecoderConfig& c) {
  using enum DecoderFamily;
  if (c.family == llama)
    c.mlp_bias = config.flag("mlp_bias", false);
  else
    check_flag(config, "mlp_bias", false);
  if (c.family == llama || c.family == qwen3 || c.family == gemma2)
    c.attention_bias = c.output_bias = config.flag("attention_bias", false);
  else
    check_flag(config, "attention_bias", c.attention_bias = c.family == qwen2);
}

void read_gemma2(const JsonPart& config, DecoderConfig& c) {
  c.hidden_act = activation_of(config, "hidden_activation", "gelu_pytorch_tanh");  // transformers ignores hidden_act
  c.attention_scale = 1 / std::sqrt(config.number("query_pre_attn_scalar", 256));
  const auto cap = [&](const char* key, double otherwise) {
    return config.number(key, config.names(key) ? 0 : otherwise);
  };
  c.attn_logit_softcapping = cap("attn_logit_softcapping", 50);
  c.final_logit_softcapping = cap("final_logit_softcapping", 30);
  check_flag(config, "use_bidirectional_attention", false);
}

// Reads num_key_value_heads. A missing key gives the family's default. A null value gives the number of heads.
int64_t num_key_value_heads_of(const JsonPart& config, const DecoderConfig& c) {
  using enum DecoderFamily;
  constexpr const char* key = "num_key_value_heads";
  const int64_t otherwise = c.family == gemma2                           ? 4
                            : c.family == mistral || c.family == mixtral ? 8
                                                                         : c.num_attention_heads;
  return size_or(config, key, config.names(key) ? c.num_attention_heads : otherwise);
}

void read_rotary(const JsonPart& config, DecoderConfig& c) {
  using enum DecoderFamily;
  check_names(config, {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"});
  c.vocab_size = size_in(config, "vocab_size"), c.hidden_size = size_in(config, "hidden_size");
  c.num_hidden_layers = size_in(config, "num_hidden_layers", max_decoder_layers);
  c.num_attention_heads = size_in(config, "num_attention_heads");
  c.num_key_value_heads = num_key_value_heads_of(config, c);
  c.max_position_embeddings = size_or(config, "max_position_embeddings", 2048);
  c.head_dim = size_or(config, "head_dim",
                       c.family == gemma2  ? 256
                       : c.family == qwen3 ? 128
                                           : c.hidden_size / c.num_attention_heads);
  c.intermediate_size = size_in(config, "intermediate_size");
  c.rms_norm_eps = above_zero_or(config, "rms_norm_eps", c.family == mixtral ? 1e-5 : 1e-6);
  if (c.family == gemma2)
    read_gemma2(config, c);
  else
    c.hidden_act = activation_of(config, "hidden_act", "silu");
  read_biases(config, c);
  c.tie_word_embeddings = config.flag("tie_word_embeddings", c.family == gemma2);
  c.rope = rope_of(config, c);
  if (c.family != llama) c.windows = windows_of(config, c);
  if (c.family != mixtral) return;
  c.num_local_experts = size_or(config, "num_local_experts", 8),
  c.num_experts_per_tok = size_or(config, "num_experts_per_tok", 2);
  check_zero(config, "router_jitter_noise");
  if (config.flag("output_router_logits", false)) c.router_aux_loss_coef = config.number("router_aux_loss_coef", 0.001);
}

}  // namespace

DecoderConfig config_from_hugging_face(std::string_view text, std::string_view name) {
  const json::value value = parse_json(text, "from_pretrained", name);
  const JsonPart config{value, std::string(name), "from_pretrained"};
  DecoderConfig c{.family = family_of(config)};
  if (config.has("quantization_config"))
    config.at("quantization_config")
        .refuse("quantized weights are not supported. Give the folder of the weights in a floating type.");
  if (c.family == DecoderFamily::gpt2)
    read_gpt2(config, c);
  else
    read_rotary(config, c);
  try {
    check(c);
  } catch (const Error& error) {
    config.refuse(error.what());
  }
  return c;
}

// ---- from a DecoderConfig to config.json

namespace {

const char* name_of(const Activation& activation) {
  switch (activation.function) {
    case Activation::gelu:
      return "gelu_pytorch_tanh";
    case Activation::gelu_exact:
      return "gelu";
    case Activation::relu:
      return "relu";
    case Activation::tanh:
      return "tanh";
    case Activation::sigmoid:
      return "sigmoid";
    default:
      return "silu";
  }
}

json::object json_of(const RotaryEmbedding& rope) {
  const RotaryScaling& s = rope.scaling;
  constexpr const char* types[] = {"default", "linear", "llama3", "yarn", "dynamic", "longrope"};
  json::object all{{"rope_theta", rope.base}, {"rope_type", types[s.kind]}};
  if (s.kind != RotaryScaling::none) all["factor"] = s.factor;
  if (s.kind == RotaryScaling::llama3) all["low_freq_factor"] = s.low_frequency;
  if (s.kind == RotaryScaling::llama3) all["high_freq_factor"] = s.high_frequency;
  const bool is_yarn = s.kind == RotaryScaling::yarn, is_longrope = s.kind == RotaryScaling::longrope;
  if (s.original_positions > 0 && (is_yarn || is_longrope || s.kind == RotaryScaling::llama3))
    all["original_max_position_embeddings"] = static_cast<int64_t>(s.original_positions);
  if ((is_yarn || is_longrope) && s.attention_factor) all["attention_factor"] = *s.attention_factor;
  if (is_longrope)
    all["short_factor"] = json::value_from(s.short_factors), all["long_factor"] = json::value_from(s.long_factors);
  if (is_yarn) all["beta_fast"] = s.beta_fast, all["beta_slow"] = s.beta_slow, all["truncate"] = s.truncate;
  return all;
}

json::object gpt2_json(const DecoderConfig& c) {
  return {{"n_embd", c.hidden_size},
          {"n_layer", c.num_hidden_layers},
          {"n_head", c.num_attention_heads},
          {"n_positions", c.max_position_embeddings},
          {"n_inner", c.intermediate_size},
          {"layer_norm_epsilon", c.rms_norm_eps},
          {"activation_function", name_of(c.hidden_act)},
          {"scale_attn_weights", !c.attention_scale.has_value()},
          {"scale_attn_by_inverse_layer_idx", c.scale_attn_by_inverse_layer_idx}};
}

json::array layer_types(const DecoderConfig& c) {
  json::array types;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i)
    types.push_back(c.sliding_window(i) ? "sliding_attention" : "full_attention");
  return types;
}

json::object rotary_json(const DecoderConfig& c) {
  using enum DecoderFamily;
  const char* activation = c.family == gemma2 ? "hidden_activation" : "hidden_act";
  json::object all{{"hidden_size", c.hidden_size},
                   {"intermediate_size", c.intermediate_size},
                   {"num_hidden_layers", c.num_hidden_layers},
                   {"num_attention_heads", c.num_attention_heads},
                   {"num_key_value_heads", c.num_key_value_heads},
                   {"head_dim", c.head_dim},
                   {"max_position_embeddings", c.max_position_embeddings},
                   {"rms_norm_eps", c.rms_norm_eps},
                   {activation, name_of(c.hidden_act)},
                   {"rope_parameters", json_of(c.rope)}};
  if (c.family == llama || c.family == qwen3 || c.family == gemma2) all["attention_bias"] = c.attention_bias;
  if (c.family == llama) all["mlp_bias"] = c.mlp_bias;
  int64_t window = 0;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) window = std::max(window, c.sliding_window(i));
  if (c.family != llama) all["sliding_window"] = window ? json::value(window) : json::value(nullptr);
  if (c.family == qwen2 || c.family == qwen3) all["use_sliding_window"] = window != 0;
  if (c.family == qwen2 || c.family == qwen3 || c.family == gemma2) all["layer_types"] = layer_types(c);
  if (c.family == mixtral)
    all["num_local_experts"] = c.num_local_experts, all["num_experts_per_tok"] = c.num_experts_per_tok;
  if (c.router_aux_loss_coef != 0)
    all["output_router_logits"] = true, all["router_aux_loss_coef"] = c.router_aux_loss_coef;
  if (c.family != gemma2) return all;
  const double scalar = std::pow(c.attention_scale.value_or(1 / std::sqrt(static_cast<double>(c.head_dim))), -2);
  all["query_pre_attn_scalar"] = std::llround(scalar);  // transformers accepts integers only
  const auto cap = [](double value) { return value == 0 ? json::value(nullptr) : json::value(value); };
  all["attn_logit_softcapping"] = cap(c.attn_logit_softcapping),
  all["final_logit_softcapping"] = cap(c.final_logit_softcapping);
  return all;
}

const char* architecture_of(DecoderFamily family) {
  constexpr const char* all[] = {"GPT2LMHeadModel",  "LlamaForCausalLM",  "MistralForCausalLM", "Qwen2ForCausalLM",
                                 "Qwen3ForCausalLM", "Gemma2ForCausalLM", "MixtralForCausalLM"};
  return all[static_cast<size_t>(family)];
}

}  // namespace

namespace {

// Throws unless the text, read back, gives the same config.
void check_says(const std::string& text, const DecoderConfig& c) {
  const DecoderConfig read = config_from_hugging_face(text, "config.json");
  const auto same = [&](const char* option, bool is_same) {
    if (!is_same)
      fail(ErrorKind::invalid_argument, "save_pretrained",
           "{}: the config of transformers' {} cannot express the value that it has here.", option,
           nn::name_of(c.family));
  };
  const auto scale = [](const DecoderConfig& config) {
    return config.attention_scale.value_or(1 / std::sqrt(static_cast<double>(config.head_dim)));
  };
  const RotaryScaling &a = read.rope.scaling, &b = c.rope.scaling;
  same("rope.base", read.rope.base == c.rope.base);
  same("rope.dims", read.rope.dims == c.rope.dims);
  same("rope.scaling", a.kind == b.kind && (b.kind == RotaryScaling::none || a.factor == b.factor) &&
                           (b.kind != RotaryScaling::dynamic || a.original_positions == b.original_positions));
  same("attention_scale", std::abs(scale(read) - scale(c)) <= 1e-9 * scale(c));
  same("hidden_act", read.hidden_act.function == c.hidden_act.function);
  same("attention_bias", read.attention_bias == c.attention_bias);
  same("output_bias", read.output_bias == c.output_bias);
  same("mlp_bias", read.mlp_bias == c.mlp_bias);
  same("windows",
       read.windows == c.windows || (read.windows.empty() && c.windows == std::vector<int64_t>(c.num_hidden_layers)));
}

}  // namespace

std::string config_to_hugging_face(const DecoderConfig& c, DType dtype) {
  json::object all = c.family == DecoderFamily::gpt2 ? gpt2_json(c) : rotary_json(c);
  all["architectures"] = json::array{architecture_of(c.family)};
  all["model_type"] = std::string(nn::name_of(c.family));
  all["vocab_size"] = c.vocab_size;
  all["tie_word_embeddings"] = c.tie_word_embeddings;
  all["dtype"] = std::string(tessera::name_of(dtype));
  const std::string text = json::serialize(all) + "\n";
  check_says(text, c);
  return text;
}

}  // namespace tessera::nn
