// The parts of save_gguf: the file format, and the conversion of a tokenizer to its metadata.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "sharding/files/safetensors_writer.h"

namespace tessera::nn::detail {

inline constexpr const char* gguf_verb = "save_gguf";  // names the caller in errors

// A value of the metadata, of the types that llama.cpp expects.
using GgufValue = std::variant<uint32_t, float, bool, std::string, std::vector<int32_t>, std::vector<float>,
                               std::vector<std::string>>;
using GgufMetadata = std::vector<std::pair<std::string, GgufValue>>;

// Returns the format's code of an element type. Error (invalid_argument): not float16, bfloat16 or float32.
uint32_t gguf_type(DType dtype);

// Writes a file of version 3 as write_safetensors does. Values are row-major. Names must have at most 63 bytes, as in
// ggml. Source: https://github.com/ggml-org/ggml (docs/gguf.md).
void write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
                const std::vector<TensorEntry>& tensors, const tessera::detail::BytesOfTensor& bytes_of);

// Returns the keys tokenizer.* for llama.cpp, from a tokenizer.json or its folder, and from tokenizer_config.json,
// config.json and the chat template next to it. A vocabulary smaller than `vocab_size` is padded with unused tokens.
// Errors (invalid_file)
//   a tokenizer that llama.cpp would apply differently, or of an unknown kind
//   an id that is not below `vocab_size`
//   no end-of-text token
GgufMetadata gguf_tokenizer(const std::filesystem::path& tokenizer, int64_t vocab_size);

}  // namespace tessera::nn::detail
