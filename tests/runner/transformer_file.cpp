// Reads transformer_*.json.
#include "tests/runner/transformer_file.h"

#include "sharding/files/json.h"

namespace tessera::runner {
namespace {

std::string text(const Json& value) { return std::string(value.as_string()); }
int64_t integer(const Json& object, const char* key) { return object.at(key).to_number<int64_t>(); }
double number_of(const Json& object, const char* key) { return object.at(key).to_number<double>(); }

std::filesystem::path numbers_of(const std::filesystem::path& file, const Json& strategies) {
  if (strategies.as_object().contains("loss")) return file;
  const std::string name = "transformer_" + text(strategies.at("config").at("kind")) + ".json";
  const std::filesystem::path beside = file.parent_path() / name;
  return std::filesystem::exists(beside) ? beside : std::filesystem::path(TESSERA_REFERENCE_DIR) / name;
}

}  // namespace

Shape shape_of(const Json& value) {
  Shape shape;
  for (const Json& size : value.as_array()) shape.push_back(size.to_number<int64_t>());
  return shape;
}

Mesh mesh_of(const Json& value, bool private_replicas) {
  std::vector<MeshAxis> axes;
  for (const Json& axis : value.at("axes").as_array())
    axes.push_back({text(axis.at(0)), axis.at(1).to_number<int64_t>()});
  MeshOptions options{.private_replicas = private_replicas};
  for (const Json& id : value.at("device_ids").as_array()) options.devices.push_back(id.to_number<int>());
  return make_mesh(std::move(axes), std::move(options));
}

Rules rules_of(const Json& value) {
  Rules rules;
  for (const auto& [name, axes] : value.as_object()) rules.push_back(Rule(std::string(name), names_of(axes)));
  return examples::with_all_names(std::move(rules));
}

examples::GptConfig gpt_config(const Json& c) {
  return {.vocab = integer(c, "vocab"),
          .embed = integer(c, "d"),
          .heads = integer(c, "heads"),
          .layers = integer(c, "layers"),
          .seq = integer(c, "seq"),
          .mlp = integer(c, "mlp"),
          .eps = number_of(c, "eps")};
}

nn::DecoderConfig llama_config(const Json& c) {
  return {.vocab_size = integer(c, "vocab"),
          .hidden_size = integer(c, "d"),
          .num_hidden_layers = integer(c, "layers"),
          .num_attention_heads = integer(c, "heads"),
          .num_key_value_heads = integer(c, "kv_heads"),
          .head_dim = integer(c, "d") / integer(c, "heads"),
          .intermediate_size = integer(c, "mlp"),
          .rms_norm_eps = number_of(c, "eps"),
          .rope = {.base = number_of(c, "rope_base")},
          .tie_word_embeddings = true};
}

TransformerFile TransformerFile::open(const std::filesystem::path& file) {
  Json strategies = parse_json_file(file);
  const std::filesystem::path numbers = numbers_of(file, strategies);
  return {std::move(strategies), parse_json_file(numbers),
          SafetensorsFile::open(std::filesystem::path(numbers).replace_extension(".safetensors"))};
}

TokenBatch TransformerFile::batch(size_t step) const {
  const Array all = array("tokens");
  const int64_t rows = all.shape(1), width = all.shape(2);
  const std::vector<int32_t> tokens = all.to_host<int32_t>();
  const auto* begin = tokens.data() + static_cast<int64_t>(step) * rows * width;
  std::vector<int32_t> inputs, targets;
  for (int64_t r = 0; r < rows; ++r) {
    inputs.insert(inputs.end(), begin + r * width, begin + (r + 1) * width - 1);
    targets.insert(targets.end(), begin + r * width + 1, begin + (r + 1) * width);
  }
  TokenBatch batch;
  batch.inputs = tessera::array<int32_t>(inputs, {rows, width - 1});
  batch.targets = tessera::array<int32_t>(targets, {rows, width - 1});
  return batch;
}

}  // namespace tessera::runner
