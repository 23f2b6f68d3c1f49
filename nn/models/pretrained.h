// from_pretrained: loads a decoder from a folder in Hugging Face's format; save_pretrained writes such a folder.
#pragma once

#include <filesystem>
#include <optional>

#include "nn/models/causal_lm.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

struct PretrainedOptions {
  DType dtype = float32;  // of the parameters; bfloat16 keeps what is stored so
};

// Reads config.json, makes the model, places it by the mesh rules, and reads the weights (load_pretrained,
// nn/checkpoint). The rules of decoder_rules shard any vocabulary; in custom rules, write Uneven::pad for a mesh axis
// that does not divide it. What is not supported is an error before any weight is read.
// Nothing is downloaded. Throws (invalid_file) if `folder` is not a folder; the message has the command that downloads
// one.
//   const MeshRules mesh_rules{mesh, nn::decoder_rules(mesh)};
//   auto model = nn::from_pretrained("Llama-3.2-1B", mesh_rules);
//   const Array logits = model(ids);
CausalLM from_pretrained(const std::filesystem::path& folder, const MeshRules& mesh_rules,
                         const PretrainedOptions& options = {});
// On no mesh.
CausalLM from_pretrained(const std::filesystem::path& folder, const PretrainedOptions& options = {});

// Writes config.json and the weights, without padding, so that transformers' AutoModelForCausalLM.from_pretrained reads
// them. With `from`, the folder that the model was read from, these files are copied from it: config.json, the
// tokenizer's (tokenizer.json, tokenizer_config, tokenizer.model, vocab, merges, added_tokens, special_tokens_map,
// chat_template), generation_config.json, README.md, LICENSE, NOTICE and USE_POLICY.md. No other file is copied: no
// Python code, and no key `auto_map` that names such code. Error (invalid_file) if one of the files is a link that
// leads out of the folder; links of a snapshot in a Hugging Face cache lead to its blobs. On processes and with large
// models as save_pretrained (nn/checkpoint/hugging_face.h).
void save_pretrained(const std::filesystem::path& folder, const CausalLM& model,
                     const std::optional<std::filesystem::path>& from = {});

}  // namespace tessera::nn
