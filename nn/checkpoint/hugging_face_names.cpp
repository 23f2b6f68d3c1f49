// Tables of names: our decoders' parameters and Hugging Face's.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "nn/checkpoint/hugging_face.h"
#include "sharding/base/fail.h"

namespace tessera::nn {

namespace {

// # is a layer's number, * an expert's number.
using Rows = std::vector<HuggingFaceName>;

const Rows gpt2_names{{"embed.tokens", "transformer.wte.weight"},
                      {"embed.positions", "transformer.wpe.weight"},
                      {"layers.#.ln1.scale", "transformer.h.#.ln_1.weight"},
                      {"layers.#.ln1.bias", "transformer.h.#.ln_1.bias"},
                      {"layers.#.attn.q.kernel", "transformer.h.#.attn.c_attn.weight", false, 0, 3},
                      {"layers.#.attn.k.kernel", "transformer.h.#.attn.c_attn.weight", false, 1, 3},
                      {"layers.#.attn.v.kernel", "transformer.h.#.attn.c_attn.weight", false, 2, 3},
                      {"layers.#.attn.q.bias", "transformer.h.#.attn.c_attn.bias", false, 0, 3},
                      {"layers.#.attn.k.bias", "transformer.h.#.attn.c_attn.bias", false, 1, 3},
                      {"layers.#.attn.v.bias", "transformer.h.#.attn.c_attn.bias", false, 2, 3},
                      {"layers.#.attn.o.kernel", "transformer.h.#.attn.c_proj.weight"},
                      {"layers.#.attn.o.bias", "transformer.h.#.attn.c_proj.bias"},
                      {"layers.#.ln2.scale", "transformer.h.#.ln_2.weight"},
                      {"layers.#.ln2.bias", "transformer.h.#.ln_2.bias"},
                      {"layers.#.mlp.up.kernel", "transformer.h.#.mlp.c_fc.weight"},
                      {"layers.#.mlp.up.bias", "transformer.h.#.mlp.c_fc.bias"},
                      {"layers.#.mlp.down.kernel", "transformer.h.#.mlp.c_proj.weight"},
                      {"layers.#.mlp.down.bias", "transformer.h.#.mlp.c_proj.bias"},
                      {"final_ln.scale", "transformer.ln_f.weight"},
                      {"final_ln.bias", "transformer.ln_f.bias"},
                      {"final_norm.scale", "transformer.ln_f.weight"},
                      {"final_norm.bias", "transformer.ln_f.bias"},
                      {"head.kernel", "lm_head.weight", true, 0, 1, "transformer.wte.weight"}};

Rows joined(std::initializer_list<Rows> parts) {
  Rows all;
  for (const Rows& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

const Rows around_names{{"embed.tokens", "model.embed_tokens.weight"},
                        {"final_norm.scale", "model.norm.weight"},
                        {"head.kernel", "lm_head.weight", true, 0, 1, "model.embed_tokens.weight"}};

const Rows attention_names{{"layers.#.norm1.scale", "model.layers.#.input_layernorm.weight"},
                           {"layers.#.attn.q.kernel", "model.layers.#.self_attn.q_proj.weight", true},
                           {"layers.#.attn.k.kernel", "model.layers.#.self_attn.k_proj.weight", true},
                           {"layers.#.attn.v.kernel", "model.layers.#.self_attn.v_proj.weight", true},
                           {"layers.#.attn.o.kernel", "model.layers.#.self_attn.o_proj.weight", true},
                           {"layers.#.attn.q.bias", "model.layers.#.self_attn.q_proj.bias"},
                           {"layers.#.attn.k.bias", "model.layers.#.self_attn.k_proj.bias"},
                           {"layers.#.attn.v.bias", "model.layers.#.self_attn.v_proj.bias"},
                           {"layers.#.attn.o.bias", "model.layers.#.self_attn.o_proj.bias"},
                           {"layers.#.attn.q_norm.scale", "model.layers.#.self_attn.q_norm.weight"},
                           {"layers.#.attn.k_norm.scale", "model.layers.#.self_attn.k_norm.weight"}};

const Rows mlp_names{{"layers.#.mlp.gate.kernel", "model.layers.#.mlp.gate_proj.weight", true},
                     {"layers.#.mlp.up.kernel", "model.layers.#.mlp.up_proj.weight", true},
                     {"layers.#.mlp.down.kernel", "model.layers.#.mlp.down_proj.weight", true},
                     {"layers.#.mlp.gate.bias", "model.layers.#.mlp.gate_proj.bias"},
                     {"layers.#.mlp.up.bias", "model.layers.#.mlp.up_proj.bias"},
                     {"layers.#.mlp.down.bias", "model.layers.#.mlp.down_proj.bias"}};

const Rows norm_of_mlp_names{{"layers.#.norm2.scale", "model.layers.#.post_attention_layernorm.weight"}};

const Rows four_norms_names{{"layers.#.attn_norm.scale", "model.layers.#.post_attention_layernorm.weight"},
                            {"layers.#.norm2.scale", "model.layers.#.pre_feedforward_layernorm.weight"},
                            {"layers.#.mlp_norm.scale", "model.layers.#.post_feedforward_layernorm.weight"}};

const Rows experts_names{{"layers.#.moe.router", "model.layers.#.block_sparse_moe.gate.weight", true},
                         {"layers.#.moe.gate", "model.layers.#.block_sparse_moe.experts.*.w1.weight", true},
                         {"layers.#.moe.down", "model.layers.#.block_sparse_moe.experts.*.w2.weight", true},
                         {"layers.#.moe.up", "model.layers.#.block_sparse_moe.experts.*.w3.weight", true}};

struct Names {
  const char* layout;
  Rows rows;
};

const Names& names_of(HuggingFaceLayout layout) {
  static const Names all[] = {{"gpt2", gpt2_names},
                              {"llama", joined({around_names, attention_names, norm_of_mlp_names, mlp_names})},
                              {"gemma2", joined({around_names, attention_names, four_norms_names, mlp_names})},
                              {"mixtral", joined({around_names, attention_names, norm_of_mlp_names, experts_names})}};
  return all[static_cast<size_t>(layout)];
}

// Splits layers.12.ln1.scale into layers.#.ln1.scale and 12.
std::pair<std::string, std::string> without_number(const std::string& path) {
  constexpr std::string_view before = "layers.";
  if (!path.starts_with(before)) return {path, ""};
  const size_t end = path.find_first_not_of("0123456789", before.size());
  if (end == before.size() || end == path.npos) return {path, ""};
  return {fmt::format("{}#{}", before, path.substr(end)), path.substr(before.size(), end - before.size())};
}

std::string with_number(std::string_view pattern, const std::string& number) {
  const size_t at = pattern.find('#');
  if (at == pattern.npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, at), number, pattern.substr(at + 1));
}

}  // namespace

std::vector<HuggingFaceName> hugging_face_names(HuggingFaceLayout layout, const Leaves& model) {
  const Names& known = names_of(layout);
  std::vector<HuggingFaceName> names;
  for (const Leaf& leaf : model) {
    const auto [pattern, number] = without_number(leaf.path);
    const Rows& rows = known.rows;
    const auto row = std::find_if(rows.begin(), rows.end(), [&](const auto& r) { return r.path == pattern; });
    if (row == rows.end())
      fail(ErrorKind::invalid_argument, "hugging_face",
           "{}: this path is not in the map of {}. nn/checkpoint/hugging_face.h lists the fields.", leaf.path,
           known.layout);
    names.push_back(*row);
    names.back().path = leaf.path, names.back().name = with_number(row->name, number);
  }
  return names;
}

}  // namespace tessera::nn
