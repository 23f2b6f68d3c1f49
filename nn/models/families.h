// The table of families: how each writes its options in config.json, and the names of its tensors.
#pragma once

#include <boost/json.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/checkpoint/hugging_face.h"
#include "nn/models/config.h"
#include "sharding/files/json_part.h"

namespace tessera::nn::detail {

using tessera::detail::JsonPart;

// Maps one key of config.json, or a group of keys, to members of a DecoderConfig. `read` leaves the family's default if
// the key is missing.
struct ConfigField {
  std::string key = {};
  std::function<void(const JsonPart& config, DecoderConfig& c)> read;
  std::function<void(const DecoderConfig& c, boost::json::object& all)> write = [](const auto&, auto&) {};
  bool is_size = false, is_required = false;
};

// A list of fields, which may contain lists.
struct ConfigFields : std::vector<ConfigField> {
  ConfigFields(ConfigField field) { push_back(std::move(field)); }
  ConfigFields(std::initializer_list<ConfigFields> parts) {
    for (const ConfigFields& part : parts) insert(end(), part.begin(), part.end());
  }
};

template <class T>
std::vector<T> joined(std::initializer_list<std::vector<T>> parts) {
  std::vector<T> all;
  for (const std::vector<T>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

// Returns the key's whole number, from 1 to max_decoder_size, or `otherwise` if it is missing or null.
int64_t size_or(const JsonPart& config, const char* key, int64_t otherwise);

// Returns the field of a member: a size, a number above 0, a flag, or the name of an activation.
ConfigField field(const char* key, int64_t DecoderConfig::*member, int64_t most = max_decoder_size);
ConfigField field(const char* key, double DecoderConfig::*member);
ConfigField field(const char* key, bool DecoderConfig::*member);
ConfigField field(const char* key, Activation DecoderConfig::*member);
ConfigField required(ConfigField given);
// A size that may be null: then it becomes 0, and `derived_sizes` computes it.
ConfigField nullable(const char* key, int64_t DecoderConfig::*member);
// A softcap: null for 0.
ConfigField cap(const char* key, double DecoderConfig::*member);
// A key of which only one value, its default, is supported.
ConfigField only(const char* key, const boost::json::value& value);
// Computes num_key_value_heads, head_dim and intermediate_size that are 0 as transformers does: as many as heads,
// hidden_size / heads, and 4 hidden_size.
ConfigField derived_sizes();

// Keys of the rotary positions, in either form: rope_parameters, or rope_theta and rope_scaling.
struct RopeKeys {
  const char* theta = "rope_theta";
  const char* partial = nullptr;      // key of the fraction of each head that is rotated; nullptr: not supported
  double fraction = 1;                // default of `partial`
  const char* local_theta = nullptr;  // key of the base of layers with a window; nullptr: `theta` is for all layers
  int64_t original_positions = 0;     // default of original_max_position_embeddings, if the config has this key
};
ConfigField rope(const RopeKeys& keys = {});

// Keys of the windows: sliding_window, and the layers that have it.
struct WindowKeys {
  int64_t size = 0;              // default of sliding_window; 0: no windows
  bool has_layer_types = false;  // the key layer_types
  bool has_switch = false;       // the key use_sliding_window
  // Returns true if a layer has a window, without layer_types; default: all.
  std::function<bool(const JsonPart& config, const DecoderConfig& c, int64_t layer)> has = {};
};
ConfigField windows(const WindowKeys& keys);
inline bool every_second(const JsonPart&, const DecoderConfig&, int64_t layer) { return layer % 2 == 0; }
// SmolLM3's and Llama 4's layers without rotary positions: by default every fourth. With may_be_empty, an empty list
// also means the default.
ConfigField no_rope_layers(bool may_be_empty = false);
// The routers' balance loss, which is used if output_router_logits is true.
ConfigField router_loss();

// Sizes that all families have; the keys that Llama and its descendants share, and those without sizes; the biases of
// q, k, v and o.
ConfigFields sizes(const char* hidden = "hidden_size", const char* layers = "num_hidden_layers",
                   const char* heads = "num_attention_heads", const char* positions = "max_position_embeddings");
ConfigFields llama_fields(const ConfigFields& more, const RopeKeys& keys = {}, const char* activation = "hidden_act");
ConfigFields inner_fields(const RopeKeys& keys = {}, const char* activation = "hidden_act");
ConfigFields attention_bias();

// Completes the names of a layer's arrays: {"attn.q", "self_attn.q_proj"} becomes the rows of its kernel and bias.
std::vector<HuggingFaceName> layer_names(const std::vector<HuggingFaceName>& rows,
                                         const std::string& theirs = "model.layers.#.", bool transposed = true);
// Returns the rows of layers whose names end in _proj: {"attn.q", "self_attn.q_proj"} for "attn", "self_attn" and "q".
std::vector<HuggingFaceName> projections(const std::string& ours, const std::string& theirs,
                                         std::initializer_list<const char*> layers);
// The names of Llama's arrays.
std::vector<HuggingFaceName> llama_names(const DecoderConfig& c);

// One family: its defaults are transformers' defaults, except for the sizes that every config.json has.
struct Family {
  std::string architecture;  // LlamaForCausalLM
  DecoderConfig defaults;    // with the family's model_type
  ConfigFields fields;
  std::function<std::vector<HuggingFaceName>(const DecoderConfig& c)> names;
  int64_t num_key_value_heads = 0, head_dim = 0;  // if config.json has none; 0: as in `derived_sizes`
};

const std::vector<Family>& families();
// The rows of DeepSeek V3, gpt-oss, Llama 4 and Qwen 3 with experts.
std::vector<Family> expert_families();
// Returns the family of a model_type; nullptr if there is none.
const Family* find_family(std::string_view model_type);
// Returns the family of a model_type. Error (invalid_argument), by the given verb: there is none.
const Family& family_of(const char* verb, std::string_view model_type);
// Returns all model types, sorted, for errors.
std::string known_families();

}  // namespace tessera::nn::detail
