// Weights in the layouts of Hugging Face's GPT-2 and Llama, read into our models and written from them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "nn/tree/tree.h"
#include "sharding/placement/layout.h"

namespace tessera::nn {

// Hugging Face's names for the parameters of a decoder whose fields are called as below; N is a layer's number. What is
// marked T is transposed there: torch.nn.Linear keeps (out, in), our kernels and GPT-2's Conv1D (in, out).
//
//   gpt2    embed.tokens, embed.positions        transformer.wte.weight, transformer.wpe.weight
//           layers.N.ln1.scale, .bias            transformer.h.N.ln_1.weight, .bias; so ln2, and final_ln as ln_f
//           layers.N.attn.q, k, v .kernel        transformer.h.N.attn.c_attn.weight: one after the other in its columns
//           layers.N.attn.q, k, v .bias          transformer.h.N.attn.c_attn.bias, likewise
//           layers.N.attn.o.kernel, .bias        transformer.h.N.attn.c_proj.weight, .bias
//           layers.N.mlp.up, down .kernel, .bias transformer.h.N.mlp.c_fc, c_proj .weight, .bias
//           head.kernel                          lm_head.weight T; where there is none, wte.weight T, as GPT-2 ties
//           them
//   llama   embed.tokens                         model.embed_tokens.weight
//           layers.N.norm1.scale, norm2.scale    model.layers.N.input_layernorm, post_attention_layernorm .weight
//           layers.N.attn.q, k, v, o .kernel     model.layers.N.self_attn.q_proj, k_proj, v_proj, o_proj .weight T
//           layers.N.mlp.gate, up, down .kernel  model.layers.N.mlp.gate_proj, up_proj, down_proj .weight T
//           final_norm.scale                     model.norm.weight
//           head.kernel, if there is one         lm_head.weight T; where there is none, embed_tokens.weight T
//
// The prefix transformer. may be missing, as in the files of gpt2 itself. Both turn the halves of a head by rotary
// positions alike, so nothing is permuted.
enum class HuggingFaceLayout { gpt2, llama };

// Where Hugging Face keeps one parameter.
struct HuggingFaceName {
  std::string path;  // layers.2.attn.k.kernel
  std::string name;  // transformer.h.2.attn.c_attn.weight
  bool transposed = false;
  int64_t part = 0, parts = 1;  // of the last dim there
  std::string otherwise = {};   // the name where that one is missing
};

// For every array of a model, in its order. Error (bad_argument): a path that is not in the map.
std::vector<HuggingFaceName> hugging_face_names(HuggingFaceLayout layout, const Leaves& model);

// Gives a model the weights in a .safetensors file, or in a folder with model.safetensors, or with several files and
// model.safetensors.index.json. They are converted to the parameters' element types. Parameters that are placed stay
// where they are; recipes are placed by `place`, where it is given, and never drawn. One tensor at a time is held
// whole.
//   auto model = Gpt::init(Key(0), config);
//   nn::load_hugging_face("gpt2", nn::HuggingFaceLayout::gpt2, nn::leaves(model), layout);
// The model is changed only when all was read. Errors (bad_file): weights that are missing, left over (masks and rotary
// frequencies that are computed are none), or of another shape; an lm_head other than the embedding for a model without
// a head of its own.
void load_hugging_face(const std::filesystem::path& path, HuggingFaceLayout layout, const Leaves& model,
                       const std::optional<Layout>& place = {});

// Writes a model's weights to a folder, so that transformers' from_pretrained reads them beside a config.json: in files
// of at most `most_file_bytes`, and an index. Where a head of the model's own is written, the config must say
// "tie_word_embeddings": false. A model whose arrays lie on meshes across processes is saved by all of them together,
// as checkpoints are: process 0 writes, one tensor at a time is held whole by each, and where it cannot all have an
// error. Any other model each process saves by itself: then call it on one.
void save_hugging_face(const std::filesystem::path& folder, HuggingFaceLayout layout, const Leaves& model,
                       int64_t most_file_bytes = int64_t{4} << 30);

}  // namespace tessera::nn
