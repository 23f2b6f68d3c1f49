// gguf_tokenizer, which converts a folder's tokenizer to the metadata of a GGUF file.
#pragma once

#include <cstdint>
#include <filesystem>

#include "sharding/files/gguf.h"

namespace tessera::nn {

inline constexpr const char* gguf_verb = "save_gguf";  // names the caller in errors

// Returns the keys tokenizer.* for llama.cpp, from a tokenizer.json or its folder, and from tokenizer_config.json,
// config.json and the chat template next to it. A vocabulary smaller than `vocab_size` is padded with unused tokens.
// Errors (invalid_file)
//   a tokenizer that llama.cpp would apply differently, or of an unknown kind
//   an id that is not below `vocab_size`
//   no end-of-text token
GgufMetadata gguf_tokenizer(const std::filesystem::path& tokenizer, int64_t vocab_size);

}  // namespace tessera::nn
