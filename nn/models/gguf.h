// save_gguf, which writes a decoder and its tokenizer to one file that llama.cpp serves.
#pragma once

#include <filesystem>
#include <optional>

#include "nn/models/causal_lm.h"

namespace tessera::nn {

struct GgufOptions {
  // Element type of matrices: float16, bfloat16 or float32; default: the parameters'. Vectors are stored as float32.
  std::optional<DType> dtype = {};
  // A tokenizer.json or its folder. tokenizer_config.json, config.json and a chat template next to it are read too.
  // Without one, the file has token ids only.
  std::optional<std::filesystem::path> tokenizer = {};
};

// Writes a GGUF file with the keys and tensor names of llama.cpp's convert_hf_to_gguf.py.
//   nn::save_gguf("tuned.gguf", model, {.dtype = bfloat16, .tokenizer = "Llama-3.2-1B"});
// llama-quantize reduces such a file to 8 bits or less. If arrays are on a mesh across processes, all processes must
// call this; process 0 writes. Each holds one unsharded tensor at a time.
//
// The families are gpt2, llama, mistral, qwen2, qwen3, gemma, gemma2 and gemma3_text. llama.cpp has windows only for
// Gemma. For the other families, the context length is the smallest window, so that results are equal.
// Errors
//   invalid_argument: another family, an option that llama.cpp computes differently, LoRA adapters (call merge_lora
//     first), or a value that float16 cannot hold
//   invalid_file: a tokenizer that llama.cpp would apply differently (the message has the place), a file that cannot be
//     written, or anything but a GGUF file at the path
void save_gguf(const std::filesystem::path& file, const CausalLM& model, const GgufOptions& options = {});

// Throws invalid_file if anything but a GGUF file is at the path. save_gguf also checks this; call it
// before a long training.
void check_gguf_path(const std::filesystem::path& file);

}  // namespace tessera::nn
