// The kinds of fields that config.json consists of: sizes, numbers, flags, activations, rotary positions and windows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "nn/models/families.h"

namespace tessera::nn::detail {

namespace {

namespace json = boost::json;

const std::map<std::string, Activation::Function>& activations() {
  static const std::map<std::string, Activation::Function> all{
      {"gelu_new", Activation::gelu},   {"gelu_pytorch_tanh", Activation::gelu},
      {"gelu", Activation::gelu_exact}, {"relu", Activation::relu},
      {"silu", Activation::silu},       {"swish", Activation::silu},
      {"tanh", Activation::tanh},       {"sigmoid", Activation::sigmoid}};
  return all;
}

Activation activation_in(const JsonPart& name) {
  const auto found = activations().find(name.text());
  if (found != activations().end()) return {found->second};
  std::vector<std::string> known;
  for (const auto& [other, function] : activations()) known.push_back(other);
  name.refuse_type(fmt::format("one of {}", fmt::join(known, ", ")));
}

// Returns transformers' name; "silu" for a function that it does not have.
std::string name_of(const Activation& activation) {
  if (activation.function == Activation::gelu) return "gelu_pytorch_tanh";
  for (const auto& [name, function] : activations())
    if (function == activation.function) return name;
  return "silu";
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

double attention_factor_in(const JsonPart& rope, double factor) {
  const auto length = [&](double mscale) { return tessera::detail::yarn_attention_factor(factor, mscale); };
  const double mine = rope.number("mscale", 0), all = rope.number("mscale_all_dim", 0);
  return rope.number("attention_factor", mine != 0 && all != 0 ? length(mine) / length(all) : length(1));
}

// Reads one number per frequency.
std::vector<double> factors_of(const JsonPart& list, int64_t dims) {
  std::vector<double> factors;
  for (const JsonPart& number : list.items()) factors.push_back(number.number());
  if (static_cast<int64_t>(factors.size()) != dims / 2)
    list.refuse(fmt::format("{} of them, expected {}, half of the head's size.", factors.size(), dims / 2));
  return factors;
}

// Returns the maximum length before rotary positions were scaled. As in transformers, original_max_position_embeddings
// of the config takes precedence over rope's; type dynamic ignores both.
double original_positions_of(const JsonPart& config, const JsonPart& rope, const std::string& type, int64_t positions,
                             int64_t otherwise) {
  constexpr const char* key = "original_max_position_embeddings";
  const auto all = static_cast<double>(positions);
  if (otherwise) return static_cast<double>(size_or(config, key, otherwise));
  return type == "dynamic" ? all : config.number(key, rope.number(key, all));
}

RotaryScaling scaling_of(const JsonPart& config, const JsonPart& rope, const RopeKeys& keys, int64_t positions,
                         int64_t dims) {
  std::string type = rope.text("rope_type", rope.text("type", "default"));
  if (type == "default") return {};
  const char* const type_key = rope.has("rope_type") ? "rope_type" : "type";
  if (type == "su" || (type == "yarn" && rope.has("short_factor"))) type = "longrope";  // of older folders of Phi-3
  if (keys.original_positions && type != "longrope") rope.at(type_key).refuse_type("default or longrope");
  RotaryScaling scaling{
      .factor = 1, .original_positions = original_positions_of(config, rope, type, positions, keys.original_positions)};
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
    scaling.attention_factor = attention_factor_in(rope, scaling.factor);
    scaling.truncate = rope.flag("truncate", true);
  } else if (type == "dynamic") {
    scaling.kind = RotaryScaling::dynamic, scaling.factor = above_zero(rope.at("factor"));
  } else if (type == "longrope") {
    scaling.kind = RotaryScaling::longrope, scaling.factor = above_zero_or(rope, "factor", stretch);
    scaling.short_factors = factors_of(rope.at("short_factor"), dims);
    scaling.long_factors = factors_of(rope.at("long_factor"), dims);
    if (rope.has("attention_factor")) scaling.attention_factor = rope.at("attention_factor").number();
  } else {
    rope.at(type_key).refuse_type("one of default, linear, llama3, yarn, dynamic, longrope");
  }
  return scaling;
}

// Returns the number of coordinates that are rotated, as in RotaryEmbedding: 0 for all.
int64_t rotary_dims(const JsonPart& config, const JsonPart& rope, const RopeKeys& keys, int64_t head_dim) {
  constexpr const char* key = "partial_rotary_factor";
  if (!keys.partial) {
    for (const JsonPart& part : {config, rope})
      if (part.number(key, 1) != 1) part.at(key).refuse("is not supported in this family, expected 1.");
    return 0;
  }
  const JsonPart& there = rope.has(key) ? rope : config;
  const char* name = rope.has(key) ? key : keys.partial;
  const double fraction = there.number(name, keys.fraction);
  const bool is_fraction = fraction > 0 && fraction <= 1;
  const auto dims =
      is_fraction ? static_cast<int64_t>(static_cast<double>(head_dim) * fraction) : 0;  // rounds down, as transformers
  if (dims < 2 || dims % 2)
    there.at(name).refuse(
        fmt::format("{} given, expected a fraction that is an even number of the {} coordinates.", fraction, head_dim));
  return dims == head_dim ? 0 : dims;
}

RotaryEmbedding rope_in(const JsonPart& config, const JsonPart& rope, const RopeKeys& keys, double base,
                        const DecoderConfig& c) {
  const int64_t dims = rotary_dims(config, rope, keys, c.head_dim);
  return {.base = above_zero_or(rope, "rope_theta", base),
          .dims = dims,
          .scaling = scaling_of(config, rope, keys, c.max_position_embeddings, dims ? dims : c.head_dim),
          .interleaved = c.rope.interleaved};
}

void read_rope(const JsonPart& config, const RopeKeys& keys, DecoderConfig& c) {
  const bool is_new = config.has("rope_parameters");
  if (is_new && config.has("rope_scaling"))
    config.at("rope_scaling").refuse("given together with rope_parameters, expected one of the two.");
  const JsonPart rope = config.at_or_null(is_new ? "rope_parameters" : "rope_scaling");
  const double base = above_zero_or(config, keys.theta, c.rope.base);
  if (rope.is_null() && c.rope.scaling.kind != RotaryScaling::none) {  // the family's default
    c.rope.base = base;
    return;
  }
  if (!keys.local_theta) {
    c.rope = rope_in(config, rope, keys, base, c);
    return;
  }
  const bool is_by_layer = rope.has("full_attention") || rope.has("sliding_attention");
  if (is_new && !is_by_layer)
    rope.refuse("the same for all layers, which transformers ignores. Give full_attention and sliding_attention.");
  c.rope = rope_in(config, is_by_layer ? rope.at_or_null("full_attention") : rope, keys, base, c);
  const double local_base = above_zero_or(config, keys.local_theta, c.local_rope->base);
  if (is_by_layer)
    c.local_rope = rope_in(config, rope.at_or_null("sliding_attention"), keys, local_base, c);
  else
    c.local_rope = RotaryEmbedding{.base = local_base, .interleaved = c.rope.interleaved};
}

// Returns the fraction of a head's coordinates that rotary_dims reads as `dims`, in spite of rounding.
double rotary_fraction(int64_t dims, int64_t head_dim) {
  const auto size = static_cast<double>(head_dim);
  const double fraction = static_cast<double>(dims) / size;
  return static_cast<int64_t>(size * fraction) == dims ? fraction : std::nextafter(fraction, 1.0);
}

// Returns a number of positions, as an integer if it is one.
json::value positions_value(double positions) {
  const auto whole = static_cast<int64_t>(positions);
  return static_cast<double>(whole) == positions ? json::value(whole) : json::value(positions);
}

json::object json_of(const RotaryEmbedding& rope, const RopeKeys& keys, int64_t head_dim) {
  const RotaryScaling& s = rope.scaling;
  constexpr const char* types[] = {"default", "linear", "llama3", "yarn", "dynamic", "longrope"};
  json::object all{{"rope_theta", rope.base}, {"rope_type", types[s.kind]}};
  if (keys.partial)
    all["partial_rotary_factor"] = rotary_fraction(rope.dims ? rope.dims : head_dim, head_dim);
  if (s.kind != RotaryScaling::none) all["factor"] = s.factor;
  if (s.kind == RotaryScaling::llama3) all["low_freq_factor"] = s.low_frequency;
  if (s.kind == RotaryScaling::llama3) all["high_freq_factor"] = s.high_frequency;
  const bool is_yarn = s.kind == RotaryScaling::yarn, is_longrope = s.kind == RotaryScaling::longrope;
  if (s.original_positions > 0 && (is_yarn || is_longrope || s.kind == RotaryScaling::llama3))
    all["original_max_position_embeddings"] = positions_value(s.original_positions);
  if (is_longrope && s.attention_factor) all["attention_factor"] = *s.attention_factor;
  if (is_yarn)
    all["attention_factor"] = s.attention_factor.value_or(tessera::detail::yarn_attention_factor(s.factor));
  if (is_longrope)
    all["short_factor"] = json::value_from(s.short_factors), all["long_factor"] = json::value_from(s.long_factors);
  if (is_yarn) all["beta_fast"] = s.beta_fast, all["beta_slow"] = s.beta_slow, all["truncate"] = s.truncate;
  return all;
}

void write_rope(const DecoderConfig& c, const RopeKeys& keys, json::object& all) {
  const json::object mine = json_of(c.rope, keys, c.head_dim);
  all["rope_parameters"] = mine;
  if (keys.original_positions && c.rope.scaling.original_positions > 0)
    all["original_max_position_embeddings"] = positions_value(c.rope.scaling.original_positions);
  if (keys.local_theta)
    all["rope_parameters"] = json::object{
        {"full_attention", mine}, {"sliding_attention", json_of(c.local_rope.value_or(c.rope), keys, c.head_dim)}};
}

// ---- windows

// Reads layer_types: which layers have a window.
void read_layer_types(const JsonPart& types, int64_t size, DecoderConfig& c) {
  if (static_cast<int64_t>(types.length()) != c.num_hidden_layers)
    types.refuse(fmt::format("{} of them, expected {}.", types.length(), c.num_hidden_layers));
  for (size_t i = 0; i < types.length(); ++i) {
    const std::string type = types.item(i).text();
    if (type != "full_attention" && type != "sliding_attention")
      types.item(i).refuse_type("full_attention or sliding_attention");
    c.windows[i] = type == "sliding_attention" ? size : 0;
  }
}

void read_windows(const JsonPart& config, const WindowKeys& keys, DecoderConfig& c) {
  constexpr const char* key = "sliding_window";
  const bool is_none = config.names(key) ? !config.has(key) : keys.size == 0;
  if (is_none || (keys.has_switch && !config.flag("use_sliding_window", false))) {
    if (keys.has_layer_types && config.has("layer_types"))
      for (const JsonPart& type : config.at("layer_types").items())
        if (type.text() == "sliding_attention") type.refuse("given without a sliding_window, expected full_attention.");
    return;
  }
  const int64_t size = config.integer(key, keys.size);
  if (size < 1) config.at(key).refuse_type("1 or more");
  c.windows.assign(static_cast<size_t>(c.num_hidden_layers), 0);
  for (int64_t i = 0; i < c.num_hidden_layers; ++i)
    if (!keys.has || keys.has(config, c, i)) c.windows[static_cast<size_t>(i)] = size;
  if (!config.has("layer_types")) return;
  const std::vector<int64_t> of_family = c.windows;
  read_layer_types(config.at("layer_types"), size, c);
  if (!keys.has_layer_types && c.windows != of_family)  // transformers ignores the key
    config.at("layer_types").refuse("is not supported in this family, expected the type that all its layers have.");
}

void write_windows(const DecoderConfig& c, const WindowKeys& keys, json::object& all) {
  const int64_t window = c.windows.empty() ? 0 : *std::max_element(c.windows.begin(), c.windows.end());
  // transformers requires a number in families without a switch, also if no layer uses it.
  const bool needs_number = keys.has_layer_types && !keys.has_switch && keys.size;
  all["sliding_window"] = window ? json::value(window) : needs_number ? json::value(keys.size) : json::value(nullptr);
  if (keys.has_switch) all["use_sliding_window"] = window != 0;
  if (!keys.has_layer_types) return;
  json::array types;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i)
    types.push_back(c.sliding_window(i) ? "sliding_attention" : "full_attention");
  all["layer_types"] = types;
}

// Returns the field of a member that `read` reads from a value other than null, and `write` writes.
template <class T, class Read, class Write>
ConfigField member_field(const char* key, T DecoderConfig::*member, Read read, Write write) {
  return {key,
          [=](const JsonPart& config, DecoderConfig& c) {
            if (config.has(key)) c.*member = read(config.at(key));
          },
          [=](const DecoderConfig& c, json::object& all) { all[key] = write(c.*member); }};
}

}  // namespace

int64_t size_or(const JsonPart& config, const char* key, int64_t otherwise) {
  return config.has(key) ? config.at(key).integer(1, max_decoder_size) : otherwise;
}

ConfigField field(const char* key, int64_t DecoderConfig::*member, int64_t most) {
  ConfigField size = member_field(
      key, member, [=](const JsonPart& part) { return part.integer(1, most); }, [](int64_t n) { return n; });
  size.write = [=, write = size.write](const DecoderConfig& c, json::object& all) {
    if (c.*member) write(c, all);
  };
  size.is_size = true;
  return size;
}
ConfigField field(const char* key, double DecoderConfig::*member) {
  return member_field(key, member, above_zero, [](double x) { return x; });
}
ConfigField field(const char* key, bool DecoderConfig::*member) {
  return member_field(
      key, member, [](const JsonPart& part) { return part.flag(); }, [](bool is) { return is; });
}
ConfigField field(const char* key, Activation DecoderConfig::*member) {
  return member_field(key, member, activation_in, [](const Activation& a) { return name_of(a); });
}

ConfigField required(ConfigField given) {
  given.is_required = true;
  return given;
}

ConfigField nullable(const char* key, int64_t DecoderConfig::*member) {
  ConfigField size = field(key, member);
  size.read = [=, read = size.read](const JsonPart& config, DecoderConfig& c) {
    if (config.names(key)) c.*member = 0;
    read(config, c);
  };
  size.write = [=](const DecoderConfig& c, json::object& all) {
    all[key] = c.*member ? json::value(c.*member) : json::value(nullptr);
  };
  return size;
}

ConfigField cap(const char* key, double DecoderConfig::*member) {
  return {key,
          [=](const JsonPart& config, DecoderConfig& c) {
            if (config.names(key)) c.*member = config.number(key, 0);
          },
          [=](const DecoderConfig& c, json::object& all) {
            all[key] = c.*member == 0 ? json::value(nullptr) : json::value(c.*member);
          }};
}

ConfigField only(const char* key, const json::value& value) {
  return {key, [=](const JsonPart& config, DecoderConfig&) {
            if (!config.has(key)) return;
            const JsonPart given = config.at(key);
            const bool is_same = value.is_number() ? given.number() == value.to_number<double>() : given.value == value;
            if (!is_same) given.refuse_type(fmt::format("only {}", json::serialize(value)));
          }};
}

ConfigField derived_sizes() {
  return {.read = [](const JsonPart& config, DecoderConfig& c) {
    if (c.num_key_value_heads == 0) c.num_key_value_heads = c.num_attention_heads;
    if (c.intermediate_size == 0) c.intermediate_size = 4 * c.hidden_size;
    if (c.head_dim) return;
    if (c.hidden_size % c.num_attention_heads)
      config.refuse(fmt::format("{} heads do not divide {} features, and no head_dim is given.", c.num_attention_heads,
                                c.hidden_size));
    c.head_dim = c.hidden_size / c.num_attention_heads;
  }};
}

ConfigField rope(const RopeKeys& keys) {
  return {.read = [=](const JsonPart& config, DecoderConfig& c) { read_rope(config, keys, c); },
          .write = [=](const DecoderConfig& c, json::object& all) { write_rope(c, keys, all); }};
}

ConfigField windows(const WindowKeys& keys) {
  return {.read =
              [=](const JsonPart& config, DecoderConfig& c) {
                read_windows(config, keys, c);
                if (std::all_of(c.windows.begin(), c.windows.end(), [](int64_t w) { return w == 0; }))
                  c.windows.clear();
              },
          .write = [=](const DecoderConfig& c, json::object& all) { write_windows(c, keys, all); }};
}

}  // namespace tessera::nn::detail
