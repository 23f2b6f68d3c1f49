// The contents of a file transformer_*.json and its tensors, in the library's types.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "examples/transformer.h"
#include "sharding/files/safetensors.h"
#include "sharding/placement/mesh_rules.h"
#include "tests/runner/reference_values.h"

namespace tessera::runner {

Shape shape_of(const Json& value);
Mesh mesh_of(const Json& value, bool private_replicas);
Rules rules_of(const Json& value);
examples::GptConfig gpt_config(const Json& config);
nn::DecoderConfig llama_config(const Json& config);

struct TokenBatch {
  NamedArray inputs{"batch", none};
  NamedArray targets{"batch", none};
};

// A file of strategies, with the numbers that each must reproduce. If it has no numbers, they are in its model's file,
// which is in the same folder or in the project's.
struct TransformerFile {
  Json strategies;  // mesh, rules and shardings by name
  Json numbers;  // losses, norms, ... by step
  SafetensorsFile tensors;

  static TransformerFile open(const std::filesystem::path& file);

  const Json& config() const { return numbers.at("config"); }
  std::string kind() const { return std::string(config().at("kind").as_string()); }
  size_t steps() const { return numbers.at("loss").as_array().size(); }
  // numbers[key][step]
  double number(const char* key, size_t step) const { return numbers.at(key).at(step).to_number<double>(); }
  // A tensor's values in row-major order, or the tensor as an Array.
  std::vector<float> floats(const std::string& name) const { return array(name).to_host<float>(); }
  Array array(const std::string& name) const { return tensors.array(name); }
  TokenBatch batch(size_t step) const;
};

}  // namespace tessera::runner
