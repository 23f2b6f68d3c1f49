// Tokenizer: its files, options and errors. Its tokens are compared in reference/tokenizers.
#include "data/text/tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "data/text/unicode_text.h"
#include "sharding/base/error.h"
#include "sharding/files/file.h"
#include "tests/data/expect_error.h"
#include "tests/data/scratch_folder.h"
#include "tests/data/skip_without.h"

namespace tessera::data::tokenizer_test {
namespace {

using Ids = std::vector<int32_t>;
using Offsets = std::vector<std::pair<int64_t, int64_t>>;

// The bytes "a", "b", "c" and a space, with the merges ab and "Ġab". No merge makes "Ġc".
constexpr const char* small = R"({
  "added_tokens": [{"id": 7, "content": "<s>", "special": true}, {"id": 8, "content": "<pad>"}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "special_tokens": {"<s>": {"id": "<s>", "ids": [7], "tokens": ["<s>"]}}},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4, "Ġab": 5, "Ġc": 6},
            "merges": ["a b", ["Ġ", "ab"]]}
})";

std::string with(std::string text, const std::string& what, const std::string& other) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), other);
}

class TokenizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder.write("small/tokenizer.json", small);
    testing::skip_without("without ICU", [&] { Tokenizer::open(folder.path("small")); });
  }
  // Expects an error when a file with this text is opened.
  void expect_refused(const std::string& text, const std::vector<std::string>& words) {
    folder.write("bad.json", text);
    std::string said;
    try {
      Tokenizer::open(folder.path("bad.json"));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_file);
      said = error.what();
    }
    EXPECT_TRUE(said.starts_with("[Tokenizer] " + folder.path("bad.json"))) << said;
    for (const std::string& word : words) EXPECT_NE(said.find(word), std::string::npos) << said << "\nhas no " << word;
  }

  ScratchFolder folder;
};

// Marks are ordered by the tables of Unicode 9, as in `tokenizers`.
TEST_F(TokenizerTest, MarksYoungerThanUnicode9StayWhereTheyAre) {
  const auto ordered = [](const char* text) { return detail::normalized({text, 0}, detail::NormalForm::c).text(); };
  EXPECT_EQ(ordered("a\u08D4\u0334"), "a\u0334\u08D4");
  EXPECT_EQ(ordered("a\u0C3C\u0334"), "a\u0C3C\u0334");  // a mark of Unicode 14
}

TEST_F(TokenizerTest, RemembersWordsAsTheyWere) {
  const auto tokenizer = Tokenizer::open(folder.path("small"));
  const auto word = [](int i) {
    std::string text;
    for (int bits = i + 1; bits > 1; bits /= 2) text += bits % 2 ? "ab" : "c";
    return i % 1000 ? text : text + std::string(100, 'a');
  };
  std::vector<Ids> first;
  for (int i = 0; i < 40'000; ++i) {
    first.push_back(tokenizer.encode(word(i)).ids);
    ASSERT_EQ(tokenizer.decode(first.back()), word(i));
  }
  for (int i = 0; i < 40'000; ++i) ASSERT_EQ(tokenizer.encode(word(i)).ids, first[static_cast<size_t>(i)]) << i;
}

TEST_F(TokenizerTest, EncodesAndDecodes) {
  const auto tokenizer = Tokenizer::open(folder.path("small"));
  const Encoding encoding = tokenizer.encode("ab abc<s>");
  EXPECT_EQ(encoding.ids, (Ids{7, 4, 5, 2, 7}));
  EXPECT_EQ(encoding.offsets, (Offsets{{0, 0}, {0, 2}, {2, 5}, {5, 6}, {6, 9}}));
  EXPECT_EQ(tokenizer.encode("ab", {.add_special_tokens = false}).ids, Ids{4});
  EXPECT_EQ(tokenizer.decode(encoding.ids), "ab abc");
  EXPECT_EQ(tokenizer.decode(encoding.ids, {.skip_special_tokens = false}), "<s>ab abc<s>");
  EXPECT_EQ(tokenizer.encode("").ids, Ids{7});
  EXPECT_EQ(tokenizer.decode({}), "");
  EXPECT_EQ(tokenizer.vocab_size(), 9);
  EXPECT_EQ(tokenizer.token_to_id("Ġab"), 5);
  EXPECT_EQ(tokenizer.token_to_id("<pad>"), 8);
  EXPECT_EQ(tokenizer.token_to_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(5), "Ġab");
}

// The pieces that pre_tokenizers.Split of tokenizers 0.23 finds.
TEST_F(TokenizerTest, RegularExpressionsAreOnigurumas) {
  const auto found = [](const std::string& pattern, const std::string& text) {
    std::vector<std::string> pieces;
    detail::StepBudget budget(text.size());
    detail::regular_expression(pattern, "test")(
        text, budget, [&](size_t begin, size_t end) { pieces.push_back(text.substr(begin, end - begin)); });
    return pieces;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(found("^a", "a\na\ra"), (Pieces{"a", "a"}));
  EXPECT_EQ(found("a$", "a\na\ra"), (Pieces{"a", "a"}));
  EXPECT_EQ(found("a.b", "a\nb a\rb a\u2028b"), (Pieces{"a\rb", "a\u2028b"}));
  EXPECT_EQ(found(R"(\w+)", "a_1\u0301\u200d\u2167+"), (Pieces{"a_1\u0301", "\u2167"}));
  EXPECT_EQ(found(R"([^\W1]+)", "a1b+"), (Pieces{"a", "b"}));
  EXPECT_EQ(found(R"(\h+)", "xfA0 g"), (Pieces{"fA0"}));
  EXPECT_EQ(found("[[:punct:]]+", "a$+!b\u00a9"), (Pieces{"$+!", "\u00a9"}));
  EXPECT_EQ(found(R"(\W)", "\u00b2+\u00bd"), (Pieces{"+"}));
  EXPECT_EQ(found("1{1,3}+", "1111111 1"), (Pieces{"1111111", "1"}));
  EXPECT_EQ(found("[{1,3}+]", "{+2"), (Pieces{"{", "+"}));
  EXPECT_EQ(found("(?m:a.)a", "aa\naaa"), (Pieces{"a\na"}));
  EXPECT_EQ(found("(?:1{0,2}+)2", "1112"), (Pieces{"1112"}));
  EXPECT_EQ(found("(?=(2{3})+(?!2))", "1222222").size(), 2u);
  EXPECT_EQ(found("a*", "baa"), (Pieces{"", "aa"}));
  EXPECT_EQ(found(R"(\x{61}+\p{L}{1,2}+)", "aabc"), (Pieces{"aabc"}));
  expect_error(ErrorKind::invalid_file, {"test: the regular expression has {2,3}+"}, [&] { found("a{2,3}+", "a"); });
  EXPECT_EQ(found(R"(\\w\s)", "\\w\u00a0w"), (Pieces{"\\w\u00a0"}));
}

// As in decoders.Metaspace of tokenizers: the first token loses all its marks.
TEST_F(TokenizerTest, DecodesMarksOfSpaces) {
  const auto decoded = [&](const std::string& scheme, const Ids& ids) {
    folder.write("marks.json", R"({"decoder": {"type": "Metaspace", "prepend_scheme": ")" + scheme + R"("},
      "model": {"type": "BPE", "vocab": {"▁▁a▁b": 0, "▁c": 1}, "merges": []}})");
    return Tokenizer::open(folder.path("marks.json")).decode(ids);
  };
  EXPECT_EQ(decoded("always", {0, 1, 0}), "ab c  a b");
  EXPECT_EQ(decoded("never", {0, 1}), "  a b c");
}

TEST_F(TokenizerTest, ReadsGpt2sTwoFiles) {
  std::string bytes;
  for (const std::string& byte : detail::spelled_bytes())
    bytes += "\"" + std::string(byte == "\"" || byte == "\\" ? "\\" : "") + byte +
             "\": " + std::to_string(static_cast<int>(&byte - detail::spelled_bytes().data())) + ", ";
  const auto write = [&](const std::string& vocabulary) {
    folder.write("two/vocab.json", vocabulary);
    folder.write("two/merges.txt", "#version: 0.2\na b\r\n");
  };
  write("{" + bytes + R"("ab": 256, "<|endoftext|>": 257})");
  const auto tokenizer = Tokenizer::open(folder.path("two"));
  EXPECT_EQ(tokenizer.encode("ab a<|endoftext|>").ids, (Ids{256, 32, 97, 257}));
  const auto expect_other = [&](std::initializer_list<std::string> words) {
    expect_error(ErrorKind::invalid_file, words, [&] { Tokenizer::open(folder.path("two")); });
  };
  folder.write("two/tokenizer_config.json", R"({"tokenizer_class": "GPT2Tokenizer", "add_bos_token": false})");
  Tokenizer::open(folder.path("two"));
  folder.write("two/tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  expect_other(
      {"[Tokenizer] ", "tokenizer_config.json.tokenizer_class: \"Qwen2Tokenizer\" given, expected GPT2Tokenizer"});
  folder.write("two/tokenizer_config.json",
               R"({"added_tokens_decoder": {"257": {"content": "<|endoftext|>"}, "258": {"content": "[PAD]"}}})");
  expect_other({"tokenizer_config.json.added_tokens_decoder.258: \"[PAD]\" given, expected only <|endoftext|>"});
  folder.write("two/tokenizer_config.json", R"({"add_prefix_space": true})");
  expect_other({"tokenizer_config.json.add_prefix_space: true given"});
  folder.write("two/tokenizer_config.json", "{}");
  write(R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  expect_other({"read as GPT-2's, but \"Ā\", a byte, is not in the vocabulary", "Give its tokenizer.json"});
  write("{" + bytes + R"("ab": 256, "<s>": 257})");
  expect_other({"read as GPT-2's, but \"<s>\" is neither a byte nor the result of a merge"});
  write("{" + bytes + R"("ab": 256})");
  Tokenizer::open(folder.path("two"));
  folder.write("two/added_tokens.json", R"({"<s>": 257})");
  expect_other({"added_tokens.json: only a tokenizer.json may have added tokens"});
  expect_error(ErrorKind::invalid_file, {"[Tokenizer]", "has neither tokenizer.json nor vocab.json with merges.txt"},
               [&] { Tokenizer::open(folder.path()); });
}

TEST_F(TokenizerTest, RefusesIdsThatContradictEachOther) {
  const std::string text = small, at = ".added_tokens: ";
  const auto with_pad = [&](const std::string& entry) { return with(text, R"({"id": 8, "content": "<pad>"})", entry); };
  expect_refused(with_pad(R"({"id": 0, "content": "zzz"})"), {at + R"("a" and "zzz" both have the id 0)"});
  expect_refused(with_pad(R"({"id": 7, "content": "zzz"})"), {at + R"("<s>" and "zzz" both have the id 7)"});
  expect_refused(with_pad(R"({"id": 5, "content": "a"})"), {at + R"("a" has the ids 0 and 5)"});
  expect_refused(with_pad(R"({"id": 8, "content": "<s>"})"), {at + R"("<s>" has the ids 7 and 8)"});
  expect_refused(with_pad(R"({"id": 7, "content": "<s>", "special": true, "lstrip": true})"),
                 {at + R"("<s>" occurs twice with different options)"});
  expect_refused(with_pad(R"({"id": 9, "content": "<pad>"})"),
                 {at + R"("<pad>" has the id 9, but tokenizers numbers it 8: the vocabulary has 7 tokens)"});
  expect_refused(with(text, "\"b\": 1", "\"b\": 0"), {R"(.model.vocab: "a" and "b" both have the id 0)"});
  // These are accepted: the same entry twice, and an entry of the vocabulary, even if the normalizer changes its
  // spelling.
  Tokenizer::from_json(with_pad(R"({"id": 7, "content": "<s>", "special": true})"));
  EXPECT_EQ(Tokenizer::from_json(with_pad(R"({"id": 5, "content": "Ġab"})")).encode("Ġab").ids, (Ids{7, 5}));
  const std::string lower = with(text, "\"normalizer\": null",
                                 R"("normalizer": {"type": "Replace", "pattern": {"String": "C"}, "content": "c"})");
  const std::string upper = with(with(lower, "\"c\": 2", "\"C\": 2"), R"({"id": 8, "content": "<pad>"})",
                                 R"({"id": 2, "content": "C", "normalized": true})");
  EXPECT_EQ(Tokenizer::from_json(upper).encode("aC").ids, (Ids{7, 0, 2}));
}

TEST_F(TokenizerTest, IgnoresSettingsOfBatches) {
  const auto tokenizer = Tokenizer::from_json(
      with(small, "\"normalizer\": null", R"("truncation": {"max_length": 1}, "padding": {"pad_id": 8})"));
  EXPECT_EQ(tokenizer.encode("ab abc").ids, (Ids{7, 4, 5, 2}));
}

TEST_F(TokenizerTest, RefusesWhatItCannotDo) {
  const auto tokenizer = Tokenizer::open(folder.path("small"));
  expect_error(ErrorKind::invalid_argument, {"[Tokenizer.encode]", "\"d\" is not in the vocabulary"},
               [&] { tokenizer.encode("abd"); });
  expect_error(ErrorKind::invalid_argument, {"[Tokenizer.encode]", "the byte at 1 is not UTF-8"},
               [&] { tokenizer.encode("a\xff"); });
  for (const int32_t id : {-1, 9, 10})
    expect_error(ErrorKind::invalid_argument, {"[Tokenizer.decode] id " + std::to_string(id) + " given"},
                 [&] { tokenizer.decode(Ids{id}); });
  expect_error(ErrorKind::invalid_file, {"[Tokenizer]", "nowhere"}, [&] { Tokenizer::open(folder.path("nowhere")); });
}

TEST_F(TokenizerTest, RefusesFilesByTheirPlace) {
  EXPECT_THROW(Tokenizer::open(std::string(300, 'x')), Error);  // longer than a file name may be
  const std::string text = small;
  expect_refused("{", {"line 1"});
  expect_refused("[]", {"expected an object"});
  expect_refused(with(text, "\"BPE\"", "\"Unigram\""), {"model: the type \"Unigram\" is not supported, expected BPE"});
  expect_refused(with(text, "\"a b\"", "\"a\""), {"model.merges.0: \"a\" given, expected two tokens"});
  expect_refused(with(text, "\"a b\"", "\"a c\""), {"\"ac\" is not in the vocabulary"});
  expect_refused(with(text, "\"b\": 1", "\"b\": -1"), {"model.vocab: \"b\" has no id"});
  expect_refused(with(text, "\"b\": 1", "\"b\": 39999999"), {"\"b\" has the id 39999999, expected one below"});
  expect_refused(with(text, "\"id\": 7", "\"id\": -7"), {"added_tokens.0.id: -7 given"});
  expect_refused(with(text, "\"id\": 7", "\"id\": 4294967303"), {"added_tokens.0.id: 4294967303 given"});
  expect_refused(with(text, "\"ByteLevel\", \"add", "\"Bert\", \"add"), {"pre_tokenizer: the type \"Bert\""});
  expect_refused(with(text, "\"normalizer\": null", R"("normalizer": {"type": "Precompiled"})"),
                 {"normalizer: the type \"Precompiled\" is not supported"});
  expect_refused(with(text, "{\"type\": \"ByteLevel\"}", "{\"type\": \"CTC\"}"), {"decoder: the type \"CTC\""});
  expect_refused(with(text, R"([{"SpecialToken")", R"([{"Sequence": {"id": "B"}}, {"SpecialToken")"),
                 {"post_processor.single.2: a second text given"});
  expect_refused(with(text, "\"normalizer\": null", R"("normalizer": {"type": "Strip", "strip_left": true})"),
                 {"normalizer: has no \"strip_right\""});
  expect_refused(with(text, "\"special_tokens\"", "\"others\""), {"post_processor: has no \"special_tokens\""});
  expect_refused(with(text, R"({"type": "ByteLevel", "add_prefix_space": false})",
                      R"({"type": "Split", "pattern": {"Regex": "(("}, "behavior": "Isolated"})"),
                 {"pre_tokenizer.pattern.Regex", "the regular expression (( cannot be read"});
}

// For any damage, the file opens or from_json throws one Error.
TEST_F(TokenizerTest, DamagedFilesAreErrors) {
  std::mt19937 random(1);
  int opened = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = small;
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
      const size_t at = random() % text.size();
      if (random() % 2)
        text[at] = static_cast<char>(random());
      else
        text.erase(at, random() % 40);
    }
    folder.write("damaged.json", text);
    try {
      const auto tokenizer = Tokenizer::open(folder.path("damaged.json"));
      ++opened;
      tokenizer.encode("ab abc");
    } catch (const Error&) {
    }
  }
  EXPECT_GT(opened, 0);
}

TEST(ByteTokenizer, TakesAnyBytes) {
  const auto tokenizer = Tokenizer::bytes();
  const std::string text("a\xff\0\xc3\xa9", 5);
  const Encoding encoding = tokenizer.encode(text);
  EXPECT_EQ(encoding.ids, (Ids{97, 255, 0, 195, 169}));
  EXPECT_EQ(encoding.offsets, (Offsets{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}}));
  EXPECT_EQ(tokenizer.decode(encoding.ids), text);
  EXPECT_EQ(tokenizer.vocab_size(), 256);
  EXPECT_EQ(tokenizer.id_to_token(255), "\xff");
  EXPECT_EQ(tokenizer.token_to_id("\xff"), 255);
  EXPECT_FALSE(tokenizer.token_to_id("ab") || tokenizer.token_to_id(""));
  for (const int32_t id : {-1, 256}) {
    expect_error(ErrorKind::invalid_argument, {"expected a byte, 0 to 255."}, [&] { tokenizer.decode(Ids{id}); });
    expect_error(ErrorKind::invalid_argument, {"expected a byte, 0 to 255."}, [&] { tokenizer.id_to_token(id); });
  }
}

TEST_F(TokenizerTest, IsUsedByThreads) {
  const auto tokenizer = Tokenizer::open(folder.path("small"));
  const std::string text = "ab abc ab a b c";
  const Ids expected = tokenizer.encode(text).ids;
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int& mine : wrong)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) mine += tokenizer.encode(text).ids != expected;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

}  // namespace
}  // namespace tessera::data::tokenizer_test
