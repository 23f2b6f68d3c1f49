// Sampling: sliding windows, when they end, and bytes printed readably.
#include "examples/train/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <span>

#include "sharding/operations.h"

namespace tessera::train::sample_test {
namespace {

using Ids = std::vector<int32_t>;

constexpr int64_t positions = 16;

std::vector<nn::CausalLM> models() {
  const nn::DecoderConfig llama{.hidden_size = 16, .num_key_value_heads = 2, .head_dim = 4, .intermediate_size = 32};
  nn::DecoderConfig gpt = nn::config_of_family("gpt2", llama);
  gpt.max_position_embeddings = positions;
  return {nn::CausalLM::init(Key(3), gpt), nn::CausalLM::init(Key(3), llama)};
}

// The most likely token after `text`, from one forward pass that starts at position 0.
int32_t likeliest(const nn::CausalLM& model, const Ids& text) {
  const auto logits = model(array<int32_t>(text, {1, std::ssize(text)})).to_host<float>();
  return nn::sample_token(Key(0), std::span(logits).last(256), {.temperature = 0});
}

const nn::GenerateOptions likeliest_tokens{.max_new_tokens = 20, .sampling = {.temperature = 0}};
const Ids prompt{'o', 'n', 'c', 'e'};

// ---- sample

TEST(Sample, IsWhatGenerateWritesWhereThePositionsSuffice) {
  for (const nn::CausalLM& model : models()) {
    const nn::GenerateOptions options{.max_new_tokens = 12};
    EXPECT_EQ(sample(model, Key(4), prompt, options, positions), nn::generate(model, Key(4), {prompt}, options)[0]);
    EXPECT_NE(sample(model, Key(5), prompt, options, positions), sample(model, Key(4), prompt, options, positions));
  }
}

TEST(Sample, AFullWindowSlidesByHalf) {
  for (const nn::CausalLM& model : models())
    for (const int64_t window : {1, 2, 3, 6, 7, 16}) {
      SCOPED_TRACE(window);
      Ids text = prompt;
      Ids read(text.end() - std::min<int64_t>(window, 4), text.end());  // the tokens in the window
      for (int i = 0; i < 20; ++i) {
        if (std::ssize(read) > window) read = Ids(text.end() - (window + 1) / 2, text.end());
        const int32_t next = likeliest(model, read);
        text.push_back(next), read.push_back(next);
      }
      EXPECT_EQ(sample(model, Key(0), prompt, likeliest_tokens, window), Ids(text.begin() + 4, text.end()));
    }
}

TEST(Sample, EndsAtTheGivenNumberOfTokens) {
  const nn::CausalLM model = models()[0];
  const Ids whole = sample(model, Key(0), prompt, likeliest_tokens, 6);
  nn::GenerateOptions options = likeliest_tokens;
  options.stopping_criteria = [](std::span<const int32_t> written) { return written.size() == 13; };
  EXPECT_EQ(sample(model, Key(0), prompt, options, 6), Ids(whole.begin(), whole.begin() + 13)) << "of all windows";
  options.stopping_criteria = {};
  options.eos_token_id = {whole[9]};
  const auto end = std::find(whole.begin(), whole.end(), whole[9]) + 1;
  EXPECT_EQ(sample(model, Key(0), prompt, options, 6), Ids(whole.begin(), end));
}

// ---- printable

TEST(Printable, KeepsTextAndEscapesTheRest) {
  const std::pair<std::string, std::string> cases[] = {
      {"int main() {\n\treturn 0;\n}", "int main() {\n\treturn 0;\n}"},
      {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\xb1", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\xb1"},  // é € 🌱
      {std::string("\0\x1b[2J\r\x7f", 7), "\\x00\\x1b[2J\\x0d\\x7f"},
      {"\xc2\x9b", "\\xc2\\x9b"},                               // a control character of two bytes
      {"\x80 \xff \xfe", "\\x80 \\xff \\xfe"},                  // bytes that begin no character
      {"a\xe2\x82", "a\\xe2\\x82"},                             // cut off
      {"\xe2\x82z", "\\xe2\\x82z"},                             // interrupted
      {"\xc0\xaf \xe0\x80\xaf", "\\xc0\\xaf \\xe0\\x80\\xaf"},  // an overlong encoding
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},                      // half of a UTF-16 pair
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},             // above the last code point
      {"\xf4\x8f\xbf\xbd", "\xf4\x8f\xbf\xbd"},
      {"", ""}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(printable(bytes), text);
}

}  // namespace
}  // namespace tessera::train::sample_test
