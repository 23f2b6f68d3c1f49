// generate: rows of different lengths in one batch, and the tokens that the sampling options allow.
#include "nn/models/generate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <span>

#include "nn/placement/filter_shard.h"
#include "tests/nn/support.h"

namespace tessera::nn::generate_test {
namespace {

using Ids = std::vector<int32_t>;

std::vector<CausalLM> models() {
  const DecoderConfig small{
      .vocab_size = 30, .hidden_size = 16, .num_key_value_heads = 2, .head_dim = 8, .intermediate_size = 24};
  DecoderConfig windows = small, gpt = config_of_family("gpt2", small);
  windows.windows = {3, 0};
  gpt.max_position_embeddings = 40;
  DecoderConfig chunks = config_of_family("llama4_text", small), latent = config_of_family("deepseek_v3", small);
  chunks.attention_chunk_size = 3, chunks.no_rope_layers = {1, 0}, chunks.query_temperature->floor_scale = 2;
  latent.moe_layers = {0, 1}, latent.moe_intermediate_size = 8, latent.kv_lora_rank = 12, latent.q_lora_rank = 0;
  latent.num_experts_per_tok = 2;
  for (DecoderConfig* config : {&chunks, &latent}) config->num_local_experts = 8, config->moe_intermediate_size = 8;
  std::vector<CausalLM> all;
  for (const DecoderConfig& config : {small, windows, gpt, chunks, latent})
    all.push_back(CausalLM::init(Key(2), config));
  return all;
}

const std::vector<Ids> prompts{{3, 1, 4, 1, 5}, {9}, {2, 6, 5}};

TEST(Generate, RowsTogetherAreThoseOfEachAlone) {
  for (const CausalLM& model : models()) {
    for (const double temperature : {0.0, 1.0}) {
      const GenerateOptions options{.max_new_tokens = 12, .sampling = {.temperature = temperature}};
      const std::vector<Ids> together = generate(model, Key(7), prompts, options);
      ASSERT_EQ(together.size(), 3u);
      EXPECT_EQ(generate(model, Key(7), {prompts[0]}, options)[0], together[0]);
      if (temperature > 0) continue;  // a row's key depends on its index
      for (size_t i = 0; i < prompts.size(); ++i)
        EXPECT_EQ(generate(model, Key(7), {prompts[i]}, options)[0], together[i]) << i;
    }
  }
}

TEST(Generate, IsTheSameOnEveryMesh) {
  const Mesh mesh = make_mesh({{"fsdp", 2}, {"model", 2}});
  for (const CausalLM& model : models()) {
    const CausalLM there = filter_shard(model, MeshRules{mesh, decoder_rules(mesh)});
    EXPECT_EQ(generate(there, Key(7), prompts, {.max_new_tokens = 8}),
              generate(model, Key(7), prompts, {.max_new_tokens = 8}));
  }
}

TEST(Generate, NeverWritesThePaddingOfAVocabulary) {
  const CausalLM model = CausalLM::init(
      Key(2), {.vocab_size = 3, .hidden_size = 16, .head_dim = 4, .intermediate_size = 24, .vocab_rows = 40});
  const auto written = generate(model, Key(1), {{1}}, {.max_new_tokens = 60, .sampling = {.temperature = 1e30}});
  EXPECT_EQ(written[0].size(), 60u);
  for (const int32_t id : written[0]) EXPECT_LT(id, 3);
}

TEST(Generate, ARowEndsAfterAnEndIdOrAStoppingCriterion) {
  const CausalLM model = models()[0];
  const std::vector<Ids> whole = generate(model, Key(7), prompts, {.max_new_tokens = 10});
  const int32_t end = whole[0][3];
  const std::vector<Ids> ended = generate(model, Key(7), prompts, {.max_new_tokens = 10, .eos_token_id = {end}});
  for (size_t i = 0; i < 3; ++i) {
    const auto first = std::find(whole[i].begin(), whole[i].end(), end);
    EXPECT_EQ(ended[i], Ids(whole[i].begin(), first == whole[i].end() ? first : first + 1)) << i;
  }
  const auto told = generate(
      model, Key(7), prompts,
      {.max_new_tokens = 10, .stopping_criteria = [](std::span<const int32_t> row) { return row.size() == 4; }});
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(told[i], Ids(whole[i].begin(), whole[i].begin() + 4));
  EXPECT_EQ(generate(model, Key(7), prompts, {.max_new_tokens = 0}), std::vector<Ids>(3));
}

TEST(Generate, RotatesTheWholeTextOfAPhi3ByTheLongFactors) {
  DecoderConfig config = config_of_family("phi3", models()[0].config);
  config.rope.scaling = {.kind = RotaryScaling::longrope,
                         .factor = 4,
                         .original_positions = 8,
                         .short_factors = std::vector<double>(4, 1),
                         .long_factors = {1.5, 3, 6, 20}};
  CausalLM model = CausalLM::init(Key(5), config);
  for (const Leaf& leaf : leaves(model)) *leaf.value = 4 * *leaf.value;  // so that positions matter
  const auto texts = generate(model, Key(7), prompts, {.max_new_tokens = 12, .sampling = {.temperature = 0}});
  Ids whole = prompts[0];
  for (const int32_t token : texts[0]) {
    const auto length = static_cast<int64_t>(whole.size());
    const auto all = model(array<int32_t>(whole, {1, length})).to_host<float>();
    const auto logits = std::span(all).last(all.size() / whole.size());
    EXPECT_EQ(token, sample_token(Key(7), logits, {.temperature = 0})) << length;
    whole.push_back(token);
  }
}

TEST(Generate, ReadsAsManyLogitsAsTheModelHas) {
  CausalLM model = models()[0];
  const std::vector<Ids> tokens = generate(model, Key(7), prompts, {.max_new_tokens = 4});
  model.config.vocab_size = 100'000;  // as a forged checkpoint can set it
  EXPECT_EQ(generate(model, Key(7), prompts, {.max_new_tokens = 4}), tokens);
}

// The relative frequencies of 4,000 samples.
std::map<int32_t, double> frequencies(const std::vector<float>& logits, const SamplingOptions& options) {
  std::map<int32_t, double> counts;
  for (uint32_t i = 0; i < 4000; ++i) counts[sample_token(Key(i), logits, options)] += 1.0 / 4000;
  return counts;
}

TEST(SampleToken, DrawsByTheProbabilitiesOfWhatIsLeft) {
  const std::vector<float> logits{std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  const struct {
    SamplingOptions options;
    std::map<int32_t, double> expected;
  } table[] = {{{}, {{0, 0.1}, {1, 0.4}, {2, 0.2}, {3, 0.3}}},
               {{.temperature = 0.5}, {{0, 0.01 / 0.3}, {1, 0.16 / 0.3}, {2, 0.04 / 0.3}, {3, 0.09 / 0.3}}},
               {{.temperature = 0}, {{1, 1}}},
               {{.top_k = 2}, {{1, 4.0 / 7}, {3, 3.0 / 7}}},
               {{.top_p = 0.69}, {{1, 4.0 / 7}, {3, 3.0 / 7}}},
               {{.top_p = 0.71}, {{1, 4.0 / 9}, {3, 3.0 / 9}, {2, 2.0 / 9}}},
               {{.top_p = 1e-9}, {{1, 1}}},
               {{.top_k = 3, .top_p = 0.7}, {{1, 4.0 / 7}, {3, 3.0 / 7}}}};
  for (const auto& row : table) {
    const auto got = frequencies(logits, row.options);
    ASSERT_EQ(got.size(), row.expected.size()) << row.options.top_k << ' ' << row.options.top_p;
    for (const auto& [token, share] : row.expected) EXPECT_NEAR(got.at(token), share, 0.03) << token;
  }
}

TEST(Generate, Errors) {
  const CausalLM model = models()[0];
  const std::vector<float> logits{1, 2};
  testing::expect_errors(
      {{ErrorKind::invalid_argument, "[generate] no prompts, expected one or more.",
        [&] { generate(model, Key(0), {}); }},
       {ErrorKind::invalid_argument, "[generate] prompt 1 is empty, expected a token or more to continue.",
        [&] {
          generate(model, Key(0), {{1}, {}});
        }},
       {ErrorKind::invalid_argument, "[generate] max_new_tokens = -1, expected 0 or more.",
        [&] { generate(model, Key(0), {{1}}, {.max_new_tokens = -1}); }},
       {ErrorKind::invalid_argument, "[sample_token] top_p = 0, expected a number above 0 and up to 1.",
        [&] { sample_token(Key(0), logits, {.top_p = 0}); }},
       {ErrorKind::invalid_argument, "[sample_token] top_k = -2, expected 1 or more, or 0 for all.",
        [&] { sample_token(Key(0), logits, {.top_k = -2}); }},
       {ErrorKind::invalid_argument,
        "[generate] max_new_tokens = 40 after a prompt of 5, expected 36 at most, for which the model has positions.",
        [&] { generate(models()[2], Key(0), prompts, {.max_new_tokens = 40}); }},
       {ErrorKind::invalid_argument,
        "[sample_token] logits that are not numbers, expected finite ones. Did the model diverge?",
        [&] {
          sample_token(Key(0), std::vector<float>{1, NAN});
        }},
       {ErrorKind::invalid_argument, "[sample_token] temperature = -1, expected a number from 0 on.",
        [&] { sample_token(Key(0), logits, {.temperature = -1}); }}});
}

}  // namespace
}  // namespace tessera::nn::generate_test
