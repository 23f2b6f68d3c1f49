// Weights of Hugging Face's decoders: reads them into models of this library, and writes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// A part of a tensor that several parameters share. The tensor's last dimension, after a transposition, has `groups`
// groups of `blocks` blocks of equal size. The parameter has `count` blocks of each group, from block `begin` on.
//   GPT-2's attn.c_attn             {1, 3, 1, 1}: k is the second third
//   GPT-NeoX's query_key_value      {heads, 3, 1, 1}: k is the second third of each head
//   gpt-oss's gate_up_proj          {hidden, 2, 1, 1}: up has the odd columns
struct FusedPart {
  int64_t groups = 1, blocks = 1, begin = 0, count = 1;
};

// The name of a parameter in a Hugging Face folder.
struct HuggingFaceName {
  std::string path;         // layers.#.attn.k.kernel; # is a layer's number
  std::string name;         // transformer.h.#.attn.c_attn.weight; * is an expert's number: one tensor for each
  bool transposed = false;  // torch.nn.Linear stores (out, in), our kernels and GPT-2's Conv1D (in, out)
  FusedPart part = {};
  std::string otherwise = {};  // name to use if `name` is missing
};

// Hugging Face's names of the parameters of a kind of model. hugging_face_names of nn/models/pretrained.h returns the
// tables of the families of CausalLM, which fit any model whose fields have the same paths:
//   embed.tokens, embed.positions
//   layers.N.norm1, norm2, attn_norm, mlp_norm .scale, .bias
//   layers.N.attn.q, k, v, o .kernel, .bias and layers.N.attn.q_norm, k_norm .scale and layers.N.attn.sinks
//   with latent attention layers.N.attn.q_down, q, kv_down, kv_up, o .kernel, .bias and q_norm, kv_norm .scale
//   layers.N.mlp.gate, up, down .kernel, .bias
//   with experts layers.N.mlp.router, gate, up, down, their biases router_bias, gate_bias, up_bias, down_bias, the bias
//     of the choice layers.N.mlp.bias, and layers.N.mlp.shared.gate, up, down .kernel
//   final_norm.scale, .bias
//   head.kernel: if it is missing and tied, the embedding
//
// Head and embedding are tied in three cases:
//   the folder's config.json has "tie_word_embeddings": true
//   config.json lacks this key, and the family ties them by default (`tied`)
//   there is no config.json
// The file of a tied model may lack the embedding instead of the head. The names of a file may have other prefixes:
// nn/checkpoint/weight_files.h lists them.
struct HuggingFaceNames {
  std::string model_type;
  std::vector<HuggingFaceName> rows;
  bool tied = false;
};

// Returns the names of all arrays of a model, in its order, with its layers' numbers. Error (invalid_argument): a path
// that is not in the table.
std::vector<HuggingFaceName> hugging_face_names(const HuggingFaceNames& table, const Leaves& model);

// Loads a model's weights from a .safetensors file, from a folder with model.safetensors, or from a folder with several
// files and model.safetensors.index.json.
//   auto model = Gpt::init(Key(0), config);
//   nn::load_pretrained("gpt2", nn::hugging_face_names({.model_type = "gpt2"}), nn::leaves(model), mesh_rules);
// Weights are cast to the parameters' element types. Placed parameters keep their sharding. Lazy initializers are
// placed by `place`, if given, and are not run. Only one tensor at a time is in memory unsharded. If `vocab` is given
// and smaller than the model's dimension "vocab", the files may have only `vocab` rows. The model's other rows become
// zeros. If `adapter` is given, the folder of a LoRA adapter of PEFT, its matrices are added to the weights. The model
// changes only after everything was read.
// Errors (invalid_file)
//   weights that are missing or have the wrong shape
//   weights that are left over (except masks and rotary frequencies, which are computed)
//   an lm_head that differs from the embedding, for a model without a head
//   a folder with two sets of weights, model.safetensors and model-0000k-of-0000n.safetensors
//   files model-0000k-of-0000n.safetensors that the index does not list, or files of the index that are missing
//   a folder with weights in other formats only; the message names one and has the conversion
//   an adapter that is not LoRA, or that changes anything except the weights of the model's layers
void load_pretrained(const std::filesystem::path& path, const HuggingFaceNames& names, const Leaves& model,
                     const std::optional<MeshRules>& place = {}, int64_t vocab = 0,
                     const std::optional<std::filesystem::path>& adapter = {});

// Writes a model's weights to a folder, in files of at most `max_file_bytes` and an index, so that transformers'
// from_pretrained reads them together with a config.json. If the model has its own head, the config must have
// "tie_word_embeddings": false. If `vocab` is given, only that many rows of the dimension "vocab" are written.
// If arrays are on a mesh across processes, all processes must call this. Process 0 writes, each process holds one
// unsharded tensor at a time, and if writing fails, all throw. Otherwise every process that calls this writes the files
// itself: call it on one process.
// Error (invalid_file): the folder has .safetensors files of another save.
void save_pretrained(const std::filesystem::path& folder, const HuggingFaceNames& names, const Leaves& model,
                     int64_t max_file_bytes = int64_t{4} << 30, int64_t vocab = 0);
// Throws the same error as save_pretrained, but does not write. Call it before a long training.
void check_save_pretrained(const std::filesystem::path& folder, const HuggingFaceNames& names, const Leaves& model,
                           int64_t max_file_bytes = int64_t{4} << 30, int64_t vocab = 0);

}  // namespace tessera::nn
