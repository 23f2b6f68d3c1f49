// Runs folders of tokenizers and files of steps: the tokens of texts, the tokens' offsets, and the decoded texts.
#include "data/text/tokenizer.h"

#include <boost/json.hpp>
#include <map>
#include <string>
#include <vector>

#include "data/text/unicode_text.h"
#include "sharding/files/json.h"
#include "tests/runner/report.h"

namespace tessera::runner {
namespace {

template <class T>
std::string shown(const T& value) {
  const std::string text = boost::json::serialize(boost::json::value_from(value));
  return text.size() > 200 ? text.substr(0, 200) + "..." : text;
}

template <class T>
void expect_equal(const T& got, const T& expected, const std::string& where, Report& report) {
  report.check(got == expected, where, shown(expected), shown(got));
}

void run_row(const data::Tokenizer& tokenizer, const boost::json::object& row, const std::string& where,
             Report& report) {
  using Ids = std::vector<int32_t>;
  const auto ids = boost::json::value_to<Ids>(row.at("ids"));
  expect_equal(tokenizer.decode(ids, {.skip_special_tokens = false}), std::string(row.at("decoded").as_string()),
               where + ", decoded", report);
  if (!row.contains("text")) return;
  const std::string text(row.at("text").as_string());
  const data::Encoding encoding = tokenizer.encode(text, {.add_special_tokens = false});
  expect_equal(encoding.ids, ids, where + ", ids", report);
  expect_equal(encoding.offsets, boost::json::value_to<std::vector<std::pair<int64_t, int64_t>>>(row.at("offsets")),
               where + ", offsets", report);
  if (!row.contains("ids_with_special")) return;
  const auto all = boost::json::value_to<Ids>(row.at("ids_with_special"));
  expect_equal(tokenizer.encode(text).ids, all, where + ", ids with special", report);
  expect_equal(tokenizer.decode(all), std::string(row.at("decoded_without_special").as_string()),
               where + ", decoded without special", report);
}

void run_rows(const data::Tokenizer& tokenizer, const boost::json::array& rows, const std::string& where,
              Report& report) {
  for (size_t i = 0; i < rows.size(); ++i)
    run_row(tokenizer, rows[i].as_object(), where + ", text " + std::to_string(i), report);
}

std::string every_character() {
  std::string all;
  for (char32_t c = 0; c < data::detail::num_code_points; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const int following = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    constexpr int firsts[] = {0, 0xC0, 0xE0, 0xF0};
    all += static_cast<char>(firsts[following] | static_cast<int>(c >> 6 * following));
    for (int i = following - 1; i >= 0; --i) all += static_cast<char>(0x80 | (c >> 6 * i & 0x3F));
  }
  return all;
}

// The count of numbers and a polynomial of them.
struct Checksum {
  int64_t count = 0, value = 0;
  void add(int64_t number) { ++count, value = (value * 31 + number) % 1'000'000'007; }
};

// The characters that an expression or a function of the library accepts; for "lower_case", the bytes of them all.
Checksum sum_of_class(const std::string& name, const std::string& all) {
  using namespace data::detail;
  Checksum sum;
  if (name == "lower_case") {
    const AlignedText lower = lower_case(AlignedText(all, 0));
    for (const char byte : lower.text()) sum.add(static_cast<unsigned char>(byte));
    return sum;
  }
  const std::map<std::string, bool (*)(char32_t)> functions{{"is_punctuation", is_punctuation},
                                                            {"is_white_space", is_white_space},
                                                            {"is_word_character", is_word_character},
                                                            {"is_combining_mark", is_combining_mark}};
  if (const auto found = functions.find(name); found != functions.end()) {
    for (size_t i = 0; i < all.size(); i += character_bytes(all[i]))
      if (found->second(character_at(all, i))) sum.add(character_at(all, i));
    return sum;
  }
  StepBudget budget(all.size());
  regular_expression(name, name)(all, budget, [&](size_t begin, size_t) { sum.add(character_at(all, begin)); });
  return sum;
}

}  // namespace

void run_tokenizer(const std::filesystem::path& folder, Report& report) {
  run_rows(data::Tokenizer::open(folder), parse_json_file(folder / "expected.json").as_array(), folder.string(),
           report);
}

void run_tokenizer_steps(const std::filesystem::path& file, Report& report) {
  const boost::json::value whole = parse_json_file(file);
  const std::string all = every_character();
  for (const auto& [name, expected] : whole.at("classes").as_object()) {
    const Checksum sum = sum_of_class(name, all);
    expect_equal({sum.count, sum.value}, boost::json::value_to<std::vector<int64_t>>(expected), name, report);
  }
  for (const boost::json::value& item : whole.at("tokenizer_steps").as_array()) {
    boost::json::object tokenizer = item.at("steps").as_object();
    const std::string where = boost::json::serialize(tokenizer);
    tokenizer["model"] = whole.at("models").at(item.at("model").as_string());
    run_rows(data::Tokenizer::from_json(boost::json::serialize(tokenizer)), item.at("rows").as_array(), where, report);
  }
}

}  // namespace tessera::runner
