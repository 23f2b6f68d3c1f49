// The code of docs/layers.md: element types, low rank, experts and weights of another library.
#include <iostream>
#include <span>
#include <vector>

#include "nn/filter_shard.h"
#include "nn/foreign_weights.h"
#include "nn/layers/attention.h"
#include "nn/layers/moe.h"
#include "nn/lora.h"
#include "nn/tree.h"
#include "sharding/device_put.h"
#include "sharding/ledger.h"
#include "sharding/random.h"
#include "sharding/safetensors_writer.h"

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

void experts(const Key& key) {
  const Layout layout{make_mesh({{"data", 4}}), {{"batch", "data"}, {"experts", "data"}, {Arrays{}, replicated}}};
  const auto moe = nn::filter_shard(nn::MoeMlp::init(key, {"embed", 8}, {"hidden", 16}, {"experts", 4}), layout);
  const Array x = device_put(normal(key, {4, 8, 8}), NamedSharding(layout.mesh(), P{"data"}));
  const CommLedger ledger;
  const auto [out, balance_loss, dropped] = moe(x);
  std::cout << ledger.table();
}

// A file with the weights of one attention, as torch.nn.MultiheadAttention names them.
void write_weights() {
  const std::vector<float> zeros(192);
  const SafetensorsPlan plan({{"h.0.attn.in_proj_weight", float32, {24, 8}},
                              {"h.0.attn.in_proj_bias", float32, {24}},
                              {"h.0.attn.out_proj.weight", float32, {8, 8}},
                              {"h.0.attn.out_proj.bias", float32, {8}}});
  write_safetensors("gpt2.safetensors", plan, [&](const TensorEntry& entry) {
    return std::as_bytes(std::span(zeros)).first(static_cast<size_t>(entry.bytes()));
  });
}

int main() {
  const Key key(0);
  std::cout << in_two_types(key, {"embed", 4}, {"hidden", 6})(ones({2, 4})).type_string() << '\n';
  Model model{.layers = {{nn::MultiheadAttention::init(key, {"embed", 8}, {"heads", 8}, 2)}}};
  write_weights();
  for (Block& block : model.layers)
    nn::load_weights(block.attention, SafetensorsFile::open("gpt2.safetensors"), "h.0.attn", nn::Library::pytorch);
  for (Block& block : model.layers) block.attention.q = nn::with_lora(key, block.attention.q, {.rank = 8});
  for (const nn::Leaf& leaf : nn::leaves(model)) std::cout << leaf.path << '\n';
  experts(key);
}
