// Weights in the layouts of Hugging Face's decoders, read into our models and written from them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/placement/mesh_rules.h"

namespace tessera::nn {

// Hugging Face's names for the parameters of a decoder whose fields are called as below; N is a layer's number. T
// marks tensors that are transposed there: torch.nn.Linear keeps (out, in), our kernels and GPT-2's Conv1D (in, out).
//
//   gpt2    embed.tokens, embed.positions        transformer.wte.weight, transformer.wpe.weight
//           layers.N.ln1.scale, .bias            transformer.h.N.ln_1.weight, .bias; so ln2, and final_ln as ln_f
//           layers.N.attn.q, k, v .kernel        transformer.h.N.attn.c_attn.weight: one after another in its columns
//           layers.N.attn.q, k, v .bias          transformer.h.N.attn.c_attn.bias, likewise
//           layers.N.attn.o.kernel, .bias        transformer.h.N.attn.c_proj.weight, .bias
//           layers.N.mlp.up, down .kernel, .bias transformer.h.N.mlp.c_fc, c_proj .weight, .bias
//           head.kernel                          lm_head.weight T; if it is missing and tied, wte.weight T
//           final_norm                           as final_ln
//   llama   embed.tokens                         model.embed_tokens.weight
//           layers.N.norm1.scale, norm2.scale    model.layers.N.input_layernorm, post_attention_layernorm .weight
//           layers.N.attn.q, k, v, o .kernel     model.layers.N.self_attn.q_proj, k_proj, v_proj, o_proj .weight T
//           layers.N.attn.q, k, v, o .bias       model.layers.N.self_attn.q_proj, k_proj, v_proj, o_proj .bias
//           layers.N.attn.q_norm, k_norm .scale  model.layers.N.self_attn.q_norm, k_norm .weight
//           layers.N.mlp.gate, up, down .kernel  model.layers.N.mlp.gate_proj, up_proj, down_proj .weight T; so .bias
//           final_norm.scale                     model.norm.weight
//           head.kernel, if there is one         lm_head.weight T; if it is missing and tied, embed_tokens.weight T
//   gemma2  as llama, but for
//           layers.N.attn_norm.scale             model.layers.N.post_attention_layernorm.weight
//           layers.N.norm2, mlp_norm .scale      model.layers.N.pre_, post_feedforward_layernorm.weight
//   mixtral as llama, but for
//           layers.N.moe.router                  model.layers.N.block_sparse_moe.gate.weight T
//           layers.N.moe.gate, down, up          model.layers.N.block_sparse_moe.experts.E.w1, w2, w3 .weight T: those
//                                                of all experts E, stacked
//
// Head and embedding are tied if the folder's config.json has "tie_word_embeddings": true, or lacks the key and its
// family ties them by default (gpt2, gemma2), or if there is no config.json. The embedding of a tied model may be
// missing instead of the head.
//
// The prefix transformer. may be missing, as in the files of gpt2 itself. Rotary positions pair the halves of a head
// there as they do here, so nothing is permuted.
enum class HuggingFaceLayout { gpt2, llama, gemma2, mixtral };

// Where Hugging Face keeps one parameter.
struct HuggingFaceName {
  std::string path;  // layers.2.attn.k.kernel
  std::string name;  // transformer.h.2.attn.c_attn.weight; * in it stands for the number of an expert
  bool transposed = false;
  int64_t part = 0, parts = 1;  // which equal part of the last dim there
  std::string otherwise = {};   // the name to use if `name` is missing
};

// The names of all arrays of a model, in its order. Error (invalid_argument): a path that is not in the map.
std::vector<HuggingFaceName> hugging_face_names(HuggingFaceLayout layout, const Leaves& model);

// Gives a model the weights in a .safetensors file, or in a folder with model.safetensors, or with several files and
// model.safetensors.index.json. They are cast to the parameters' element types. Placed parameters keep their placement;
// recipes are placed by `place`, if given, and not carried out. Only one tensor at a time is held whole. With a `vocab`
// that is below the model's size of the axis "vocab", the files have `vocab` rows of it, and the others are zeros.
//   auto model = Gpt::init(Key(0), config);
//   nn::load_pretrained("gpt2", nn::HuggingFaceLayout::gpt2, nn::leaves(model), mesh_rules);
// The model is changed only when everything was read. Errors (invalid_file): weights that are missing, left over
// (except masks and rotary frequencies, which are computed), or of another shape; an lm_head other than the embedding
// for a model without a head; a folder with two sets of weights, model.safetensors and
// model-0000k-of-0000n.safetensors, or files of the second form that the index does not list.
void load_pretrained(const std::filesystem::path& path, HuggingFaceLayout layout, const Leaves& model,
                     const std::optional<MeshRules>& place = {}, int64_t vocab = 0);

// Writes a model's weights to a folder, in files of at most `max_file_bytes` and an index, so that transformers'
// from_pretrained reads them together with a config.json. Error (invalid_file): the folder has .safetensors
// files of another save. If the model has a head of its own, the config must say "tie_word_embeddings": false. With a
// `vocab` only so many rows of the axis "vocab" are written. If arrays are on a mesh across processes, all processes
// call this: process 0 writes, each process holds one tensor at a time whole, and if writing fails all have an error.
// Otherwise every process that calls this writes by itself: call it on one.
void save_pretrained(const std::filesystem::path& folder, HuggingFaceLayout layout, const Leaves& model,
                     int64_t max_file_bytes = int64_t{4} << 30, int64_t vocab = 0);

}  // namespace tessera::nn
