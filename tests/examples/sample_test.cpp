// Sampling: windows that slide, where it stops, and bytes made readable.
#include "examples/train/sample.h"

#include <gtest/gtest.h>

#include "examples/transformer.h"

namespace tessera::train::sample_test {
namespace {

using examples::Gpt, examples::GptConfig;

// ---- sample

// Says which calls it got, and gives every byte the one behind it: 'a' is followed by 'b'.
struct Successor {
  struct Call {
    int64_t cached = 0;
    std::string read;
  };
  std::vector<Call>& calls;

  Array decode(const Array& ids, nn::DecoderCache& cache) const {
    const std::vector<int32_t> bytes = ids.to_host<int32_t>();
    calls.push_back({cache.length(), {bytes.begin(), bytes.end()}});
    cache.layers.resize(1);
    const Array kept = zeros({1, ids.shape(1), 1, 1});
    cache.layers[0].append(kept, kept);
    std::vector<float> logits(bytes.size() * 256);
    for (size_t i = 0; i < bytes.size(); ++i) logits[i * 256 + static_cast<size_t>(bytes[i] + 1) % 256] = 50;
    return array<float>(logits, {1, ids.shape(1), 256});
  }
};

TEST(Sample, ReadsThePromptOnceAndThenByteByByte) {
  std::vector<Successor::Call> calls;
  EXPECT_EQ(sample(Successor{calls}, Key(0), {.length = 4, .prompt = "xab", .window = 8}), "cdef");
  ASSERT_EQ(calls.size(), 4u);
  EXPECT_EQ(calls[0].read, "xab");
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(calls[i].cached, static_cast<int64_t>(2 + i));
    EXPECT_EQ(calls[i].read, std::string(1, static_cast<char>('b' + i)));
  }
}

TEST(Sample, AFullWindowSlidesByHalf) {
  for (const int64_t window : {1, 2, 3, 6, 7}) {
    SCOPED_TRACE(window);
    std::vector<Successor::Call> calls;
    EXPECT_EQ(sample(Successor{calls}, Key(0), {.length = 20, .prompt = "abc", .window = window}),
              "defghijklmnopqrstuvw");
    std::string read = "abc";
    for (const Successor::Call& call : calls) {
      EXPECT_LE(call.cached + static_cast<int64_t>(call.read.size()), window);
      EXPECT_TRUE(read.ends_with(call.read)) << "what is read anew is the end of the text";
      if (!call.cached && &call != &calls[0]) {
        EXPECT_EQ(call.read.size(), static_cast<size_t>((window + 1) / 2));
      }
      read += static_cast<char>(call.read.back() + 1);
    }
  }
}

TEST(Sample, BytesAreBytesNotSigned) {
  std::vector<Successor::Call> calls;
  EXPECT_EQ(sample(Successor{calls}, Key(0), {.length = 3, .prompt = "\xfe", .window = 8}),
            std::string("\xff\x00\x01", 3));
}

// A decoder of any width tells the same text with its cache as without one, and from the same key again.
template <class Model, class Config>
void expect_the_text_of_whole_passes(const Config& config) {
  const Model model = Model::init(Key(3), config);
  const SampleOptions options{.length = 12, .prompt = "once", .sampling = {}, .window = 16};
  const std::string text = sample(model, Key(4), options);
  EXPECT_EQ(sample(model, Key(4), options), text);
  EXPECT_NE(sample(model, Key(5), options), text);
  std::string whole = options.prompt;
  for (uint32_t i = 0; i < 12; ++i) {
    const Array logits = model(ids_of(whole));
    whole += static_cast<char>(nn::sample_token(fold_in(Key(4), i), last_logits(logits)));
  }
  EXPECT_EQ(whole, options.prompt + text);
}

TEST(Sample, OfAGptIsThatOfWholePasses) {
  expect_the_text_of_whole_passes<Gpt>(GptConfig{.embed = 16, .heads = 2, .layers = 2, .seq = 16, .mlp = 32});
}

TEST(Sample, OfALlamaIsThatOfWholePasses) {
  expect_the_text_of_whole_passes<nn::Llama>(nn::DecoderConfig{.hidden_size = 16,
                                                               .num_key_value_heads = 2,
                                                               .head_dim = 4,
                                                               .intermediate_size = 32,
                                                               .rms_norm_eps = 1e-5,
                                                               .tie_word_embeddings = true});
}

// ---- printable

TEST(Printable, KeepsTextAndEscapesTheRest) {
  const std::pair<std::string, std::string> cases[] = {
      {"int main() {\n\treturn 0;\n}", "int main() {\n\treturn 0;\n}"},
      {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\xb1", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x8c\xb1"},  // é € 🌱
      {std::string("\0\x1b[2J\r\x7f", 7), "\\x00\\x1b[2J\\x0d\\x7f"},
      {"\xc2\x9b", "\\xc2\\x9b"},                               // a control character of two bytes
      {"\x80 \xff \xfe", "\\x80 \\xff \\xfe"},                  // no first bytes
      {"a\xe2\x82", "a\\xe2\\x82"},                             // cut off
      {"\xe2\x82z", "\\xe2\\x82z"},                             // broken off
      {"\xc0\xaf \xe0\x80\xaf", "\\xc0\\xaf \\xe0\\x80\\xaf"},  // longer than need be
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},                      // half of a UTF-16 pair
      {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},             // past the last character
      {"\xf4\x8f\xbf\xbd", "\xf4\x8f\xbf\xbd"},
      {"", ""}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(printable(bytes), text);
}

}  // namespace
}  // namespace tessera::train::sample_test
