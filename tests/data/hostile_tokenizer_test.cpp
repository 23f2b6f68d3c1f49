// Hostile tokenizer files and texts: encoding takes time and memory in proportion to the text, or throws.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/text/added_tokens.h"
#include "data/text/byte_pair_encoding.h"
#include "data/text/tokenizer.h"
#include "data/text/tokenizer_trainer.h"
#include "data/text/unicode_text.h"
#include "tests/data/expect_error.h"
#include "tests/data/memory_limit.h"
#include "tests/data/skip_without.h"

namespace tessera::data::hostile_tokenizer_test {
namespace {

using Ids = std::vector<int32_t>;

constexpr size_t megabyte = 1'000'000, max_memory = 100 * megabyte;

std::string repeated(const std::string& text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

// A tokenizer file with the vocabulary "a", "b" and a space, and these additional entries: R"("decoder": {...})".
std::string file_with(const std::string& parts) {
  return R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, " ": 2}, "merges": []}, )" + parts + "}";
}

std::string in_sequence(const std::string& kind, const std::string& name, const std::string& steps) {
  return file_with("\"" + kind + R"(": {"type": "Sequence", ")" + name + "\": [" + steps + "]}");
}

std::string split(const std::string& pattern) {
  return R"({"type": "Split", "behavior": "Isolated", "pattern": )" + pattern + "}";
}

class HostileTokenizer : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::skip_without("without ICU", [&] { Tokenizer::from_json(file_with(R"("decoder": null)")); });
  }
  static void expect_refused(const std::string& file, std::initializer_list<std::string> words) {
    expect_error(ErrorKind::invalid_file, words, [&] { Tokenizer::from_json(file); });
  }
  // Opens the file, which succeeds, and expects an error for this text.
  static void expect_text_refused(const std::string& file, const std::string& text,
                                  std::initializer_list<std::string> words) {
    const auto tokenizer = Tokenizer::from_json(file);
    expect_error(ErrorKind::invalid_file, words, [&] { tokenizer.encode(text); });
  }
};

TEST_F(HostileTokenizer, EmptyPatternsAreRefused) {
  const std::string empty = R"("replacement": ""})", one = "given, expected one character";
  expect_refused(file_with(R"("pre_tokenizer": {"type": "Metaspace", )" + empty), {"pre_tokenizer: replacement", one});
  expect_refused(file_with(R"("decoder": {"type": "Metaspace", )" + empty), {"decoder: replacement", one});
  expect_refused(file_with(R"("decoder": {"type": "Metaspace", "replacement": "ab"})"), {"\"ab\" " + one});
  expect_refused(file_with(R"("normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "a"})"),
                 {"normalizer.pattern.String: a string of 0 bytes given, expected 1 to 4096"});
  const auto strip = [](const std::string& content, const std::string& start) {
    return file_with(R"("decoder": {"type": "Strip", "content": ")" + content + R"(", "stop": 0, "start": )" + start +
                     "}");
  };
  expect_refused(strip("", "1"), {"decoder.content: an empty string given"});
  expect_refused(strip("a", "9000000000000000000"), {"decoder.start", "from 0 to 1048576"});
  EXPECT_EQ(Tokenizer::from_json(strip("a", "2")).decode(Ids{0, 1, 0}), "b");
}

TEST_F(HostileTokenizer, ExpressionsThatBacktrackForeverAreRefusedByName) {
  const std::string file = file_with("\"pre_tokenizer\": " + split(R"({"Regex": "(a+)+!"})"));
  expect_text_refused(file, std::string(60, 'a'),
                      {"tokenizer.json.pre_tokenizer.pattern.Regex", "(a+)+! takes too long"});
  // Each piece on which the refused expression runs is short.
  expect_text_refused(in_sequence("pre_tokenizer", "pretokenizers",
                                  split(R"({"Regex": "a{20}"})") + ", " + split(R"({"Regex": "(a+)+!"})")),
                      std::string(megabyte, 'a'), {"pretokenizers.1.pattern.Regex", "(a+)+! takes too long"});
  expect_text_refused(file_with("\"pre_tokenizer\": " + split(R"({"Regex": "(?:(?:a|b)|c)+d"})")),
                      std::string(megabyte, 'a'), {"(?:(?:a|b)|c)+d needs too much memory"});
  // An expression that reads a long text in one pass is accepted.
  const auto tokenizer = Tokenizer::from_json(file_with("\"pre_tokenizer\": " + split(R"({"Regex": "a+|b| "})")));
  EXPECT_EQ(tokenizer.encode(repeated("ab ", megabyte)).ids.size(), 3 * megabyte);
}

TEST_F(HostileTokenizer, LargeExpressionsAreRefused) {
  const auto file = [](const std::string& regex) {
    return file_with("\"pre_tokenizer\": " + split("{\"Regex\": \"" + regex + "\"}"));
  };
  const testing::MemoryLimit limit(max_memory);
  expect_refused(file(repeated(R"(\\w)", 100'000)),
                 {"200000 bytes of regular expressions given, expected at most 16384"});
  expect_refused(file(repeated("()", 8000)), {"has more than 64 groups", "()()..."});
  const std::string step = split(R"({"Regex": "a"})") + ", ";
  expect_refused(in_sequence("pre_tokenizer", "pretokenizers", repeated(step, 64) + split(R"({"Regex": "b"})")),
                 {"pre_tokenizer: 66 steps given, expected at most 64"});
}

TEST_F(HostileTokenizer, StepsThatLengthenATextAgainAndAgainAreRefused) {
  const std::string ten = R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"})";
  const std::string grows = repeated(ten + ", ", 11) + ten, too_long = "the steps make a text of 60 bytes too long";
  const testing::MemoryLimit limit(max_memory);
  const std::string text(60, 'a');
  expect_text_refused(in_sequence("normalizer", "normalizers", grows), text, {"normalizers.", too_long});
  const auto decoding = Tokenizer::from_json(in_sequence("decoder", "decoders", grows));
  expect_error(ErrorKind::invalid_file, {"decoder.decoders.", too_long}, [&] { decoding.decode(Ids(60)); });
  const std::string bytes = R"({"type": "ByteLevel", "use_regex": false})";
  expect_text_refused(in_sequence("pre_tokenizer", "pretokenizers", repeated(bytes + ", ", 40) + bytes), text,
                      {"pre_tokenizer.pretokenizers.", too_long});
  // Thrown by from_json, which normalizes the added token's content.
  const std::string normalizer = R"("normalizer": {"type": "Prepend", "prepend": ")" + std::string(4000, 'a') + "\"}";
  std::string added;
  for (int i = 0; i < 1000; ++i)
    added += std::string(i ? "," : "") + R"({"id": )" + std::to_string(i + 3) + R"(, "content": "<)" +
             std::to_string(i) + R"(>", "normalized": true})";
  expect_refused(file_with("\"added_tokens\": [" + added + "], " + normalizer), {"normalizer: the steps make"});
}

TEST_F(HostileTokenizer, HonestStepsMayLengthenAText) {
  const auto spaces = Tokenizer::from_json(R"({"model": {"type": "BPE", "vocab": {"▁": 0, "a": 1}, "merges": []},
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}})");
  EXPECT_EQ(spaces.encode(std::string(megabyte, ' ')).ids, Ids(megabyte, 0));
  const auto ligatures = Tokenizer::from_json(R"({"normalizer": {"type": "NFKC"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "a"}})");
  EXPECT_EQ(ligatures.encode(repeated("\uFDFA", 1000)).ids.size(), 33'000u);
}

TEST_F(HostileTokenizer, TemplatesHaveFewTokensOfTheVocabulary) {
  const auto file = [](const std::string& ids, size_t times) {
    return file_with(R"("post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x"}})" +
                     repeated(R"(, {"SpecialToken": {"id": "x"}})", times - 1) +
                     R"(], "special_tokens": {"x": {"ids": [)" + ids + "]}}}");
  };
  EXPECT_EQ(Tokenizer::from_json(file("1, 1", 512)).encode("a").ids.size(), 1025u);
  const testing::MemoryLimit limit(max_memory);
  expect_refused(file("0" + repeated(", 0", 100'000), 10'000), {"single.0: more than 1024 tokens around a text"});
  expect_refused(file("4294967298", 1), {"special_tokens.x.ids.0: 4294967298 given"});
  expect_refused(file("-7", 1), {"special_tokens.x.ids.0: -7 given"});
  expect_refused(file("3", 1), {"post_processor: the id 3 is not in the vocabulary of 3"});
}

TEST_F(HostileTokenizer, ManyMarksOnOneLetterArePutInOrder) {
  const auto tokenizer = Tokenizer::from_json(R"({"normalizer": {"type": "NFC"},
    "model": {"type": "BPE", "vocab": {"á": 0, "̖": 1, "́": 2}, "merges": []}})");
  // The text alternates an acute accent above and a grave accent below. Canonical order puts the lower accents first,
  // and the letter composes with the first upper one.
  const size_t n = megabyte / 4;
  const Ids ids = tokenizer.encode("a" + repeated("\u0301\u0316", n)).ids;
  ASSERT_EQ(ids.size(), 2 * n);
  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(Ids(ids.begin() + 1, ids.begin() + 1 + static_cast<ptrdiff_t>(n)), Ids(n, 1));
  EXPECT_EQ(Ids(ids.begin() + 1 + static_cast<ptrdiff_t>(n), ids.end()), Ids(n - 1, 2));
}

// Texts with many marks take a separate implementation. Its results equal ICU's.
TEST_F(HostileTokenizer, ManyMarksChangeNothingElse) {
  const char* characters[] = {"a",      "e",      " ",      "\u0301", "\u0316", "\u0344",
                              "\uFB01", "\uAC01", "\u1161", "\u0F73", "\u00e9"};
  const std::string marks = repeated("\u0301\u0316", 200);
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (int i = 0; i < 30; ++i) text += characters[random() % std::size(characters)];
    text += "|";
    for (const auto form :
         {detail::NormalForm::c, detail::NormalForm::d, detail::NormalForm::kc, detail::NormalForm::kd}) {
      const auto alone = detail::normalized({text, 0}, form), together = detail::normalized({text + marks, 0}, form);
      ASSERT_TRUE(together.text().starts_with(alone.text())) << text;
      for (size_t i = 0; i < alone.text().size(); ++i) {
        const auto one = alone.origin(i, i + 1), other = together.origin(i, i + 1);
        ASSERT_EQ(std::pair(one.begin, one.end), std::pair(other.begin, other.end)) << text << " at " << i;
      }
    }
  }
}

TEST_F(HostileTokenizer, MemoryIsAFewTimesTheText) {
  const auto tokenizer = Tokenizer::from_json(R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
    "model": {"type": "BPE", "vocab": {"a": 0, "aa": 1, "aaaa": 2, "aaaaaaaa": 3, "Ġ": 4},
              "merges": ["a a", "aa aa", "aaaa aaaa"]}})");
  const std::string words = repeated("aaaaaaaa ", 10 * megabyte / 9);
  const testing::MemoryLimit limit(30 * words.size());  // holding all words in memory would take 113 times their size
  EXPECT_EQ(tokenizer.encode(words).ids.size(), words.size() / 9 * 2);
}

// Without a pre-tokenizer a text is a single word, which is merged in sections. Short words are merged in another way.
TEST_F(HostileTokenizer, SectionsOfLongWordsDoNotChangeTheTokens) {
  std::mt19937 random(11);
  for (int round = 0; round < 90; ++round) {
    detail::TokenIds vocabulary{{"<unk>", 0}, {"<0x62>", 1}};
    std::vector<std::string> tokens = {"a", "c", "d", "é", "▁", "<0x62>", "<unk>"};
    for (const std::string& token : tokens) vocabulary.emplace(token, static_cast<int32_t>(vocabulary.size()));
    std::vector<std::pair<std::string, std::string>> merges;
    for (int i = 0; i < 25; ++i) {
      const std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
      if (round % 3 && right.starts_with("▁") && !left.ends_with("▁")) continue;
      if (!vocabulary.emplace(left + right, static_cast<int32_t>(vocabulary.size())).second) continue;
      tokens.push_back(left + right);
      merges.emplace_back(left, right);
    }
    const detail::BytePairOptions options{.unknown = "<unk>", .fuse_unknown = round % 2 == 0, .byte_fallback = true};
    const detail::BytePairEncoding model(vocabulary, merges, options, "test");
    const char* characters[] = {"a", "a", "c", "c", "d", "é", "b", "ü", "▁"};
    std::string text;
    for (size_t i = round % 5 ? random() % 60 : 3000; i > 0; --i) text += characters[random() % std::size(characters)];
    Ids expected, given;
    for (const auto& token : detail::BytePairEncoding(vocabulary, {}, options, "test").encode(text))
      expected.push_back(token.id);
    for (bool is_merged = true; is_merged;) {  // the lowest rank first; of equal ranks the leftmost
      is_merged = false;
      for (const auto& [left, right] : merges) {
        const int32_t ids[] = {vocabulary.at(left), vocabulary.at(right)};
        const auto at = std::search(expected.begin(), expected.end(), std::begin(ids), std::end(ids));
        if (at == expected.end()) continue;
        *expected.erase(at) = vocabulary.at(left + right);
        is_merged = true;
        break;
      }
    }
    for (size_t begin = 0, end; begin < text.size(); begin = end) {
      end = model.section_end(text, begin);
      for (const auto& token : model.encode(text.substr(begin, end - begin))) given.push_back(token.id);
    }
    ASSERT_EQ(given, expected) << "round " << round;
  }
}

TEST_F(HostileTokenizer, ALongWordTakesLittleMoreThanItsLength) {
  std::string vocabulary = R"("a": 0)", merges, word = "a";
  for (int i = 1; i < 1000; ++i) {
    merges += (i > 1 ? ", [\"" : "[\"") + word + "\", \"a\"]";
    word += "a";
    vocabulary += ", \"" + word + "\": " + std::to_string(i);
  }
  const auto tokenizer = Tokenizer::from_json(R"({"model": {"type": "BPE", "vocab": {)" + vocabulary +
                                              "}, \"merges\": [" + merges + "]}}");
  const testing::MemoryLimit limit(max_memory);
  EXPECT_EQ(tokenizer.encode(std::string(megabyte, 'a')).ids, Ids(megabyte / 2, 1));
}

TEST_F(HostileTokenizer, ManyAddedTokensAreFoundInOnePass) {
  std::string added = R"({"id": 3, "content": "aab"})";
  for (int i = 0; i < 1300; ++i)
    added += R"(, {"id": )" + std::to_string(i + 4) + R"(, "content": ")" + std::string(static_cast<size_t>(i), 'a') +
             R"(ac"})";
  const auto tokenizer = Tokenizer::from_json(file_with("\"added_tokens\": [" + added + "]"));
  EXPECT_EQ(tokenizer.encode(std::string(megabyte, 'a')).ids, Ids(megabyte, 0));
  EXPECT_EQ(tokenizer.encode("aaaab" + std::string(7, 'a') + "c").ids, (Ids{0, 0, 3, 10}));
  expect_refused(file_with(R"("added_tokens": [{"id": 3, "content": ")" + std::string(5000, 'a') + "\"}]"),
                 {"added_tokens.0.content: 5000 bytes given, expected at most 4096"});
  expect_refused(file_with(R"("added_tokens": [{"id": 3, "content": "c", "normalized": true}],
    "normalizer": {"type": "Prepend", "prepend": ")" +
                           std::string(5000, 'a') + "\"}"),
                 {"added_tokens: \"c\" is 5001 bytes long as the normalizer spells it, expected at most 4096"});
}

TEST_F(HostileTokenizer, ChainsOfAddedTokensAreShort) {
  const auto file = [](int tokens) {
    std::string added;
    for (int i = 1; i <= tokens; ++i)
      added += std::string(i > 1 ? "," : "") + R"({"id": )" + std::to_string(i + 2) + R"(, "content": ")" +
               std::string(static_cast<size_t>(i), 'c') + "\"}";
    return file_with("\"added_tokens\": [" + added + "]");
  };
  EXPECT_EQ(Tokenizer::from_json(file(257)).encode("cca").ids, (Ids{4, 0}));
  expect_refused(file(258), {"tokenizer.json: more than 256 added tokens are prefixes of one token"});
}

// libstdc++ hashes texts by MurmurHash64A with a known seed, whose steps can be reversed.
TEST(TokenIds, DoNotCollideWhereStdHashDoes) {
  constexpr uint64_t factor = 0xc6a4a7935bd1e995;
  uint64_t inverse = factor;
  for (int i = 0; i < 6; ++i) inverse *= 2 - factor * inverse;
  const auto mixed = [](uint64_t x) { return x ^ x >> 47; };
  detail::TokenIds ids;
  std::mt19937_64 random(1);
  for (int32_t id = 0; id < 1000; ++id) {
    const uint64_t first = random();
    const uint64_t state = ((0xc70f6907 ^ 16 * factor) ^ mixed(first * factor) * factor) * factor;
    const uint64_t parts[] = {first, mixed((state ^ 1) * inverse) * inverse};
    ids.emplace(std::string(reinterpret_cast<const char*>(parts), sizeof parts), id);
  }
  const detail::BytePairEncoding model(ids, {}, {}, "test");
  size_t most = 0;
  for (size_t i = 0; i < model.vocabulary().bucket_count(); ++i)
    most = std::max(most, model.vocabulary().bucket_size(i));
  EXPECT_LT(most, 50u);
}

TEST_F(HostileTokenizer, TheLongestAddedTokenIsFound) {
  std::mt19937 random(3);
  const auto word = [&](size_t most) {
    std::string text;
    for (size_t n = 1 + random() % most; n > 0; --n) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<detail::AddedToken> tokens(1 + random() % 20);
    detail::AddedTokens added;
    for (auto& token : tokens) token.content = word(6), added.add(token.content, token);
    added.sort("test");
    const std::string text = word(60);
    std::string given, expected;
    for (const auto& found : added.find(text))
      given += std::to_string(found.begin) + "-" + std::to_string(found.end) + " ";
    for (size_t at = 0, longest; at < text.size(); at += std::max<size_t>(longest, 1)) {
      longest = 0;
      for (const auto& token : tokens)
        if (text.compare(at, token.content.size(), token.content) == 0)
          longest = std::max(longest, token.content.size());
      if (longest) expected += std::to_string(at) + "-" + std::to_string(at + longest) + " ";
    }
    ASSERT_EQ(given, expected) << text;
  }
}

TEST_F(HostileTokenizer, LongValuesAreCutInErrors) {
  const auto said = testing::error_of(ErrorKind::invalid_file, [] {
    Tokenizer::from_json(file_with(R"("normalizer": {"type": ")" + std::string(megabyte, 'x') + "\"}"));
  });
  EXPECT_LT(said.size(), 1000u);
  EXPECT_EQ(detail::shortened(std::string(199, 'x') + "é"), std::string(199, 'x') + "...");
}

}  // namespace
}  // namespace tessera::data::hostile_tokenizer_test
