// from_pretrained, which loads a decoder from a folder in Hugging Face's format, and save_pretrained, which writes one.
#pragma once

#include <filesystem>
#include <optional>

#include "nn/checkpoint/hugging_face.h"
#include "nn/models/causal_lm.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// Returns the tensor names of a config's family, for load_pretrained and save_pretrained of nn/checkpoint. Only
// model_type and the numbers of heads matter. Error (invalid_argument): an unknown model_type.
HuggingFaceNames hugging_face_names(const DecoderConfig& config);

struct PretrainedOptions {
  DType dtype = float32;  // element type of the parameters; bfloat16 keeps weights that are stored as bfloat16
  std::optional<std::filesystem::path> adapter = {};  // folder of a PEFT LoRA adapter, which is merged into the weights
};

// Loads a decoder from a folder: reads config.json, makes the model, places it by the mesh rules, and reads the weights
// (load_pretrained, nn/checkpoint). Nothing is downloaded.
//   const MeshRules mesh_rules{mesh, nn::decoder_rules(mesh)};
//   auto model = nn::from_pretrained("Llama-3.2-1B", mesh_rules);
//   const Array logits = model(ids);
// The rules of decoder_rules shard any vocabulary. In custom rules, write Uneven::pad for a mesh axis that does not
// divide it.
// If the model is multimodal (its config.json has text_config), its decoder is read. The tensors of its vision and
// audio parts are left out, and save_pretrained writes a folder of the decoder alone.
// Errors (invalid_file)
//   a config with an unsupported option, before any weight is read
//   no folder; the message has the command that downloads a model
//   another folder: a PEFT adapter, a folder of the Hugging Face cache, weights in another format; the message explains
//     which
//   the errors of load_pretrained
CausalLM from_pretrained(const std::filesystem::path& folder, const MeshRules& mesh_rules,
                         const PretrainedOptions& options = {});
// Loads a decoder without a mesh.
CausalLM from_pretrained(const std::filesystem::path& folder, const PretrainedOptions& options = {});

// Writes config.json and the weights, without padding, so that transformers' AutoModelForCausalLM.from_pretrained reads
// them. For several processes and large models, see save_pretrained in nn/checkpoint/hugging_face.h.
// `from` is the folder that the model was read from. These of its files are copied:
//   config.json, generation_config.json
//   tokenizer.json, tokenizer_config, tokenizer.model, vocab, merges, added_tokens, special_tokens_map, chat_template
//   README.md, LICENSE, NOTICE, USE_POLICY.md
// No other file is copied: no Python code, and no key `auto_map` that names such code.
// Files of the same names in `folder` are replaced.
// Errors
//   invalid_argument: `from` has the config of another model; an option that transformers' config of the family cannot
//     express; LoRA adapters (call merge_lora first)
//   invalid_file: a file of `from` is a link that leads out of the folder (links of a snapshot in a Hugging Face cache
//     may lead to its blobs); `folder` has weights of another save, or the config of another model
void save_pretrained(const std::filesystem::path& folder, const CausalLM& model,
                     const std::optional<std::filesystem::path>& from = {});

// Throws the errors of save_pretrained about the config, `from`, and another model in `folder`, but does not write.
// Call it before a long training. All processes that hold the model must call it.
void check_save_pretrained(const std::filesystem::path& folder, const CausalLM& model,
                           const std::optional<std::filesystem::path>& from = {});

}  // namespace tessera::nn
