// The code of docs/layers.md: element types, an error, decoding, LoRA, experts and weights of another library.
#include <iostream>
#include <span>
#include <vector>

#include <tessera/nn/checkpoint.h>
#include <tessera/nn/layers/attention.h>
#include <tessera/nn/layers/batch_norm.h>
#include <tessera/nn/layers/linear.h>
#include <tessera/nn/layers/moe.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/tree.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/base.h>
#include <tessera/sharding/files.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>

using namespace tessera;

struct Block {
  nn::MultiheadAttention attention;
};

struct Model {
  std::vector<Block> layers;
};

nn::Linear in_two_types(const Key& key, const Axis& embed, const Axis& hidden) {
  return nn::Linear::init(key, embed, hidden, {.dtypes = {.params = float32, .compute = bfloat16, .output = float32}});
}

void empty_batch() {
  nn::BatchNorm norm = nn::BatchNorm::init({"features", 8});
  try {
    norm(zeros({0, 8}));
  } catch (const Error& error) {
    std::cout << error.what() << '\n';
  }
}

void decode(const nn::MultiheadAttention& attention, const Array& text, const Array& token) {
  nn::KeyValueCache cache;
  const Array first = attention.decode(text, cache);
  const Array next = attention.decode(token, cache);
  std::cout << cache.length() << " positions after " << first.type_string() << " and " << next.type_string() << '\n';
}

void experts(const Key& key) {
  const MeshRules mesh_rules{make_mesh({{"data", 4}}),
                             {{"batch", "data"}, {"experts", "data"}, {ParamPattern{}, replicated}}};
  const auto moe = nn::filter_shard(nn::MoeMlp::init(key, {"embed", 8}, {"hidden", 16}, {"experts", 4}), mesh_rules);
  const Array x = device_put(normal(key, {4, 8, 8}), NamedSharding(mesh_rules.mesh(), P{"data"}));
  const CommLedger ledger;
  const nn::MoeResult answer = moe(x);  // out, balance_loss, dropped, choices, probabilities
  std::cout << ledger.to_text();
}

// Writes a file with the weights of one attention layer, named as in torch.nn.MultiheadAttention, and of a head.
void write_weights() {
  const std::vector<float> zeros(192);
  const SafetensorsPlan plan({{"h.0.attn.in_proj_weight", float32, {24, 8}},
                              {"h.0.attn.in_proj_bias", float32, {24}},
                              {"h.0.attn.out_proj.weight", float32, {8, 8}},
                              {"h.0.attn.out_proj.bias", float32, {8}},
                              {"head.w", float32, {16, 8}}});
  write_safetensors("gpt2.safetensors", plan, [&](const TensorEntry& entry) {
    return std::as_bytes(std::span(zeros)).first(static_cast<size_t>(entry.bytes()));
  });
}

void load_by_a_map(nn::Linear& linear, const SafetensorsFile& file) {
  const auto transposed = [](const std::vector<Array>& tensors, const Shape&) { return transpose(tensors[0]); };
  nn::load_weights(linear, file, "head", {{"kernel", {"w"}, transposed}});
}

int main() {
  const Key key(0);
  std::cout << in_two_types(key, {"embed", 4}, {"hidden", 6})(ones({2, 4})).type_string() << '\n';
  Model model{.layers = {{nn::MultiheadAttention::init(key, {"embed", 8}, {"heads", 8}, 2)}}};
  write_weights();
  for (Block& block : model.layers)
    nn::load_weights(block.attention, SafetensorsFile::open("gpt2.safetensors"), "h.0.attn", nn::Library::pytorch);
  uint32_t i = 0;
  for (Block& block : model.layers)
    block.attention.q = nn::with_lora(fold_in(key, i++), block.attention.q, {.rank = 8});
  for (const nn::Leaf& leaf : nn::leaves(model)) std::cout << leaf.path << '\n';
  const Model trained = nn::filter(model, nn::by_path("**.lora.**"));
  for (const nn::Leaf& leaf : nn::leaves(trained))
    if (!leaf.value->is_absent()) std::cout << leaf.path << " is trained\n";
  nn::Linear head = nn::Linear::init(key, {"embed", 8}, {"vocab", 16}, {.bias = false});
  load_by_a_map(head, SafetensorsFile::open("gpt2.safetensors"));
  empty_batch();
  decode(model.layers[0].attention, normal(key, {1, 5, 8}), normal(key, {1, 1, 8}));
  experts(key);
}
