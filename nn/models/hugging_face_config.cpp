// Reads and writes config.json by the table of families, field by field.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "nn/checkpoint/weight_files.h"
#include "nn/models/families.h"
#include "nn/tree/tree_equal.h"
#include "sharding/base/fail.h"
#include "sharding/files/json.h"

namespace tessera::nn {

namespace {

namespace json = boost::json;
using detail::Family;
using tessera::detail::JsonPart;

// Returns the family of a config.json.
const Family& family_in(const JsonPart& config) {
  const JsonPart type = config.at("model_type");
  const Family* family = detail::find_family(type.text());
  if (!family) type.refuse_type(fmt::format("one of {}", detail::known_families()));
  return *family;
}

// Throws if keys are missing, and lists all of them.
void check_required(const JsonPart& config, const Family& family) {
  std::vector<std::string> missing;
  for (const detail::ConfigField& field : family.fields)
    if (field.is_required && !config.has(field.key)) missing.push_back(fmt::format("\"{}\"", field.key));
  if (!missing.empty()) config.refuse(fmt::format("has no {}.", fmt::join(missing, ", ")));
}

DecoderConfig config_in(const JsonPart& config) {
  const Family& family = family_in(config);
  if (config.has("quantization_config"))
    config.at("quantization_config")
        .refuse("quantized weights are not supported. Give the folder of the weights in a floating type.");
  check_required(config, family);
  DecoderConfig c = family.defaults;
  c.num_key_value_heads = family.num_key_value_heads, c.head_dim = family.head_dim;
  for (const detail::ConfigField& field : family.fields) field.read(config, c);
  return c;
}

// Returns a config in a normal form: configs that compute the same become equal.
DecoderConfig normal(DecoderConfig c) {
  const auto remove_if_all = [](std::vector<int64_t>& values, int64_t value) {
    if (std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == value; })) values.clear();
  };
  remove_if_all(c.windows, 0), remove_if_all(c.no_rope_layers, 1), remove_if_all(c.moe_layers, 1);
  c.attention_scale = c.scale_of_attention();
  RotaryScaling& scaling = c.rope.scaling;
  if (scaling.kind == RotaryScaling::none) scaling = {};
  if (scaling.kind == RotaryScaling::linear) scaling.original_positions = 0;
  if (scaling.kind == RotaryScaling::yarn && !scaling.attention_factor)
    scaling.attention_factor = tessera::detail::yarn_attention_factor(scaling.factor);
  c.vocab_rows = 0, c.dtypes = {};
  return c;
}

// Reads back a config.json that was written.
DecoderConfig read_back(const std::string& text) {
  try {
    return config_from_hugging_face(text, "config.json");
  } catch (const Error& error) {
    fail(ErrorKind::invalid_argument, "save_pretrained", "the config could not be read: {}", error.what());
  }
}

// Throws unless the text, read back, gives the same config.
void check_expresses(const std::string& text, const DecoderConfig& given) {
  DecoderConfig read = normal(read_back(text));
  const DecoderConfig c = normal(given);
  const auto ignore_rounding = [](double& a, double b) {
    if (std::abs(a - b) <= 1e-9 * std::abs(b)) a = b;  // of a reciprocal or a root, as config.json may have it
  };
  ignore_rounding(*read.attention_scale, *c.attention_scale), ignore_rounding(read.logits_scaling, c.logits_scaling);
  const std::string difference = tree_difference(read, c);
  if (!difference.empty())
    fail(ErrorKind::invalid_argument, "save_pretrained",
         "{}: the config of transformers' {} cannot express the value that it has here.",
         difference.substr(0, difference.find(':')), c.model_type);
}

}  // namespace

DecoderConfig config_from_hugging_face(std::string_view text, std::string_view name) {
  const json::value whole = parse_json(text, "from_pretrained", name), value = detail::text_config(whole);
  const JsonPart config{value, std::string(name) + (detail::is_multimodal(whole) ? ": text_config" : ""),
                        "from_pretrained"};
  const DecoderConfig c = config_in(config);
  try {
    check(c);
  } catch (const Error& error) {
    config.refuse(error.what());
  }
  return c;
}

std::string config_to_hugging_face(const DecoderConfig& c, DType dtype) {
  const Family& family = detail::family_of("save_pretrained", c.model_type);
  check(c);
  json::object all;
  for (const detail::ConfigField& field : family.fields) field.write(c, all);
  all["pad_token_id"] = nullptr;  // the family's own can be above the vocabulary
  all["architectures"] = json::array{family.architecture};
  all["model_type"] = c.model_type;
  all["dtype"] = std::string(tessera::name_of(dtype));
  const std::string text = json::serialize(all) + "\n";
  check_expresses(text, c);
  return text;
}

DecoderConfig config_of_family(std::string_view model_type, const DecoderConfig& sizes) {
  const Family& family = detail::family_of("config_of_family", model_type);
  DecoderConfig rest = sizes;
  json::object all{{"model_type", std::string(model_type)}};
  for (const detail::ConfigField& field : family.fields)
    if (field.is_size) field.write(sizes, all);
  for (int64_t DecoderConfig::*size :
       {&DecoderConfig::vocab_size, &DecoderConfig::hidden_size, &DecoderConfig::num_hidden_layers,
        &DecoderConfig::num_attention_heads, &DecoderConfig::num_key_value_heads, &DecoderConfig::head_dim,
        &DecoderConfig::intermediate_size, &DecoderConfig::max_position_embeddings, &DecoderConfig::num_local_experts,
        &DecoderConfig::num_experts_per_tok, &DecoderConfig::vocab_rows})
    rest.*size = DecoderConfig{}.*size;
  rest.dtypes = {};
  if (const std::string other = tree_difference(rest, DecoderConfig{}); !other.empty())
    fail(ErrorKind::invalid_argument, "config_of_family", "{}: given with the sizes. Set it in the result.",
         other.substr(0, other.find(':')));
  check(sizes);
  try {
    const json::value value(all);
    DecoderConfig c = config_in(JsonPart{value, "sizes", "config_of_family"});
    c.vocab_rows = sizes.vocab_rows, c.dtypes = sizes.dtypes;
    check(c);
    return c;
  } catch (const Error& error) {
    fail(ErrorKind::invalid_argument, "config_of_family", "{}", error.what());
  }
}

}  // namespace tessera::nn
