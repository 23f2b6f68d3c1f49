// Hugging Face's tensor names: read into the fields of models, written from them, and an Error for each mistake.
#include "nn/checkpoint/hugging_face.h"

#include <gtest/gtest.h>

#include "nn/layers/attention.h"
#include "nn/layers/embedding.h"
#include "nn/layers/mlp.h"
#include "nn/layers/norm.h"
#include "nn/models/pretrained.h"
#include "sharding/files/safetensors_writer.h"
#include "tests/nn/checkpoint/support.h"

namespace tessera::nn::testing::hugging_face_test {
namespace {

const HuggingFaceNames gpt2_names = hugging_face_names({.model_type = "gpt2"});
const HuggingFaceNames llama_names = hugging_face_names({.model_type = "llama"});

struct Gpt2Embedding {
  Param tokens, positions;
};
struct Gpt2Block {
  LayerNorm ln1;
  MultiheadAttention attn;
  LayerNorm ln2;
  Mlp mlp;
};
struct Gpt2 {
  Gpt2Embedding embed;
  std::vector<Gpt2Block> layers;
  LayerNorm final_ln;
  Linear head;

  static Gpt2 init(const Key& key) {
    const auto [k1, k2, k3, k4, k5] = split<5>(key);
    const Axis embed{"embed", 8};
    const auto block = [&](const Key& k) {
      return Gpt2Block{LayerNorm::init({"norm", 8}), MultiheadAttention::init(k, embed, {"heads", 8}, 2),
                       LayerNorm::init({"norm", 8}), Mlp::init(fold_in(k, 1), embed, {"hidden", 16})};
    };
    return {.embed = {{normal(k1, {12, 8}), {"vocab", "embed"}}, {normal(k2, {6, 8}), {"seq", "embed"}}},
            .layers = {block(k3), block(k4)},
            .final_ln = LayerNorm::init({"norm", 8}),
            .head = Linear::init(k5, embed, {"vocab", 12}, {.bias = false})};
  }
};

struct LlamaBlock {
  RMSNorm norm1;
  MultiheadAttention attn;
  RMSNorm norm2;
  GatedMlp mlp;
};
struct Llama {
  Embedding embed;
  std::vector<LlamaBlock> layers;
  RMSNorm final_norm;

  static Llama init(const Key& key) {
    const auto [k1, k2, k3] = split<3>(key);
    const Axis embed{"embed", 8};
    const AttentionOptions options{.bias = false, .kv_features = Axis{"heads", 4}, .rope = RotaryEmbedding{}};
    return {.embed = Embedding::init(k1, {"vocab", 12}, embed),
            .layers = {{RMSNorm::init({"norm", 8}), MultiheadAttention::init(k2, embed, {"heads", 8}, 4, options),
                        RMSNorm::init({"norm", 8}), GatedMlp::init(k3, embed, {"hidden", 16})}},
            .final_norm = RMSNorm::init({"norm", 8})};
  }
};

// Writes files as another program would. Element i of tensor t is (t + 1) * 1000 + i.
struct Theirs {
  std::vector<TensorEntry> tensors;

  void write(const fs::path& file) const {
    std::vector<float> values;
    write_safetensors(file, SafetensorsPlan(tensors), [&](const TensorEntry& entry) {
      values.resize(static_cast<size_t>(entry.bytes()) / 4);
      for (size_t i = 0; i < values.size(); ++i) values[i] = number_of(entry.name) * 1000.f + static_cast<float>(i);
      return std::as_bytes(std::span(values));
    });
  }
  float number_of(const std::string& name) const {
    for (size_t t = 0; t < tensors.size(); ++t)
      if (tensors[t].name == name) return static_cast<float>(t + 1);
    return 0;
  }
  float at(const std::string& name, int64_t i) const { return number_of(name) * 1000.f + static_cast<float>(i); }
};

Theirs gpt2_files(const std::string& prefix) {
  Theirs all{{{prefix + "wte.weight", float32, {12, 8}},
              {prefix + "wpe.weight", float32, {6, 8}},
              {prefix + "ln_f.weight", float32, {8}},
              {prefix + "ln_f.bias", float32, {8}}}};
  for (const char* n : {"0", "1"})
    for (const TensorEntry& t : std::vector<TensorEntry>{{"ln_1.weight", float32, {8}},
                                                         {"ln_1.bias", float32, {8}},
                                                         {"ln_2.weight", float32, {8}},
                                                         {"ln_2.bias", float32, {8}},
                                                         {"attn.c_attn.weight", float32, {8, 24}},
                                                         {"attn.c_attn.bias", float32, {24}},
                                                         {"attn.c_proj.weight", float32, {8, 8}},
                                                         {"attn.c_proj.bias", float32, {8}},
                                                         {"attn.bias", float32, {1, 1, 6, 6}},
                                                         {"mlp.c_fc.weight", float32, {8, 16}},
                                                         {"mlp.c_fc.bias", float32, {16}},
                                                         {"mlp.c_proj.weight", float32, {16, 8}},
                                                         {"mlp.c_proj.bias", float32, {8}}})
      all.tensors.push_back({prefix + "h." + n + "." + t.name, t.dtype, t.shape});
  return all;
}

float element(const Array& x, int64_t i, int64_t j) {
  return x.to_host<float>()[static_cast<size_t>(i * x.shape(1) + j)];
}

class HuggingFaceTest : public ::testing::Test {
 protected:
  fs::path path(const std::string& name) const { return folder_.path(name); }
  ScratchFolder folder_;
};

TEST_F(HuggingFaceTest, Gpt2IsReadWithAndWithoutItsPrefixOnAnyMesh) {
  for (const std::string prefix : {"", "transformer."}) {
    const Theirs files = gpt2_files(prefix);
    files.write(path("model.safetensors"));
    for (const Strategy& strategy : strategies()) {
      Gpt2 model = Gpt2::init(Key(0));
      load_pretrained(path(""), gpt2_names, leaves(model), strategy.mesh_rules);
      const std::string attn = prefix + "h.1.attn.c_attn.";
      EXPECT_EQ(element(model.layers[1].attn.k.kernel, 3, 5), files.at(attn + "weight", 3 * 24 + 8 + 5));
      EXPECT_EQ(model.layers[1].attn.v.bias->value.to_host<float>()[2], files.at(attn + "bias", 16 + 2));
      EXPECT_EQ(element(model.layers[0].mlp.down.kernel, 9, 4), files.at(prefix + "h.0.mlp.c_proj.weight", 9 * 8 + 4));
      EXPECT_EQ(element(model.head.kernel, 2, 7), files.at(prefix + "wte.weight", 7 * 8 + 2));
      EXPECT_EQ(model.head.kernel.value.sharding(),
                filter_shard(Gpt2::init(Key(0)), strategy.mesh_rules).head.kernel.value.sharding());
    }
  }
}

TEST_F(HuggingFaceTest, WhatIsWrittenIsReadBack) {
  const MeshRules mesh_rules = strategies()[4].mesh_rules;
  const Gpt2 gpt = filter_shard(Gpt2::init(Key(1)), mesh_rules);
  const Llama llama = filter_shard(Llama::init(Key(1)), mesh_rules);
  save_pretrained(path("gpt"), gpt2_names, leaves(gpt), 600);
  save_pretrained(path("llama"), llama_names, leaves(llama));
  Gpt2 gpt_back = Gpt2::init(Key(2));
  Llama llama_back = Llama::init(Key(2));
  load_pretrained(path("gpt"), gpt2_names, leaves(gpt_back));
  load_pretrained(path("llama"), llama_names, leaves(llama_back));
  expect_same_values(leaves(gpt_back), leaves(gpt), "gpt");
  expect_same_values(leaves(llama_back), leaves(llama), "llama");
  EXPECT_GT(names_in(path("gpt")).size(), 3u);  // several files
}

TEST_F(HuggingFaceTest, LlamaIsTransposedAndItsHeadMayBeTheEmbedding) {
  const Llama model = Llama::init(Key(1));
  save_pretrained(path(""), llama_names, leaves(model));
  const auto file = SafetensorsFile::open(path("model-00001-of-00001.safetensors"));
  EXPECT_EQ(file.info("model.layers.0.self_attn.k_proj.weight").shape, Shape({4, 8}));
  EXPECT_EQ(file.info("model.layers.0.mlp.gate_proj.weight").shape, Shape({16, 8}));
  std::vector<float> k(32);
  file.read("model.layers.0.self_attn.k_proj.weight", k.data());
  EXPECT_EQ(k[3 * 8 + 5], element(model.layers[0].attn.k.kernel, 5, 3));
}

struct Fused {
  Param q{normal(Key(1), {3, 4}), {"embed", "heads"}}, k{normal(Key(2), {3, 2}), {"embed", "heads"}};  // 2 and 1 heads
  Param gate{normal(Key(3), {2, 3, 5}), {"experts", "embed", "mlp"}}, up{normal(Key(4), {2, 3, 5}), gate.axes};
};

TEST_F(HuggingFaceTest, PartsOfOneTensorHaveUnequalSizesOrAlternateInAllExperts) {
  const HuggingFaceNames names{"fused",
                               {{"q", "qk.weight", true, {1, 3, 0, 2}},
                                {"k", "qk.weight", true, {1, 3, 2, 1}},
                                {"gate", "gate_up", false, {5, 2, 0, 1}},
                                {"up", "gate_up", false, {5, 2, 1, 1}}}};
  Fused model, back;
  for (const Leaf& leaf : leaves(back)) *leaf.value = zeros(leaf.value->shape());
  save_pretrained(path(""), names, leaves(model));
  load_pretrained(path(""), names, leaves(back));
  expect_same_values(leaves(back), leaves(model), "fused");
  const auto file = SafetensorsFile::open(path("model-00001-of-00001.safetensors"));
  ASSERT_EQ(file.info("qk.weight").shape, Shape({6, 3}));
  ASSERT_EQ(file.info("gate_up").shape, Shape({2, 3, 10}));
  std::vector<float> qk(18), both(60);
  file.read("qk.weight", qk.data()), file.read("gate_up", both.data());
  EXPECT_EQ(qk[5 * 3 + 2], element(model.k, 2, 1));
  EXPECT_EQ(both[(1 * 3 + 2) * 10 + 7], model.up.value.to_host<float>()[(1 * 3 + 2) * 5 + 3]);
  model.up.value = zeros({2, 3, 4});
  expect_error(ErrorKind::invalid_argument,
               "[save_pretrained] up: its shape is (2, 3, 4), gate_up needs 1 dims or more, the last a multiple of 5.",
               [&] { save_pretrained(path("no"), names, leaves(model)); });
}

TEST_F(HuggingFaceTest, ATensorInTwoFilesIsRefused) {
  const Llama model = Llama::init(Key(1));
  save_pretrained(path("two"), llama_names, leaves(model), 900);
  const std::string first = names_in(path("two"))[0];
  fs::copy(path("two") / first, path("two") / "again.safetensors");
  const fs::path index = path("two") / "model.safetensors.index.json";
  std::string text = text_of(index);
  const std::string start = "\"weight_map\": {";
  overwrite(index, text.insert(text.find(start) + start.size(), "\"x\": \"again.safetensors\", "));
  Llama back = Llama::init(Key(2));
  expect_error_with(ErrorKind::invalid_file, {"[load_pretrained] ", "is in again.safetensors and in " + first},
                    [&] { load_pretrained(path("two"), llama_names, leaves(back)); });
}

TEST_F(HuggingFaceTest, APathThatTheSystemDoesNotTakeIsAnError) {
  Llama llama = Llama::init(Key(1));
  const std::string too_long = path(std::string(300, 'x'));
  expect_error_with(ErrorKind::invalid_file, {"[safetensors] ", "xxx"},
                    [&] { load_pretrained(too_long, llama_names, leaves(llama)); });
  expect_error_with(ErrorKind::invalid_file, {"[save_pretrained] ", "xxx"},
                    [&] { save_pretrained(too_long, llama_names, leaves(llama)); });
}

TEST_F(HuggingFaceTest, WhatIsNoModelOfTheLayoutIsNotWritten) {
  Gpt2 gpt = Gpt2::init(Key(1));
  Leaves incomplete = leaves(gpt);
  std::erase_if(incomplete, [](const Leaf& leaf) { return leaf.path == "layers.1.attn.v.kernel"; });
  expect_error(ErrorKind::invalid_argument,
               "[save_pretrained] layers.1.attn.q.kernel: transformer.h.1.attn.c_attn.weight consists of 3 blocks, the "
               "arrays of the model fill 2 of them. nn/checkpoint/hugging_face.h lists the fields.",
               [&] { save_pretrained(path("no"), gpt2_names, incomplete); });
  for (const int64_t vocab : {-1, 13})
    expect_error(ErrorKind::invalid_argument,
                 "[save_pretrained] embed.tokens: vocab = " + std::to_string(vocab) +
                     " given, expected 0 to 12, the size of its axis.",
                 [&] { save_pretrained(path("no"), gpt2_names, leaves(gpt), 600, vocab); });
  Llama llama = Llama::init(Key(1));
  llama.layers[0].attn.q.kernel.value = zeros({8});
  expect_error(ErrorKind::invalid_argument,
               "[save_pretrained] layers.0.attn.q.kernel: its shape is (8), model.layers.0.self_attn.q_proj.weight "
               "needs 2 dims or more, the last a multiple of 1.",
               [&] { save_pretrained(path("no"), llama_names, leaves(llama)); });
  EXPECT_FALSE(fs::exists(path("no")));
}

TEST_F(HuggingFaceTest, OtherArchitecturesAndSizesAreRefused) {
  Theirs files = gpt2_files("");
  const auto refuse = [&](std::initializer_list<std::string> words) {
    files.write(path("model.safetensors"));
    Gpt2 model = Gpt2::init(Key(0));
    const Array tokens = model.embed.tokens.value;
    expect_error_with(ErrorKind::invalid_file, words, [&] { load_pretrained(path(""), gpt2_names, leaves(model)); });
    EXPECT_TRUE(model.embed.tokens.value.is_same(tokens));
    files = gpt2_files("");
  };
  files.tensors[1].shape = {7, 8};
  refuse({"embed.positions: transformer.wpe.weight has the shape (7, 8) there, (6, 8) here."});
  files.tensors.push_back({"h.2.ln_1.weight", float32, {8}});
  refuse({"the model has no place for h.2.ln_1.weight. Make the model as large as the weights."});
  files.tensors.erase(files.tensors.begin());
  refuse({"it has no \"transformer.wte.weight\""});
  files.tensors[8].shape = {8, 23};
  refuse({"c_attn.weight has the shape (8, 23) there"});

  Gpt2 gpt = Gpt2::init(Key(0));
  expect_error(ErrorKind::invalid_argument,
               "[hugging_face] embed.positions: this path is not in the map of llama. nn/checkpoint/hugging_face.h "
               "lists the fields.",
               [&] { hugging_face_names(llama_names, leaves(gpt)); });
}

}  // namespace
}  // namespace tessera::nn::testing::hugging_face_test
