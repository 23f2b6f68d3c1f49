// Runs folders of tokenizers: the tokens of their texts, the tokens' offsets, and the decoded texts.
#include "data/text/tokenizer.h"

#include <boost/json.hpp>
#include <string>
#include <vector>

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

}  // namespace

void run_tokenizer(const std::filesystem::path& folder, Report& report) {
  const auto tokenizer = data::Tokenizer::open(folder);
  const boost::json::value expected = parse_json_file(folder / "expected.json");
  for (size_t i = 0; i < expected.as_array().size(); ++i) {
    const boost::json::object& row = expected.as_array()[i].as_object();
    const std::string where = folder.string() + ", text " + std::to_string(i);
    const auto ids = boost::json::value_to<std::vector<int32_t>>(row.at("ids"));
    const data::Encoding encoding =
        tokenizer.encode(std::string_view(row.at("text").as_string()), {.add_special_tokens = false});
    expect_equal(encoding.ids, ids, where + ", ids", report);
    expect_equal(encoding.offsets, boost::json::value_to<std::vector<std::pair<int64_t, int64_t>>>(row.at("offsets")),
                 where + ", offsets", report);
    expect_equal(tokenizer.decode(ids, {.skip_special_tokens = false}), std::string(row.at("decoded").as_string()),
                 where + ", decoded", report);
    if (!row.contains("ids_with_special")) continue;
    const auto all = boost::json::value_to<std::vector<int32_t>>(row.at("ids_with_special"));
    expect_equal(tokenizer.encode(std::string_view(row.at("text").as_string())).ids, all, where + ", ids with special",
                 report);
    expect_equal(tokenizer.decode(all), std::string(row.at("decoded_without_special").as_string()),
                 where + ", decoded without special", report);
  }
}

}  // namespace tessera::runner
