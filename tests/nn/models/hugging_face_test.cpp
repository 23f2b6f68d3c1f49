// Folders of Hugging Face models: configs, errors, and what is saved. tests/reference/hf compares the numbers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <span>

#include "nn/models/config.h"
#include "nn/models/generate.h"
#include "nn/models/pretrained.h"
#include "sharding/files/file.h"
#include "sharding/files/json.h"
#include "sharding/files/safetensors.h"
#include "sharding/files/safetensors_writer.h"
#include "sharding/redistribution/device_put.h"
#include "tests/nn/support.h"

namespace tessera::nn::hugging_face_test {
namespace {

namespace fs = std::filesystem;

const fs::path references = fs::path(TESSERA_REFERENCE_DIR) / "hf";

std::string config_text(const std::string& more) {
  const char* kv_heads = more.find("num_key_value_heads") == std::string::npos ? R"("num_key_value_heads": 4, )" : "";
  return R"({"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
             "num_attention_heads": 4, )" +
         (kv_heads + more) + "}";
}
DecoderConfig config_of(const std::string& more) { return config_from_hugging_face(config_text(more), "config.json"); }

TEST(HuggingFaceConfig, WithoutAFieldForAnOptionIsNotWritten) {
  const struct {
    const char *family, *option;
    void (*change)(DecoderConfig& c);
  } cases[] = {{"llama", "attention_scale", [](auto& c) { c.attention_scale = 0.3; }},
               {"gemma2", "attention_scale", [](auto& c) { c.attention_scale = 0.3; }},
               {"llama", "hidden_act.function", [](auto& c) { c.hidden_act = {Activation::elu}; }},
               {"llama", "attention_bias", [](auto& c) { c.attention_bias = true; }},
               {"qwen2", "attention_bias", [](auto& c) { c.attention_bias = false; }},
               {"llama", "rope.dims", [](auto& c) { c.rope.dims = 4; }},
               {"llama", "rope.scaling.original_positions",
                [](auto& c) { c.rope.scaling = {.kind = RotaryScaling::dynamic, .original_positions = 8}; }},
               {"llama", "windows",
                [](auto& c) {
                  c.windows = {4, 4};
                }},
               {"mistral", "windows",
                [](auto& c) {
                  c.windows = {0, 4};
                }},
               {"gpt2", "head_dim", [](auto& c) { c.head_dim = 8; }},
               {"gpt2", "num_key_value_heads", [](auto& c) { c.num_key_value_heads = 2; }},
               {"llama", "norm_placement", [](auto& c) { c.norm_placement = NormPlacement::post; }},
               {"llama", "logits_scaling", [](auto& c) { c.logits_scaling = 2; }},
               {"mixtral", "num_local_experts", [](auto& c) { c.num_local_experts = c.num_experts_per_tok = 0; }}};
  for (const auto& [family, option, change] : cases) {
    DecoderConfig config = config_of_family(family, {});
    EXPECT_NO_THROW(config_to_hugging_face(config, float32));
    change(config);
    testing::expect_error(ErrorKind::invalid_argument,
                          "[save_pretrained] " + std::string(option) + ": the config of transformers' " + family +
                              " cannot express the value that it has here.",
                          [&] { config_to_hugging_face(config, float32); });
  }
  DecoderConfig odd = config_of_family("gpt2", {});
  odd.hidden_size = 66;
  testing::expect_error_with(ErrorKind::invalid_argument,
                             {"[save_pretrained] the config could not be read: ", "4 heads do not divide 66 features"},
                             [&] { config_to_hugging_face(odd, float32); });
}

TEST(HuggingFaceConfig, OfSizesThatNoModelHasIsRefusedBeforeAnythingIsMadeOfThem) {
  const std::string at = "[from_pretrained] config.json.";
  const auto refused = [](const char* family, const char* key, const char* size) {
    std::string text =
        config_text(R"("head_dim": 4, "max_position_embeddings": 8, "model_type": ")" + std::string(family) + '"');
    const size_t begin = text.find(':', text.find(key)) + 1, end = text.find_first_of(",}", begin);
    return [text = text.replace(begin, end - begin, size)] { config_from_hugging_face(text, "config.json"); };
  };
  testing::expect_errors(
      {{ErrorKind::invalid_file,
        at + "num_hidden_layers: 1000000000000 given, expected a whole number from 1 to 10000.",
        refused("mistral", "num_hidden_layers", "1000000000000")},
       {ErrorKind::invalid_file,
        at + "hidden_size: 9223372036854775807 given, expected a whole number from 1 to 2147483648.",
        refused("llama", "hidden_size", "9223372036854775807")},
       {ErrorKind::invalid_file, at + "head_dim: -4 given, expected a whole number from 1 to 2147483648.",
        refused("llama", "head_dim", "-4")},
       {ErrorKind::invalid_file, at + "max_position_embeddings: 0 given, expected a whole number from 1 to 2147483648.",
        refused("llama", "max_position_embeddings", "0")}});
  testing::expect_error_with(
      ErrorKind::invalid_file, {"rope.scaling.original_positions = 1e+300, expected 0 to 2147483648."}, [] {
        config_of(R"("model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 2, "low_freq_factor": 1,
                     "high_freq_factor": 4, "original_max_position_embeddings": 1e300})");
      });
}

class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder = fs::temp_directory_path() / (std::string("tessera_models_") + test->name());
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  void TearDown() override { fs::remove_all(folder); }
  fs::path folder;
};

TEST(HuggingFaceConfig, OfEveryFolderIsWrittenAsItIsRead) {
  for (const fs::directory_entry& entry : fs::directory_iterator(references)) {
    const std::string name = (entry.path() / "config.json").string();
    const DecoderConfig config = config_from_hugging_face(read_text(name, "test"), name);
    const std::string text = config_to_hugging_face(config, float32);
    EXPECT_EQ(config_to_hugging_face(config_from_hugging_face(text, name), float32), text) << name;
  }
}

TEST(HuggingFaceConfig, MayBeOfOlderVersions) {
  const DecoderConfig c = config_of(R"("model_type": "llama", "rope_theta": 500000.0, "rope_scaling": {"factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"})");
  EXPECT_EQ(c.rope.base, 500000);
  EXPECT_EQ(c.rope.scaling.kind, RotaryScaling::llama3);
  EXPECT_EQ(c.rope.scaling.original_positions, 8192);
  EXPECT_EQ(c.num_key_value_heads, 4);
  const DecoderConfig linear = config_of(R"("model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2})");
  EXPECT_EQ(linear.rope.scaling.kind, RotaryScaling::linear);
  EXPECT_EQ(linear.rope.base, 10000);
  const DecoderConfig longrope = config_of(R"("model_type": "llama", "original_max_position_embeddings": 64,
    "max_position_embeddings": 256, "rope_scaling": {"type": "longrope", "short_factor": [1, 1.5],
    "long_factor": [2, 3], "original_max_position_embeddings": 32})");
  EXPECT_EQ(longrope.rope.scaling.original_positions, 64);
  EXPECT_EQ(longrope.rope.scaling.factor, 4);
  EXPECT_EQ(longrope.rope.scaling.long_factors, (std::vector<double>{2, 3}));
  const DecoderConfig dynamic = config_of(R"("model_type": "llama", "max_position_embeddings": 256,
    "rope_scaling": {"type": "dynamic", "factor": 2, "original_max_position_embeddings": 32})");
  EXPECT_EQ(dynamic.rope.scaling.original_positions, 256);
  const std::string balanced = R"("model_type": "mixtral", "router_aux_loss_coef": 0.02, "output_router_logits": )";
  EXPECT_EQ(config_of(balanced + "false").router_aux_loss_coef, 0);
  EXPECT_EQ(config_of(balanced + "true").router_aux_loss_coef, 0.02);
  EXPECT_EQ(config_of(R"("model_type": "gemma2", "sliding_window": 5)").windows, (std::vector<int64_t>{5, 0}));
  EXPECT_EQ(config_of(R"("model_type": "qwen2", "sliding_window": 5)").windows, (std::vector<int64_t>{}));
  EXPECT_EQ(config_of(R"("model_type": "qwen2", "sliding_window": 5, "use_sliding_window": true,
                         "max_window_layers": 1)")
                .windows,
            (std::vector<int64_t>{0, 5}));
}

// configuration_{gemma2,mistral,mixtral}.py of transformers.
TEST(HuggingFaceConfig, HasTheDefaultsOfItsFamily) {
  const DecoderConfig gemma = config_of(R"("model_type": "gemma2")");
  EXPECT_EQ(gemma.attn_logit_softcapping, 50);
  EXPECT_EQ(gemma.final_logit_softcapping, 30);
  EXPECT_EQ(gemma.windows, (std::vector<int64_t>{4096, 0}));
  EXPECT_EQ(config_of(R"("model_type": "gemma2", "hidden_act": "gelu")").hidden_act.function, Activation::gelu);
  const DecoderConfig without = config_of(R"("model_type": "gemma2", "attn_logit_softcapping": null,
                                             "final_logit_softcapping": null, "sliding_window": null)");
  EXPECT_EQ(without.attn_logit_softcapping, 0);
  EXPECT_EQ(without.final_logit_softcapping, 0);
  EXPECT_EQ(without.windows, std::vector<int64_t>());
  EXPECT_EQ(config_of(R"("model_type": "mistral")").windows, (std::vector<int64_t>{4096, 4096}));
  EXPECT_EQ(config_of(R"("model_type": "mistral", "sliding_window": null)").windows, std::vector<int64_t>());
  EXPECT_EQ(config_of(R"("model_type": "mixtral")").rope.base, 1e6);
  const auto kv_heads = [](const std::string& family, const std::string& more = "") {
    const std::string text = R"({"vocab_size": 32, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2,
                                 "num_attention_heads": 16, "model_type": ")" +
                             family + "\"" + more + "}";
    return config_from_hugging_face(text, "config.json").num_key_value_heads;
  };
  EXPECT_EQ(kv_heads("gemma2"), 4);
  EXPECT_EQ(kv_heads("mistral"), 8);
  EXPECT_EQ(kv_heads("mixtral", ", \"num_key_value_heads\": null"), 16);
  EXPECT_EQ(kv_heads("llama"), 16);
  EXPECT_EQ(config_of(R"("model_type": "mixtral")").windows, std::vector<int64_t>());
  const auto gpt_oss = [](const std::string& more) {
    return config_of(R"("model_type": "gpt_oss", "num_local_experts": 4)" + more).rope;
  };
  EXPECT_EQ(gpt_oss("").scaling.kind, RotaryScaling::yarn);
  EXPECT_EQ(gpt_oss("").scaling.factor, 32);
  EXPECT_EQ(gpt_oss(R"(, "rope_theta": 7, "rope_scaling": null)").base, 7);
  EXPECT_EQ(gpt_oss(R"(, "rope_parameters": {"rope_type": "default"})").scaling.kind, RotaryScaling::none);
}

// The keys of folders on the Hugging Face Hub that transformers' current versions write differently.
TEST(HuggingFaceConfig, HasTheKeysThatItsFamilyHadFirst) {
  const DecoderConfig pythia = config_of(R"("model_type": "gpt_neox", "rotary_pct": 0.5, "rotary_emb_base": 50,
                                            "use_parallel_residual": false)");
  EXPECT_EQ(pythia.rope.dims, 2);
  EXPECT_EQ(pythia.rope.base, 50);
  EXPECT_EQ(pythia.norm_placement, NormPlacement::pre);
  const DecoderConfig gemma = config_of(R"("model_type": "gemma3_text", "rope_theta": 9000, "rope_local_base_freq": 70,
                                           "rope_scaling": {"rope_type": "linear", "factor": 8},
                                           "sliding_window_pattern": 2, "sliding_window": 9)");
  EXPECT_EQ(gemma.rope.base, 9000);
  EXPECT_EQ(gemma.rope.scaling.factor, 8);
  EXPECT_EQ(gemma.local_rope->base, 70);
  EXPECT_EQ(gemma.local_rope->scaling.kind, RotaryScaling::none);
  EXPECT_EQ(gemma.windows, (std::vector<int64_t>{9, 0}));
  const DecoderConfig text = config_from_hugging_face(
      R"({"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34})", "config.json");
  EXPECT_EQ(text.num_attention_heads, 8);
  EXPECT_EQ(text.vocab_size, 262208);
  const DecoderConfig phi = config_of(R"("model_type": "phi3", "max_position_embeddings": 8192,
    "partial_rotary_factor": 1.0, "rope_scaling": {"type": "su", "short_factor": [1, 1], "long_factor": [2, 4]})");
  EXPECT_EQ(phi.rope.scaling.kind, RotaryScaling::longrope);
  EXPECT_EQ(phi.rope.scaling.original_positions, 4096);
  EXPECT_EQ(phi.rope.scaling.factor, 2);
  const DecoderConfig smol = config_of(R"("model_type": "smollm3", "no_rope_layer_interval": 2)");
  EXPECT_EQ(smol.no_rope_layers, (std::vector<int64_t>{1, 0}));
  const DecoderConfig falcon = config_of(R"("model_type": "falcon")");
  EXPECT_EQ(falcon.num_key_value_heads, 1);
  EXPECT_EQ(falcon.norm_placement, NormPlacement::parallel_shared);
  EXPECT_EQ(falcon.intermediate_size, 64);
  EXPECT_EQ(config_of(R"("model_type": "gemma", "hidden_act": "gelu")").hidden_act.function, Activation::gelu);
  const DecoderConfig olmo = config_of(R"("model_type": "olmo3", "rope_parameters":
    {"full_attention": {"rope_theta": 10000}})");
  EXPECT_EQ(olmo.rope.base, 10000);
  EXPECT_EQ(olmo.local_rope->base, 5e5);
}

TEST(HuggingFaceConfig, GivesExpertsToLayers) {
  using Layers = std::vector<int64_t>;
  const auto layers = [](const std::string& more) { return config_of(more).moe_layers; };
  EXPECT_EQ(layers(R"("model_type": "qwen3_moe", "num_experts": 8, "decoder_sparse_step": 2)"), (Layers{0, 1}));
  EXPECT_EQ(layers(R"("model_type": "qwen3_moe", "mlp_only_layers": [1])"), (Layers{1, 0}));
  EXPECT_EQ(layers(R"("model_type": "deepseek_v3", "first_k_dense_replace": 1)"), (Layers{0, 1}));
  EXPECT_EQ(layers(R"("model_type": "llama4_text", "interleave_moe_layer_step": 2)"), (Layers{0, 1}));
  EXPECT_EQ(layers(R"("model_type": "llama4_text", "moe_layers": [0])"), (Layers{1, 0}));
  const auto llama4 = [](const std::string& more) { return config_of(R"("model_type": "llama4_text", )" + more); };
  EXPECT_EQ(llama4(R"("no_rope_layers": [])").no_rope_layers, (Layers{1, 1}));
  EXPECT_TRUE(llama4(R"("attn_temperature_tuning": 4)").query_temperature);
  EXPECT_FALSE(llama4(R"("attn_temperature_tuning": 0)").query_temperature);
  const DecoderConfig unchunked = llama4(R"("attention_chunk_size": null)");
  EXPECT_EQ(unchunked.attention_chunk_size, 0);
  const std::string written = config_to_hugging_face(unchunked, float32);
  EXPECT_EQ(config_from_hugging_face(written, "config.json").attention_chunk_size, 0);
  EXPECT_EQ(config_of(R"("model_type": "qwen3_moe", "num_experts": 16)").num_local_experts, 16);
  const DecoderConfig latent = config_of(R"("model_type": "deepseek_v3", "rope_scaling": {"type": "yarn", "factor": 40,
    "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 64})");
  EXPECT_EQ(latent.rope.scaling.attention_factor, 1.0);
  EXPECT_NEAR(*latent.attention_scale, std::pow(0.1 * std::log(40) + 1, 2) / std::sqrt(192), 1e-12);
  EXPECT_TRUE(latent.rope.interleaved);
}

TEST(HuggingFaceConfig, OfAFamilyWithWindowsHasANumberForThem) {
  for (const std::string type : {"gemma2", "gemma3_text", "olmo3", "cohere2", "ministral", "gpt_oss"}) {
    const std::string more = type == "gpt_oss" ? R"(, "num_local_experts": 4)" : "";
    const DecoderConfig config = config_of(
        fmt::format(R"("model_type": "{}", "layer_types": ["full_attention", "full_attention"]{})", type, more));
    EXPECT_TRUE(config.windows.empty()) << type;
    const std::string written = config_to_hugging_face(config, float32);
    EXPECT_EQ(written.find("\"sliding_window\":null"), std::string::npos) << written;
    EXPECT_TRUE(config_from_hugging_face(written, "config.json").windows.empty()) << type;
  }
}

// Also where a family's default has a field that its file does not.
TEST(HuggingFaceConfig, IsWrittenTheSameAfterItWasReadBack) {
  for (const std::string type : {"gpt_oss", "llama", "gemma3_text", "phi3", "deepseek_v3", "olmo3", "ministral"}) {
    const std::string experts = type == "gpt_oss" ? R"(, "num_local_experts": 4)" : "";
    const std::string written =
        config_to_hugging_face(config_of(fmt::format(R"("model_type": "{}"{})", type, experts)), float32);
    EXPECT_EQ(config_to_hugging_face(config_from_hugging_face(written, "config.json"), float32), written) << type;
  }
}

TEST(HuggingFaceConfig, OfAModelThatIsInvalidIsNotWritten) {
  DecoderConfig config = config_of(R"("model_type": "qwen2", "use_sliding_window": true, "sliding_window": 4,
    "max_window_layers": 1)");
  config.num_hidden_layers = 50;  // as a forged checkpoint can set it
  testing::expect_error_with(ErrorKind::invalid_argument, {"windows"},
                             [&] { config_to_hugging_face(config, float32); });
}

TEST(HuggingFaceConfig, KeepsANumberOfPositionsThatIsNotWhole) {
  const DecoderConfig config = config_of(R"("model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 8,
    "original_max_position_embeddings": 81.5})");
  const std::string written = config_to_hugging_face(config, float32);
  EXPECT_EQ(config_from_hugging_face(written, "config.json").rope.scaling.original_positions, 81.5);
}

// 98 * (2 / 98.0) is below 2.
TEST(HuggingFaceConfig, KeepsTheNumberOfRotatedFeatures) {
  for (const int64_t head_dim : {44, 98, 128})
    for (int64_t dims = 2; dims < head_dim; dims += 2) {
      DecoderConfig config = config_of(R"("model_type": "phi3")");
      config.head_dim = head_dim, config.rope.dims = dims;
      const std::string written = config_to_hugging_face(config, float32);
      EXPECT_EQ(config_from_hugging_face(written, "config.json").rope.dims, dims) << head_dim;
    }
}

TEST(HuggingFaceConfig, OfWhatIsNotSupportedIsRefused) {
  const auto refused = [](const std::string& more) { return [=] { config_of(more); }; };
  const std::string at = "[from_pretrained] config.json.";
  testing::expect_errors(
      {{ErrorKind::invalid_file,
        at + "model_type: \"bert\" given, expected one of cohere, cohere2, deepseek_v3, falcon, gemma, "
             "gemma2, gemma3_text, gpt2, gpt_neox, gpt_oss, granite, llama, llama4_text, ministral, mistral, mixtral, "
             "olmo2, olmo3, opt, phi3, qwen2, qwen3, qwen3_moe, smollm3, starcoder2.",
        refused(R"("model_type": "bert")")},
       {ErrorKind::invalid_file, "[from_pretrained] config.json: has no \"model_type\".", refused(R"("a": 1)")},
       {ErrorKind::invalid_file,
        at + "rope_parameters.rope_type: \"proportional\" given, expected one of default, linear, llama3, yarn, "
             "dynamic, longrope.",
        refused(R"("model_type": "llama", "rope_parameters": {"rope_type": "proportional"})")},
       {ErrorKind::invalid_file, at + "rope_parameters.short_factor: 1 of them, expected 2, half of the head's size.",
        refused(R"("model_type": "llama", "rope_parameters": {"rope_type": "longrope", "short_factor": [1],
                   "long_factor": [1, 2]})")},
       {ErrorKind::invalid_file,
        at + "hidden_act: \"mish\" given, expected one of gelu, gelu_new, gelu_pytorch_tanh, relu, sigmoid, "
             "silu, swish, tanh.",
        refused(R"("model_type": "llama", "hidden_act": "mish")")},
       {ErrorKind::invalid_file, at + "layer_types.1: given without a sliding_window, expected full_attention.",
        refused(R"("model_type": "smollm3", "sliding_window": 4, "use_sliding_window": false,
                   "layer_types": ["full_attention", "sliding_attention"])")},
       {ErrorKind::invalid_file,
        "[from_pretrained] config.json: [DecoderConfig] head_dim = 65538, expected 1 to 65536.",
        refused(R"("model_type": "llama", "head_dim": 65538)")},
       {ErrorKind::invalid_file,
        at + "partial_rotary_factor: 0.75 given, expected a fraction that is an even number of the 4 coordinates.",
        refused(R"("model_type": "phi3", "partial_rotary_factor": 0.75)")},
       {ErrorKind::invalid_file, at + "attn_logit_softcapping: 5E1 given, expected only null.",
        refused(R"("model_type": "gemma3_text", "attn_logit_softcapping": 50.0)")},
       {ErrorKind::invalid_file, at + "rope_scaling: given together with rope_parameters, expected one of the two.",
        refused(R"("model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2},
                   "rope_parameters": {"rope_type": "default"})")},
       {ErrorKind::invalid_file,
        "[from_pretrained] config.json: [DecoderConfig] experts with mlp_bias = false, gated_mlp = true and hidden_act "
        "other than silu, expected gated ones without bias, with silu.",
        refused(R"("model_type": "mixtral", "hidden_act": "gelu")")},
       {ErrorKind::invalid_file, at + "rms_norm_eps: -1 given, expected a number above 0.",
        refused(R"("model_type": "llama", "rms_norm_eps": -1)")},
       {ErrorKind::invalid_file, at + "rope_theta: 0 given, expected a number above 0.",
        refused(R"("model_type": "llama", "rope_theta": 0)")},
       {ErrorKind::invalid_file, at + "rope_scaling.factor: 0 given, expected a number above 0.",
        refused(R"("model_type": "llama", "rope_scaling": {"type": "linear", "factor": 0})")},
       {ErrorKind::invalid_file, at + "partial_rotary_factor: is not supported in this family, expected 1.",
        refused(R"("model_type": "llama", "partial_rotary_factor": 0.5, "rope_parameters": {"rope_type": "default"})")},
       {ErrorKind::invalid_file,
        at + "layer_types.1: \"chunked_attention\" given, expected full_attention or sliding_attention.",
        refused(R"("model_type": "gemma2", "sliding_window": 4, "layer_types": ["full_attention",
                   "chunked_attention"])")},
       {ErrorKind::invalid_file,
        at + "layer_types.0: \"full_attention\" given, expected chunked_attention, with rotary positions.",
        refused(R"("model_type": "llama4_text", "layer_types": ["full_attention", "full_attention"])")},
       {ErrorKind::invalid_file, at + "layer_types.0: \"chunked_attention\" given, expected full_attention.",
        refused(R"("model_type": "llama4_text", "attention_chunk_size": null,
                   "layer_types": ["chunked_attention", "full_attention"])")},
       {ErrorKind::invalid_file, at + "no_rope_layers: 0 of them, expected 2 or more.",
        refused(R"("model_type": "smollm3", "no_rope_layers": [])")},
       {ErrorKind::invalid_file, at + "floor_scale: 2147483649 given, expected a whole number from 1 to 2147483648.",
        refused(R"("model_type": "llama4_text", "floor_scale": 2147483649)")},
       {ErrorKind::invalid_file, at + "attn_temperature_tuning: \"yes\" given, expected true, false or an integer.",
        refused(R"("model_type": "llama4_text", "attn_temperature_tuning": "yes")")},
       {ErrorKind::invalid_file, at + "attn_temperature_tuning: null given, expected true, false or an integer.",
        refused(R"("model_type": "llama4_text", "attn_temperature_tuning": null)")},
       {ErrorKind::invalid_file,
        at + "rope_parameters.partial_rotary_factor: 1e+300 given, expected a fraction that is an even number of the 4 "
             "coordinates.",
        refused(R"("model_type": "gpt_neox", "rope_parameters": {"partial_rotary_factor": 1e300})")},
       {ErrorKind::invalid_file, at + "rope_scaling.type: \"linear\" given, expected default or longrope.",
        refused(R"("model_type": "phi3", "rope_scaling": {"type": "linear", "factor": 2})")},
       {ErrorKind::invalid_file,
        "[from_pretrained] config.json: sliding_window is null, expected a number, or layer_types with full_attention "
        "only.",
        refused(R"("model_type": "cohere2", "sliding_window": null)")},
       {ErrorKind::invalid_file,
        at + "rope_parameters: the same for all layers, which transformers ignores. Give full_attention and "
             "sliding_attention.",
        refused(R"("model_type": "gemma3_text", "rope_parameters": {"rope_type": "linear", "factor": 8})")},
       {ErrorKind::invalid_file, at + "rope_local_base_freq: is not supported in this family, expected none.",
        refused(R"("model_type": "olmo3", "rope_theta": 10000, "rope_local_base_freq": 10000)")},
       {ErrorKind::invalid_file,
        at + "layer_types: is not supported in this family, expected the type that all its layers have.",
        refused(R"("model_type": "mistral", "sliding_window": 4, "layer_types": ["full_attention",
                   "sliding_attention"])")},
       {ErrorKind::invalid_file,
        "[from_pretrained] config.json: rope_theta for all layers, which some versions of transformers ignore in "
        "layers with a window. Give rope_parameters with full_attention and sliding_attention.",
        refused(R"("model_type": "olmo3", "rope_theta": 10000)")},
       {ErrorKind::invalid_file,
        "[from_pretrained] config.json: [rotary_embedding] base 1, expected another one for yarn, which divides by its "
        "logarithm.",
        refused(R"("model_type": "llama", "rope_theta": 1, "rope_scaling": {"type": "yarn", "factor": 2})")},
       {ErrorKind::invalid_file,
        at + "query_pre_attn_scalar: 2.565E2 given, expected a whole number from 1 to 2147483648.",
        refused(R"("model_type": "gemma2", "query_pre_attn_scalar": 256.5)")},
       {ErrorKind::invalid_file, at + "topk_method: \"greedy\" given, expected only \"noaux_tc\".",
        refused(R"("model_type": "deepseek_v3", "topk_method": "greedy")")},
       {ErrorKind::invalid_file, at + "mlp_only_layers.0: 2 given, expected a whole number from 0 to 1.",
        refused(R"("model_type": "qwen3_moe", "mlp_only_layers": [2])")},
       {ErrorKind::invalid_file, at + "rope_scaling: \"linear\" given, expected an object.",
        refused(R"("model_type": "llama", "rope_scaling": "linear")")},
       {ErrorKind::invalid_file, at + "rope_parameters: [2] given, expected an object.",
        refused(R"("model_type": "llama", "rope_parameters": [2])")},
       {ErrorKind::invalid_file,
        at + "quantization_config: quantized weights are not supported. Give the folder of the weights in a floating "
             "type.",
        refused(R"("model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4})")},
       {ErrorKind::invalid_file,
        "[from_pretrained] config.json: has no \"hidden_size\", \"num_hidden_layers\", \"intermediate_size\".",
        [] {
          config_from_hugging_face(R"({"model_type": "llama", "vocab_size": 9, "num_attention_heads": 2})",
                                   "config.json");
        }},
       {ErrorKind::invalid_file,
        at + "num_key_value_heads: \"two\" given, expected a whole number from 1 to 2147483648.",
        refused(R"("model_type": "llama", "num_key_value_heads": "two")")},
       {ErrorKind::invalid_file,
        "[from_pretrained] config.json: [DecoderConfig] num_attention_heads = 4 and num_key_value_heads = 3, "
        "expected a divisor.",
        refused(R"("model_type": "llama", "num_key_value_heads": 3)")}});
  const auto long_name = refused(R"("model_type": ")" + std::string(5000, 'x') + "\"");
  EXPECT_LT(testing::error_of(ErrorKind::invalid_file, long_name).size(), 500);
}

TEST_F(Folder, WithoutWeightsIsRefused) {
  write_text(folder / "config.json", config_text(R"("model_type": "llama")"), "test");
  testing::expect_error_with(ErrorKind::invalid_file, {"model.safetensors"}, [&] { from_pretrained(folder); });
  fs::create_directory(folder / "no");
  testing::expect_error_with(ErrorKind::invalid_file, {"[from_pretrained]", "no/config.json"},
                             [&] { from_pretrained(folder / "no"); });
}

TEST_F(Folder, ThatDoesNotExistIsRefusedWithTheCommandThatDownloadsIt) {
  const auto refused = [](const fs::path& path, const std::string& advice) {
    testing::expect_error(ErrorKind::invalid_file,
                          "[from_pretrained] " + path.string() +
                              ": not a folder, expected one with a model's config.json and .safetensors files. " +
                              advice,
                          [&] { from_pretrained(path); });
  };
  const std::string download = "To download a model, run: hf download ";
  refused("gpt2-xl", download + "openai-community/gpt2-xl --local-dir gpt2-xl");
  refused("Llama-3.2-1B", download + "OWNER/Llama-3.2-1B --local-dir Llama-3.2-1B");
  refused("meta-llama/Llama-3.2-1B", download + "meta-llama/Llama-3.2-1B --local-dir meta-llama/Llama-3.2-1B");
  for (const fs::path& path : {folder / "no", fs::path("../no"), fs::path("a b"), fs::path("-x"), fs::path("no/")})
    refused(path, download + "OWNER/NAME --local-dir FOLDER");
  write_text(folder / "config.json", "{}", "test");
  refused(folder / "config.json", "Give the file's folder.");
}

// Copies weights under the names of `renamed`; an empty name leaves the tensor out.
void copy_weights(const fs::path& from, const fs::path& to, const std::map<std::string, std::string>& renamed) {
  const auto file = SafetensorsFile::open(from);
  std::vector<TensorEntry> entries;
  std::map<std::string, std::string> original;
  for (const std::string& name : file.names()) {
    const auto found = renamed.find(name);
    const std::string now = found == renamed.end() ? name : found->second;
    if (now.empty()) continue;
    original[now] = name;
    entries.push_back({now, file.info(name).dtype, file.info(name).shape});
  }
  write_safetensors(to, SafetensorsPlan(entries),
                    [&](const TensorEntry& entry) { return file.bytes(original.at(entry.name)); });
}

// transformers would initialize a new head here.
TEST_F(Folder, WithoutTheHeadOfAnUntiedModelIsRefused) {
  for (const std::string family : {"llama", "mixtral", "qwen3"}) {
    fs::copy(references / family, folder / family);
    copy_weights(references / family / "model.safetensors", folder / family / "model.safetensors",
                 {{"lm_head.weight", ""}});
    testing::expect_error_with(ErrorKind::invalid_file,
                               {"[load_pretrained] ", "it has no \"lm_head.weight\"", "tie_word_embeddings"},
                               [&] { from_pretrained(folder / family); });
  }
}

TEST_F(Folder, OfATiedModelMayHaveTheHeadInPlaceOfTheEmbedding) {
  fs::copy(references / "qwen2_tied", folder / "qwen2");
  copy_weights(references / "qwen2_tied/model.safetensors", folder / "qwen2/model.safetensors",
               {{"model.embed_tokens.weight", "lm_head.weight"}});
  CausalLM expected = from_pretrained(references / "qwen2_tied");
  testing::expect_trees_near(from_pretrained(folder / "qwen2"), expected, 0, "by the head");
  // The embedding of an untied model cannot be read from its head.
  fs::copy(references / "llama", folder / "llama");
  copy_weights(references / "llama/model.safetensors", folder / "llama/model.safetensors",
               {{"model.embed_tokens.weight", ""}});
  testing::expect_error_with(ErrorKind::invalid_file, {"it has no \"model.embed_tokens.weight\""},
                             [&] { from_pretrained(folder / "llama"); });
}

TEST_F(Folder, WithTwoSetsOfWeightsIsRefused) {
  const CausalLM model = from_pretrained(references / "llama");
  save_pretrained(folder / "two", model);
  from_pretrained(folder / "two");
  fs::copy(references / "llama/model.safetensors", folder / "two/model.safetensors");
  testing::expect_error_with(
      ErrorKind::invalid_file,
      {"two: it has two sets of weights: model-00001-of-00001.safetensors and model.safetensors. Remove one of them."},
      [&] { from_pretrained(folder / "two"); });
  fs::remove(folder / "two/model.safetensors.index.json");
  testing::expect_error_with(ErrorKind::invalid_file, {"model.safetensors and model-00001-of-00001.safetensors"},
                             [&] { from_pretrained(folder / "two"); });
}

TEST_F(Folder, WithoutSomeTensorsNamesThemAll) {
  fs::copy(references / "llama", folder / "llama");
  copy_weights(references / "llama/model.safetensors", folder / "llama/model.safetensors",
               {{"model.norm.weight", ""}, {"model.layers.1.self_attn.k_proj.weight", ""}});
  testing::expect_error_with(ErrorKind::invalid_file,
                             {"it has no \"model.layers.1.self_attn.k_proj.weight\", \"model.norm.weight\". "},
                             [&] { from_pretrained(folder / "llama"); });
}

// Each row: files of a folder, and words of the Error. A file's text is its name.
TEST_F(Folder, ThatIsNoModelIsRefusedWithAdvice) {
  const struct {
    std::vector<std::string> files;
    std::vector<std::string> words;
  } cases[] = {
      {{"config.json", "pytorch_model.bin"}, {"[load_pretrained] ", "it has pytorch_model.bin", "save_pretrained"}},
      {{"config.json", "pytorch_model.bin.index.json"}, {"it has pytorch_model.bin.index.json, expected"}},
      {{"config.json", "x.Q4_K.gguf"}, {"it has x.Q4_K.gguf, expected", "gguf_file=NAME"}},
      {{"x.Q4_K.gguf"}, {"[from_pretrained] ", "it has x.Q4_K.gguf, expected"}},
      {{"consolidated.00.pth", "params.json"}, {"it has consolidated.00.pth, expected", "Meta and Mistral"}},
      {{"config.json", "consolidated.safetensors"}, {"it has consolidated.safetensors, expected", "Meta and Mistral"}},
      {{"config.json", "flax_model.msgpack"}, {"it has flax_model.msgpack", "from_flax=True"}},
      {{"config.json", "tf_model.h5"}, {"it has tf_model.h5", "from_tf=True"}},
      {{"config.json", "model.fp16.safetensors"}, {"it has model.fp16.safetensors", "a variant"}},
      {{"config.json", "model-00001-of-00002.safetensors"}, {"Its index, model.safetensors.index.json, is missing."}},
      {{"config.json", "adapter_model.safetensors"}, {"it has adapter_model.safetensors", "merge_and_unload"}},
      {{"config.json", "model.safetensors.index.json", "model-00001-of-00002.safetensors"},
       {"model.safetensors.index.json: it lists model-00002-of-00002.safetensors, which is missing."}},
      {{"adapter_config.json", "model.safetensors", "config.json"},
       {"[from_pretrained] ", "an adapter of PEFT for a/base, expected", "--adapter", "merge_and_unload"}},
      {{"model.safetensors"}, {"it has weights and no config.json"}},
      {{"model.safetensors.index.json", "model-00001-of-00002.safetensors"}, {"it has weights and no config.json"}},
      {{"config.json"}, {"it has no weights, expected model.safetensors, or"}},
      {{"snapshots/1/config.json"}, {"[from_pretrained] ", "one of its snapshots", "/snapshots: 1."}},
  };
  const std::map<std::string, std::string> texts{
      {"config.json", config_text(R"("model_type": "llama")")},
      {"adapter_config.json", R"({"base_model_name_or_path": "a/base", "r": 8})"},
      {"model.safetensors.index.json", R"({"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors",
                                           "b": "model-00002-of-00002.safetensors"}})"}};
  for (const auto& c : cases) {
    fs::remove_all(folder);
    for (const std::string& file : c.files) {
      fs::create_directories((folder / file).parent_path());
      write_text(folder / file, texts.contains(file) ? texts.at(file) : file, "test");
    }
    for (const std::string& word : c.words)
      testing::expect_error_with(ErrorKind::invalid_file, {word}, [&] { from_pretrained(folder); });
  }
  testing::expect_error_with(ErrorKind::invalid_file, {"~/no: not a folder", "~ is not expanded here."},
                             [] { from_pretrained("~/no"); });
}

TEST_F(Folder, OfPointersOfGitLfsIsRefused) {
  for (const std::string file : {"config.json", "model.safetensors"}) {
    fs::remove_all(folder);
    fs::copy(references / "llama", folder);
    write_text(folder / file, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 57296\n", "test");
    testing::expect_error_with(ErrorKind::invalid_file, {file + ": this is a pointer of Git LFS", "git lfs pull"},
                               [&] { from_pretrained(folder); });
  }
}

TEST_F(Folder, WithAGenerationConfigEndsTextsThere) {
  fs::copy(references / "llama", folder / "llama");
  const auto write = [&](const std::string& ids) {
    write_text(folder / "llama/generation_config.json", "{\"eos_token_id\": " + ids + "}", "test");
  };
  const auto written = [&](const GenerateOptions& options) {
    return generate(from_pretrained(folder / "llama"), Key(0), {{1, 2}}, options)[0];
  };
  const GenerateOptions options{.max_new_tokens = 8, .sampling = {.temperature = 0}};
  const std::vector<int32_t> whole = written(options);
  const auto end = std::find(whole.begin(), whole.end(), whole[1]) + 1;
  write(std::to_string(whole[1]));
  EXPECT_EQ(written(options), std::vector<int32_t>(whole.begin(), end));
  write("[100000, " + std::to_string(whole[1]) + "]");
  EXPECT_EQ(written(options), std::vector<int32_t>(whole.begin(), end));
  EXPECT_EQ(written({.max_new_tokens = 8, .sampling = {.temperature = 0}, .eos_token_id = {100000}}), whole);
  write("null");
  EXPECT_EQ(written(options), whole);
  write("\"</s>\"");
  testing::expect_error_with(ErrorKind::invalid_file, {"generation_config.json.eos_token_id", "a whole number from 0"},
                             [&] { from_pretrained(folder / "llama"); });
}

// transformers prefers model.safetensors.
TEST_F(Folder, WithOneFileAndAnIndexOfFilesThatAreNotThereIsRead) {
  fs::copy(references / "llama", folder / "llama");
  write_text(folder / "llama/model.safetensors.index.json", R"({"weight_map": {"a": "model-1.safetensors"}})", "test");
  write_text(folder / "llama/consolidated.00.pth", "any", "test");
  CausalLM expected = from_pretrained(references / "llama");
  testing::expect_trees_near(from_pretrained(folder / "llama"), expected, 0, "one file");
}

std::string without(const std::string& prefix, const std::string& name) {
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

// Writes the folder of a reference with other names of tensors, and with tensors of `more`.
void rename_all(const std::string& reference, const fs::path& to,
                const std::function<std::string(const std::string&)>& rename,
                const std::vector<std::string>& more = {}) {
  const auto file = SafetensorsFile::open(references / reference / "model.safetensors");
  std::vector<TensorEntry> entries;
  std::map<std::string, std::string> original;
  for (const std::string& name : file.names()) {
    original[rename(name)] = name;
    entries.push_back({rename(name), file.info(name).dtype, file.info(name).shape});
  }
  for (const std::string& name : more) entries.push_back({name, int8, {3}});
  const std::vector<std::byte> bytes(3);
  write_safetensors(to / "model.safetensors", SafetensorsPlan(entries), [&](const TensorEntry& entry) {
    return original.contains(entry.name) ? file.bytes(original[entry.name]) : std::span(bytes);
  });
}

TEST_F(Folder, MayHavePrefixesOnItsTensors) {
  const struct {
    std::string reference;
    std::function<std::string(const std::string&)> rename;
  } cases[] = {
      {"llama", [](const std::string& name) { return "module." + name; }},
      {"mixtral", [](const std::string& name) { return "module._orig_mod." + name; }},
      {"gpt2", [](const std::string& name) { return without("transformer.", name); }},
      {"gpt2_untied", [](const std::string& name) { return "_orig_mod." + name; }},
      {"qwen2_tied", [](const std::string& name) { return without("model.", name); }},
  };
  for (const auto& c : cases) {
    fs::remove_all(folder);
    fs::copy(references / c.reference, folder);
    rename_all(c.reference, folder, c.rename);
    CausalLM expected = from_pretrained(references / c.reference);
    testing::expect_trees_near(from_pretrained(folder), expected, 0, c.reference);
  }
}

// The two forms in which transformers has written multimodal models.
TEST_F(Folder, OfAMultimodalModelGivesItsDecoder) {
  const fs::path from = folder / "from";
  const std::string text = read_text(references / "mistral/config.json", "test");
  const std::function<std::string(const std::string&)> forms[] = {
      [](const std::string& name) { return "language_model." + name; },
      [](const std::string& name) {
        return name.starts_with("model.") ? "model.language_model." + without("model.", name) : name;
      }};
  CausalLM expected = from_pretrained(references / "mistral");
  for (const auto& form : forms) {
    fs::remove_all(folder);
    fs::create_directories(from);
    write_text(from / "config.json", R"({"model_type": "mistral3", "vision_config": {}, "text_config": )" + text + "}",
               "test");
    rename_all("mistral", from, form, {"vision_tower.a", "model.multi_modal_projector.b"});
    const CausalLM model = from_pretrained(from);
    testing::expect_trees_near(model, expected, 0, "multimodal");
    save_pretrained(folder / "to", model, from);
    testing::expect_trees_near(from_pretrained(folder / "to"), expected, 0, "saved");
    EXPECT_EQ(read_text(folder / "to/config.json", "test").find("text_config"), std::string::npos);

    rename_all("mistral", from, form, {"vision_tower.a", "speech.b"});
    testing::expect_error_with(ErrorKind::invalid_file, {"the model has no place for speech.b. "},
                               [&] { from_pretrained(from); });
    write_text(from / "config.json", text, "test");
    testing::expect_error_with(ErrorKind::invalid_file, {"it has no \"", "\"model.embed_tokens.weight\""},
                               [&] { from_pretrained(from); });
  }
}

TEST_F(Folder, OfAPeftAdapterIsAddedToItsBase) {
  const fs::path adapters = fs::path(TESSERA_REFERENCE_DIR) / "peft";
  for (const std::string name : {"llama", "qwen2_rslora", "gpt2"}) {
    const boost::json::value expected = parse_json_file(adapters / name / "expected.json");
    const fs::path base = references / std::string(expected.at("base").as_string());
    const auto logits_of = [](const CausalLM& model) {
      const Array logits = model(array<int32_t>({1, 2, 3, 4, 5, 6}, {1, 6}));
      return logits.index({0, 5}).to_host<float>();
    };
    const auto given = logits_of(from_pretrained(base, {.adapter = adapters / name}));
    const auto& rows = expected.at("logits_last").as_array();
    ASSERT_EQ(given.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(given[i], rows[i].to_number<double>(), 1e-5) << name << i;
    EXPECT_NE(logits_of(from_pretrained(base)), given);
  }
}

TEST_F(Folder, OfAnotherAdapterIsRefused) {
  const fs::path reference = fs::path(TESSERA_REFERENCE_DIR) / "peft/llama";
  const struct {
    std::string from, to, words;  // change of adapter_config.json
  } cases[] = {
      {R"("peft_type": "LORA")", R"("peft_type": "IA3")",
       "adapter_config.json.peft_type: is not supported, expected LORA."},
      {R"("rank_pattern": {})", R"("rank_pattern": {"q_proj": 4})", "rank_pattern: is not supported, expected none."},
      {R"("use_dora": false)", R"("use_dora": true)", "use_dora: is not supported, expected none. Or merge it"},
      {R"("init_lora_weights": true)", R"("init_lora_weights": "pissa")", "init_lora_weights: is not supported"},
      {R"("r": 2)", R"("r": 3)", "lora_A.weight has the shape (2, 24) and lora_B (24, 2), expected rank 3"},
      {R"("r": 2)", R"("r": 0)", "adapter_config.json.r: 0 given, expected a whole number from 1 to 2147483648."},
      {R"("fan_in_fan_out": false)", R"("fan_in_fan_out": true)", "Give the base model of this adapter."},
  };
  for (const auto& [from, to, words] : cases) {
    fs::remove_all(folder);
    fs::copy(reference, folder);
    std::string text = read_text(folder / "adapter_config.json", "test");
    ASSERT_NE(text.find(from), std::string::npos) << from;
    write_text(folder / "adapter_config.json", text.replace(text.find(from), from.size(), to), "test");
    testing::expect_error_with(ErrorKind::invalid_file, {words},
                               [&] { from_pretrained(references / "llama", {.adapter = folder}); });
  }
  fs::remove_all(folder);
  fs::copy(reference, folder);
  const std::string layer = "base_model.model.model.layers.0.self_attn.q_proj.";
  copy_weights(reference / "adapter_model.safetensors", folder / "adapter_model.safetensors",
               {{layer + "lora_A.weight", layer + "lora_C.weight"}});
  testing::expect_error_with(
      ErrorKind::invalid_file,
      {layer + "lora_B.weight", layer + "lora_C.weight cannot be added to the base model", "merge_and_unload"},
      [&] { from_pretrained(references / "llama", {.adapter = folder}); });
}

// A list of all missing tensors would take minutes.
TEST_F(Folder, OfTooFewExpertsNamesSomeOfTheMissingOnes) {
  fs::copy(references / "mixtral", folder);
  boost::json::value config = parse_json_file(folder / "config.json");
  config.as_object()["num_local_experts"] = config.as_object()["num_hidden_layers"] = 10'000;
  write_text(folder / "config.json", boost::json::serialize(config), "test");
  testing::expect_error_with(ErrorKind::invalid_file, {"it has no ", ".experts.10.w", " more."},
                             [&] { from_pretrained(folder); });
}

TEST_F(Folder, KeepsTheElementTypeThatIsAskedFor) {
  const CausalLM model = from_pretrained(references / "llama", {.dtype = bfloat16});
  CausalLM copy = model;
  for (const Leaf& leaf : leaves(copy)) EXPECT_EQ(leaf.value->dtype(), bfloat16) << leaf.path;
  save_pretrained(folder, model);
  CausalLM again = from_pretrained(folder, {.dtype = bfloat16});
  testing::expect_trees_near(again, model, 0, "saved in bfloat16");
  EXPECT_NE(read_text(folder / "config.json", "test").find("bfloat16"), std::string::npos);
}

TEST_F(Folder, OfAnotherSaveOrModelIsRefused) {
  using Save = void (*)(const fs::path&, const CausalLM&, const std::optional<fs::path>&);
  const CausalLM model = from_pretrained(references / "llama");
  fs::copy(references / "llama", folder / "old");
  const auto expect_refused = [&](const auto& call) {
    testing::expect_error_with(ErrorKind::invalid_file,
                               {"[save_pretrained] ", "weights of another save, model.safetensors"}, call);
  };
  expect_refused([&] { save_pretrained(folder / "old", model); });
  expect_refused([&] { check_save_pretrained(folder / "old", model); });
  testing::expect_error_with(ErrorKind::invalid_argument, {"[save_pretrained] ", "the config of another model"},
                             [&] { save_pretrained(folder / "new", model, references / "llama_yarn"); });
  testing::expect_error_with(ErrorKind::invalid_file, {"[save_pretrained] "},
                             [&] { save_pretrained(folder / "new", model, folder / "nothing"); });
  EXPECT_FALSE(fs::exists(folder / "new"));
  save_pretrained(folder / "new", model, references / "llama");
  save_pretrained(folder / "new", model, references / "llama");
  const CausalLM other = from_pretrained(references / "llama_yarn");
  for (const auto save : {static_cast<Save>(save_pretrained), static_cast<Save>(check_save_pretrained)})
    testing::expect_error_with(ErrorKind::invalid_file, {"new/config.json: it is the config of another model."},
                               [&] { save(folder / "new", other, {}); });
  write_text(folder / "new/config.json", "{}", "test");
  testing::expect_error_with(ErrorKind::invalid_file, {"new/config.json: it is the config of another model."},
                             [&] { save_pretrained(folder / "new", model); });
}

TEST_F(Folder, HasAConfigOfTheTypeOfItsWeights) {
  save_pretrained(folder / "half", from_pretrained(references / "llama", {.dtype = bfloat16}), references / "llama");
  EXPECT_NE(read_text(folder / "half/config.json", "test").find("\"bfloat16\""), std::string::npos);
}

// transformers refuses the 4 of published folders.
TEST_F(Folder, OfLlama4HasABooleanTemperature) {
  fs::copy(references / "llama4", folder / "from");
  std::string config = read_text(folder / "from/config.json", "test");
  const std::string key = "\"attn_temperature_tuning\": ";
  config.replace(config.find(key + "true"), key.size() + 4, key + "4");
  write_text(folder / "from/config.json", config, "test");
  save_pretrained(folder / "to", from_pretrained(folder / "from"), folder / "from");
  EXPECT_NE(read_text(folder / "to/config.json", "test").find("\"attn_temperature_tuning\":true"), std::string::npos);
}

TEST_F(Folder, KeepsItsConfigWhateverItsLossWasInTraining) {
  CausalLM model = from_pretrained(references / "mixtral");
  model.set_router_aux_loss_coef(0.1);
  save_pretrained(folder / "new", model, references / "mixtral");
  EXPECT_EQ(read_text(folder / "new/config.json", "test"), read_text(references / "mixtral/config.json", "test"));
}

TEST_F(Folder, GetsTheOtherFilesOfTheOneThatWasRead) {
  const fs::path from = folder / "from", to = folder / "to";
  fs::copy(references / "qwen2_tied", from);
  write_text(from / "tokenizer.json", "{\"any\": 1}", "test");
  write_text(from / "model.bin.index.json", "{}", "test");
  save_pretrained(to, from_pretrained(from), from);
  EXPECT_EQ(read_text(to / "config.json", "test"), read_text(from / "config.json", "test"));
  EXPECT_EQ(read_text(to / "tokenizer.json", "test"), "{\"any\": 1}");
  EXPECT_FALSE(fs::exists(to / "model.bin.index.json"));
  CausalLM model = from_pretrained(from);
  testing::expect_trees_near(from_pretrained(to), model, 0, "saved beside");
  save_pretrained(to, model, to);
  EXPECT_EQ(read_text(to / "tokenizer.json", "test"), "{\"any\": 1}");
}

// A downloaded folder can contain code, and links to the user's files.
TEST_F(Folder, GetsNoCodeAndNoFileFromElsewhere) {
  const fs::path from = folder / "from", to = folder / "to";
  fs::copy(references / "qwen2_tied", from);
  write_text(folder / "secret.txt", "secret", "test");
  fs::create_symlink("../secret.txt", from / "notes.txt");
  write_text(from / "modeling_x.py", "import os", "test");
  write_text(from / "tokenizer_config.json", R"({"auto_map": {"AutoTokenizer": ["x.T", null]}, "model_max_length": 8})",
             "test");
  std::string config = read_text(from / "config.json", "test");
  config.insert(config.find('{') + 1, R"("auto_map": {"AutoModelForCausalLM": "modeling_x.M"},)");
  write_text(from / "config.json", config, "test");
  const CausalLM model = from_pretrained(from);
  save_pretrained(to, model, from);
  for (const char* name : {"notes.txt", "modeling_x.py"}) EXPECT_FALSE(fs::exists(to / name)) << name;
  EXPECT_EQ(read_text(to / "config.json", "test").find("auto_map"), std::string::npos);
  EXPECT_EQ(read_text(to / "tokenizer_config.json", "test"), "{\"model_max_length\":8}\n");

  fs::create_symlink("../secret.txt", from / "LICENSE");
  const auto expect_refused = [&](const auto& call) {  // before the weights are written
    testing::expect_error_with(ErrorKind::invalid_file, {"LICENSE: a link to ", "secret.txt, outside the folder"},
                               [&] { call(folder / "a/new/one"); });
  };
  expect_refused([&](const fs::path& there) { check_save_pretrained(there, model, from); });
  expect_refused([&](const fs::path& there) { save_pretrained(there, model, from); });
  EXPECT_FALSE(fs::exists(folder / "a"));
  save_pretrained(folder / "a/new/one", model);
  EXPECT_TRUE(fs::exists(folder / "a/new/one/model.safetensors.index.json"));
}

TEST_F(Folder, MayBeASnapshotInACacheWhoseFilesAreLinks) {
  const fs::path cached = folder / "models--a--b", from = cached / "snapshots/1", to = folder / "to";
  fs::create_directories(from);
  fs::copy(references / "qwen2_tied", cached / "blobs");
  write_text(cached / "blobs/hash", "licence", "test");
  for (const fs::directory_entry& blob : fs::directory_iterator(cached / "blobs"))
    if (blob.path().filename() != "hash")
      fs::create_symlink("../../blobs" / blob.path().filename(), from / blob.path().filename());
  fs::create_symlink("../../blobs/hash", from / "LICENSE");
  save_pretrained(to, from_pretrained(from), from);
  EXPECT_EQ(read_text(to / "LICENSE", "test"), "licence");
  EXPECT_FALSE(fs::is_symlink(to / "LICENSE"));
}

TEST_F(Folder, OfAPaddedModelIsThatOfOneDevice) {
  for (const std::string family : {"gpt2", "llama", "qwen2_tied"}) {
    const CausalLM alone = from_pretrained(references / family);
    save_pretrained(folder / family, alone);
    const Array ids = array<int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
    for (const int devices : {3, 5}) {
      const Mesh mesh = make_mesh({{"model", devices}});
      const MeshRules mesh_rules{mesh, decoder_rules(mesh), {.uneven = Uneven::pad}};
      const CausalLM padded = from_pretrained(references / family, mesh_rules);
      EXPECT_EQ(padded.config.padded_vocab_size(), alone.config.vocab_size) << family;
      testing::expect_near(gather(padded(ids)), alone(ids), 1e-5, family);
      const fs::path saved = folder / (family + std::to_string(devices));
      save_pretrained(saved, padded);
      for (const fs::directory_entry& file : fs::directory_iterator(folder / family))
        EXPECT_TRUE(read_text(saved / file.path().filename(), "test") == read_text(file.path(), "test")) << file.path();
    }
  }
}

}  // namespace
}  // namespace tessera::nn::hugging_face_test
