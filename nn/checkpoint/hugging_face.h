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

// Layouts of Hugging Face's decoders. The table maps the fields of a decoder to Hugging Face's names; N is a layer's
// number. T marks tensors that are transposed in the file: torch.nn.Linear stores (out, in), our kernels and GPT-2's
// Conv1D (in, out).
//
//   gpt2    embed.tokens, embed.positions        transformer.wte.weight, transformer.wpe.weight
//           layers.N.ln1.scale, .bias            transformer.h.N.ln_1.weight, .bias
//           layers.N.ln2.scale, .bias            transformer.h.N.ln_2.weight, .bias
//           final_ln.scale, .bias                transformer.ln_f.weight, .bias
//           final_norm.scale, .bias              transformer.ln_f.weight, .bias (another name of final_ln)
//           layers.N.attn.q, k, v .kernel        transformer.h.N.attn.c_attn.weight: concatenated along its columns
//           layers.N.attn.q, k, v .bias          transformer.h.N.attn.c_attn.bias: concatenated
//           layers.N.attn.o.kernel, .bias        transformer.h.N.attn.c_proj.weight, .bias
//           layers.N.mlp.up, down .kernel, .bias transformer.h.N.mlp.c_fc, c_proj .weight, .bias
//           head.kernel                          lm_head.weight T; if it is missing and tied, wte.weight T
//   llama   embed.tokens                         model.embed_tokens.weight
//           layers.N.norm1.scale, norm2.scale    model.layers.N.input_layernorm, post_attention_layernorm .weight
//           layers.N.attn.q, k, v, o .kernel     model.layers.N.self_attn.q_proj, k_proj, v_proj, o_proj .weight T
//           layers.N.attn.q, k, v, o .bias       model.layers.N.self_attn.q_proj, k_proj, v_proj, o_proj .bias
//           layers.N.attn.q_norm, k_norm .scale  model.layers.N.self_attn.q_norm, k_norm .weight
//           layers.N.mlp.gate, up, down .kernel  model.layers.N.mlp.gate_proj, up_proj, down_proj .weight T
//           layers.N.mlp.gate, up, down .bias    model.layers.N.mlp.gate_proj, up_proj, down_proj .bias
//           final_norm.scale                     model.norm.weight
//           head.kernel, if there is one         lm_head.weight T; if it is missing and tied, embed_tokens.weight T
//   gemma2  as llama, except
//           layers.N.attn_norm.scale             model.layers.N.post_attention_layernorm.weight
//           layers.N.norm2, mlp_norm .scale      model.layers.N.pre_, post_feedforward_layernorm.weight
//   mixtral as llama, except
//           layers.N.moe.router                  model.layers.N.block_sparse_moe.gate.weight T
//           layers.N.moe.gate, down, up          model.layers.N.block_sparse_moe.experts.E.w1, w2, w3 .weight T:
//                                                stacked over all experts E
//
// Head and embedding are tied in three cases:
//   the folder's config.json has "tie_word_embeddings": true
//   config.json lacks this key, and its family ties them by default (gpt2, gemma2)
//   there is no config.json
// The file of a tied model may lack the embedding instead of the head.
//
// The prefix transformer. may be missing, as in the files of gpt2 itself. Rotary positions pair the halves of a head in
// both libraries, so nothing is permuted.
enum class HuggingFaceLayout { gpt2, llama, gemma2, mixtral };

// The name of a parameter in a Hugging Face folder.
struct HuggingFaceName {
  std::string path;  // layers.2.attn.k.kernel
  std::string name;  // transformer.h.2.attn.c_attn.weight; * is an expert's number
  bool transposed = false;
  int64_t part = 0, parts = 1;  // index and number of equal parts of the tensor's last dimension
  std::string otherwise = {};   // name to use if `name` is missing
};

// Returns the names of all arrays of a model, in its order. Error (invalid_argument): a path that is not in the map.
std::vector<HuggingFaceName> hugging_face_names(HuggingFaceLayout layout, const Leaves& model);

// Loads a model's weights from a .safetensors file, from a folder with model.safetensors, or from a folder with several
// files and model.safetensors.index.json.
//   auto model = Gpt::init(Key(0), config);
//   nn::load_pretrained("gpt2", nn::HuggingFaceLayout::gpt2, nn::leaves(model), mesh_rules);
// Weights are cast to the parameters' element types. Placed parameters keep their sharding. Lazy initializers are
// placed by `place`, if given, and are not run. Only one tensor at a time is in memory unsharded. If `vocab` is given
// and smaller than the model's dimension "vocab", the files may have only `vocab` rows. The model's other rows become
// zeros. The model changes only after everything was read.
// Errors (invalid_file)
//   weights that are missing or have the wrong shape
//   weights that are left over (except masks and rotary frequencies, which are computed)
//   an lm_head that differs from the embedding, for a model without a head
//   a folder with two sets of weights, model.safetensors and model-0000k-of-0000n.safetensors
//   files model-0000k-of-0000n.safetensors that the index does not list
void load_pretrained(const std::filesystem::path& path, HuggingFaceLayout layout, const Leaves& model,
                     const std::optional<MeshRules>& place = {}, int64_t vocab = 0);

// Writes a model's weights to a folder, in files of at most `max_file_bytes` and an index, so that transformers'
// from_pretrained reads them together with a config.json. If the model has its own head, the config must have
// "tie_word_embeddings": false. If `vocab` is given, only that many rows of the dimension "vocab" are written.
// If arrays are on a mesh across processes, all processes must call this. Process 0 writes, each process holds one
// unsharded tensor at a time, and if writing fails, all throw. Otherwise every process that calls this writes the files
// itself: call it on one process.
// Error (invalid_file): the folder has .safetensors files of another save.
void save_pretrained(const std::filesystem::path& folder, HuggingFaceLayout layout, const Leaves& model,
                     int64_t max_file_bytes = int64_t{4} << 30, int64_t vocab = 0);

}  // namespace tessera::nn
