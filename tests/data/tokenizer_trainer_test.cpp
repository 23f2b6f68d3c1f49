// train_tokenizer: the merges and ids of BpeTrainer, and errors.
#include "data/text/tokenizer_trainer.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/sources/text_source.h"
#include "data/text/tokenizer.h"
#include "sharding/files/json.h"
#include "tests/data/expect_error.h"
#include "tests/data/scratch_folder.h"
#include "tests/data/skip_without.h"

namespace tessera::data::tokenizer_trainer_test {
namespace {

namespace json = boost::json;
using Texts = std::vector<std::string>;

class TokenizerTrainerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::skip_without("without ICU", [&] { TokenizerTrainer({.vocab_size = 300}); });
  }

  static json::value trained(const Texts& texts, const TokenizerTrainerOptions& options) {
    return parse_json(train_tokenizer(texts, options), "test", "trained");
  }
};

TEST_F(TokenizerTrainerTest, LearnsWhatBpeTrainerLearns) {
  const std::string folder = TESSERA_REFERENCE_DIR "/trained_tokenizers/";
  const auto all = json::value_to<Texts>(parse_json_file(folder + "texts.json"));
  for (const char* name : {"gpt2", "frequent", "gpt4", "exhausted"}) {
    const json::value expected = parse_json_file(folder + name + ".json");
    const json::value& options = expected.at("options");
    const Texts texts(all.begin() + expected.at("first_text").as_int64(), all.end());
    const json::value learnt = trained(texts, {.vocab_size = options.at("vocab_size").as_int64(),
                                               .special_tokens = json::value_to<Texts>(options.at("special_tokens")),
                                               .min_frequency = options.at("min_frequency").as_int64(),
                                               .pattern = std::string(options.at("pattern").as_string())});
    const json::array& merges = learnt.at("model").at("merges").as_array();
    const json::array& others = expected.at("tokenizer").at("model").at("merges").as_array();
    for (size_t i = 0; i < std::min(merges.size(), others.size()); ++i)
      ASSERT_EQ(merges[i], others[i]) << name << ", merge " << i;
    EXPECT_GT(merges.size(), 800u);
    EXPECT_TRUE(learnt == expected.at("tokenizer")) << name;
  }
}

TEST_F(TokenizerTrainerTest, WritesWhatATokenizerReads) {
  const ScratchFolder folder;
  const auto path = folder.write("a.txt", "low lower lowest\nnew newer newest caf\xc3\xa9 low\n");
  const std::string text =
      train_tokenizer(lines({path}), {.vocab_size = 264, .special_tokens = {"<|endoftext|>"}, .min_frequency = 2});
  const auto tokenizer = Tokenizer::from_json(text);
  EXPECT_EQ(tokenizer.vocab_size(), 264);
  EXPECT_EQ(tokenizer.id_to_token(0), "<|endoftext|>");
  EXPECT_EQ(tokenizer.id_to_token(257), "lo");  // four occurrences, as many as "ow" and "we", whose ids are larger
  const std::string sample = "slow caf\xc3\xa9s \xf0\x9f\x99\x82<|endoftext|>";
  const auto ids = tokenizer.encode(sample).ids;
  EXPECT_EQ(ids.back(), 0);
  EXPECT_EQ(tokenizer.decode(ids, {.skip_special_tokens = false}), sample);
  folder.write("tokenizer.json", text);
  EXPECT_EQ(Tokenizer::open(folder.path()).encode(sample).ids, ids);
}

TEST_F(TokenizerTrainerTest, OrderOfTheTextsDoesNotMatter) {
  EXPECT_EQ(train_tokenizer(Texts{"abab", "ba", "cab"}, {.vocab_size = 300}),
            train_tokenizer(Texts{"cab", "abab", "ba"}, {.vocab_size = 300}));
}

TEST_F(TokenizerTrainerTest, RefusesWhatCannotBeTrained) {
  const auto refused = [](const TokenizerTrainerOptions& options, const std::string& words) {
    expect_error(ErrorKind::invalid_argument, {"[train_tokenizer] " + words}, [&] { TokenizerTrainer{options}; });
  };
  refused({.vocab_size = 256, .special_tokens = {"<s>"}}, "a vocabulary of 256, expected 257");
  refused({.vocab_size = int64_t{1} << 31}, "a vocabulary of 2147483648");
  refused({.special_tokens = {"<s>", "<s>"}}, "a special token is empty or given twice");
  refused({.special_tokens = {""}}, "a special token is empty");
  refused({.min_frequency = -1}, "min_frequency -1");
  expect_error(ErrorKind::invalid_file, {"the regular expression (( cannot be read"},
               [] { TokenizerTrainer({.pattern = "(("}); });
  expect_error(ErrorKind::invalid_argument, {"the byte at 1 of a text is not UTF-8"},
               [] { train_tokenizer(Texts{"a\xff"}, {}); });
  expect_error(ErrorKind::invalid_argument, {"no text was given"}, [] { train_tokenizer(Texts{"", ""}, {}); });
}

}  // namespace
}  // namespace tessera::data::tokenizer_trainer_test
