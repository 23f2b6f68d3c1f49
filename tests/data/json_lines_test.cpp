// JSONL records as values and as structs, and errors that name line and field.
#include "data/sources/json_lines.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "tests/data/expect_error.h"
#include "tests/data/memory_limit.h"
#include "tests/data/scratch_folder.h"

namespace tessera::data {

struct Span {
  int32_t begin = 0, end = 0;
};
struct Example {
  std::string text;
  std::vector<Span> spans;
  std::optional<double> weight;
  uint8_t label = 0;
  bool seen = false;
};
struct Large {
  std::string a, b, c, d, e, f, g, h, i, j, k, l;
};
struct HasLarge {
  std::vector<Large> items;
};

namespace {

TEST(JsonLines, FillStructsByName) {
  const ScratchFolder folder;
  const auto path = folder.write(
      "a.jsonl",
      "{\"text\": \"caf\\u00e9\", \"spans\": [{\"begin\": 1, \"end\": 2}], \"label\": 255, \"seen\": true, \"id\": 7}\n"
      "{\"text\": \"\", \"spans\": [], \"label\": 0, \"seen\": false, \"weight\": 1}\n");
  const auto examples = json_lines<Example>({path});
  ASSERT_EQ(examples.size(), 2);
  EXPECT_EQ(examples[0].text, "caf\xc3\xa9");
  EXPECT_EQ(examples[0].spans.at(0).end, 2);
  EXPECT_EQ(examples[0].label, 255);
  EXPECT_TRUE(examples[0].seen);
  EXPECT_EQ(examples[0].weight, std::nullopt);
  EXPECT_EQ(examples[1].weight, 1.0);
  EXPECT_EQ(json_lines({path})[0].at("id").as_int64(), 7);
  EXPECT_TRUE(examples.describe().ends_with("| lines | json"));
}

struct Measured {
  std::vector<bool> on;
  float x = 0;
};

struct Wide {
  unsigned long long id = 0;
};

TEST(JsonLines, HaveUnsignedNumbersOfEveryName) {
  const ScratchFolder folder;
  const auto path = folder.write("a.jsonl", "{\"id\": 18446744073709551615}");
  EXPECT_EQ(json_lines<Wide>({path})[0].id, ~0ULL);
}

TEST(JsonLines, FlagsMarksAndNumbersThatAreTooLarge) {
  const ScratchFolder folder;
  const auto path =
      folder.write("a.jsonl", "\xef\xbb\xbf{\"on\": [true, false], \"x\": 1e30}\r\n{\"on\": [], \"x\": 1e39}");
  const auto records = json_lines<Measured>({path});
  EXPECT_EQ(records[0].on, (std::vector<bool>{true, false}));
  EXPECT_EQ(records[0].x, 1e30f);
  expect_error(ErrorKind::invalid_file, {"line 2", "record.x: 1E39 given", "at most 3.40282e+38"}, [&] { records[1]; });
}

TEST(JsonLines, EmptyLinesAtTheEndOfAFileAreIgnored) {
  const ScratchFolder folder;
  folder.write("a.jsonl", "{\"id\": 1}\n\n");
  folder.write("b.jsonl", "{\"id\": 2}\r\n\r\n\n");
  folder.write("c.jsonl", "\n");
  folder.write("d.jsonl", "7");
  const auto records = json_lines({folder.path()});
  ASSERT_EQ(records.size(), 3);
  EXPECT_EQ(records[1].at("id").as_int64(), 2);
  EXPECT_EQ(records[2].as_int64(), 7);
  EXPECT_EQ(lines({folder.path()}).size(), 7);
  expect_error(ErrorKind::invalid_file, {"c.jsonl: no line in it"}, [&] { json_lines({folder.path("c.jsonl")}); });
}

struct Text {
  std::string text;
};

TEST(JsonLines, NumbersThatAreNotFiniteMayBeInUnusedFields) {
  const ScratchFolder folder;
  const auto path = folder.write("a.jsonl", "{\"text\": \"a\", \"score\": NaN, \"more\": [-Infinity, Infinity]}");
  EXPECT_EQ(json_lines<Text>({path})[0].text, "a");
  EXPECT_TRUE(std::isnan(json_lines({path})[0].at("score").as_double()));
}

TEST(JsonTexts, AreOneFieldOfEachRecord) {
  const ScratchFolder folder;
  const auto path =
      folder.write("a.jsonl",
                   "\xef\xbb\xbf{\"text\": \"a\", \"meta\": {\"text\": \"b\"}, \"x.y\": \"c\", \"n\": NaN}\n"
                   "{\"text\": null, \"meta\": 5, \"n\": 1}\n7\n\n");
  EXPECT_EQ(json_texts({path}).size(), 3);
  EXPECT_EQ(json_texts({path})[0], "a");
  EXPECT_EQ(json_texts({path}, "meta.text")[0], "b");
  EXPECT_EQ(json_texts({path}, "x.y")[0], "c");
  const struct {
    std::string field;
    int64_t line;
    std::string words;
  } wrong[] = {{"text", 1, "line 2: record: the field \"text\" is missing or null, expected a string."},
               {"meta.text", 1, "the field \"meta.text\" is missing or null"},
               {"", 0, "the field \"\" is missing or null"},
               {"n", 1, "record.n: 1 given, expected a string"},
               {"meta.text.a", 0, "the field \"meta.text.a\" is missing or null"},
               {"meta", 0, "record.meta: {\"text\":\"b\"} given, expected a string"},
               {"text", 2, "line 3: record: 7 given, expected an object"}};
  for (const auto& [field, line, words] : wrong)
    expect_error(ErrorKind::invalid_file, words, [&] { json_texts({path}, field)[line]; });
}

TEST(JsonLines, WrongItemsTakeNoMemory) {
  const ScratchFolder folder;
  std::string line = "{\"items\": [0";
  for (int i = 0; i < 500'000; ++i) line += ",0";
  const auto records = json_lines<HasLarge>({folder.write("a.jsonl", line + "]}\n")});
  const testing::MemoryLimit limit(150'000'000);  // stored as JSON values the numbers would take 192 million bytes
  expect_error(ErrorKind::invalid_file, "record.items.0: 0 given, expected an object", [&] { records[0]; });
}

TEST(JsonLines, ErrorsNameLineAndField) {
  const ScratchFolder folder;
  const auto start = std::string("{\"text\": \"a\", \"spans\": [], \"seen\": true, \"label\": ");
  const struct {
    std::string line;
    std::vector<std::string> words;
  } cases[] = {
      {start + "256}", {"record.label: 256 given", "from 0 to 255"}},
      {start + "1.5}", {"record.label: 1.5E0 given", "whole number"}},
      {start + "\"x\"}", {"record.label: \"x\" given"}},
      {"{\"text\": 3}", {"record.text: 3 given", "a string"}},
      {"{\"text\": \"a\", \"spans\": [{\"begin\": 0, \"end\": 1}, {\"begin\": 0}]}",
       {"record.spans.1: has no \"end\"."}},
      {"{\"text\": null}", {"record.text: null given, expected a string"}},
      {start + "1, \"weight\": NaN}", {"record.weight: NaN given, expected a number"}},
      {start + "NaN}", {"record.label: NaN given, expected a whole number"}},
      {"{\"text\": \"a\", \"spans\": {}}", {"record.spans: {} given", "an array"}},
      {"[1]", {"record: [1] given", "an object"}},
      {"{\"text\": ", {"column"}},
      {"\n{\"text\": \"a\"}", {"an empty line"}},
      {start + "1, \"weight\": 1e999}", {"record.weight: ", "at most 1.79769e+308"}},
      {start + "1} 2", {"something follows"}},
      {start + "1, \"label\": 1}", {"twice"}},
      {"{\"text\": \"\\ud800\"}", {"column"}},
      {std::string(40, '['), {"32 levels"}},
  };
  for (const auto& c : cases) {
    const auto path = folder.write("bad.jsonl", start + "1}\n" + c.line + "\n");
    const auto examples = json_lines<Example>({path});
    EXPECT_EQ(examples[0].label, 1);
    const std::string said = testing::error_of(ErrorKind::invalid_file, [&] { examples[1]; });
    for (const auto& word : c.words) EXPECT_NE(said.find(word), std::string::npos) << said << "\n lacks " << word;
    EXPECT_NE(said.find("[json_lines] " + path + ", line 2"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace tessera::data
