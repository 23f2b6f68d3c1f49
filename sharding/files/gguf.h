// Writes GGUF files, which llama.cpp reads: metadata by key, and tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sharding/files/safetensors_writer.h"

namespace tessera {

// A value of the metadata, of the types that llama.cpp expects.
using GgufValue = std::variant<uint32_t, float, bool, std::string, std::vector<int32_t>, std::vector<float>,
                               std::vector<std::string>>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

// Returns the format's code of an element type. Error (invalid_argument): not float16, bfloat16 or float32.
uint32_t gguf_type(DType dtype);

// Writes a file of version 3 as write_safetensors does. Values are row-major. Names must have at most 63 bytes, as in
// ggml. Source: https://github.com/ggml-org/ggml (docs/gguf.md).
void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                const std::vector<TensorEntry>& tensors, const detail::BytesOfTensor& bytes_of);

}  // namespace tessera
