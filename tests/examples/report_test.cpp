// train_transformer --report: the page contains what the program prints, and draws it in a browser.
#include "nn/report/report.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <filesystem>
#include <regex>
#include <sstream>

#include "nn/placement/table.h"
#include "tests/examples/training.h"

namespace tessera::examples::report_test {
namespace {

namespace json = boost::json;

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

std::string text_of(const json::value& record, const char* key) { return std::string(record.at(key).as_string()); }

class TrainingReport : public Training {
 protected:
  struct Page {
    std::string path, text, printed;
    json::value data;
    std::vector<Row> rows;

    const json::array& collectives() const { return data.at("communication").at("collectives").as_array(); }
    nn::PlacementTable table() const { return nn::parse_placement_table(json::serialize(data.at("placement"))); }
  };

  Page page_of(const std::string& flags) {
    Page page{.path = folder_.path("report.html")};
    Run run = this->run(flags + " --report " + page.path);
    page.text = folder_.read("report.html");
    page.printed = std::move(run.outcome.output);
    page.rows = std::move(run.rows);
    const std::string open = R"(<script type="application/json" id="data">)";
    const size_t begin = page.text.find(open) + open.size();
    page.data = json::parse(page.text.substr(begin, page.text.find("</script>", begin) - begin));
    return page;
  }
};

const char* const placements[] = {"--strategy 2d", "--strategy fsdp",
                                  "--mesh data=4,model=2 --rules mlp=model,embed=data", "--mesh data=1"};

// ---- contents of the page

TEST_F(TrainingReport, IsOneFileThatNeedsNothing) {
  for (const char* flags : placements) {
    const Page page = page_of(flags);
    EXPECT_LT(page.text.size(), 2'000'000u);
    for (const char* word : {"http:", "https:", "url(", "@import", "src="})
      EXPECT_EQ(count(page.text, word), 0) << word;
    EXPECT_EQ(count(page.text, "href="), count(page.text, "href=\"data:,\""));
  }
}

TEST_F(TrainingReport, ListsAllShardings) {
  for (const char* flags : placements) {
    const Page page = page_of(flags);
    EXPECT_NE(page.printed.find(page.table().to_text()), std::string::npos) << flags << page.printed;
  }
}

// Each printed row of the ledger has the same count and bytes on the page.
TEST_F(TrainingReport, ListsTheCommunicationOfAStep) {
  for (const char* flags : placements) {
    const Page page = page_of(flags);
    std::istringstream lines(page.printed.substr(page.printed.find("One step communicates")));
    const std::regex row("(\\w+) +([\\w,]+) +\\d+ +(\\d+) +(\\d+)  (forward|backward) .*");
    size_t found = 0;
    std::smatch match;
    for (std::string line; std::getline(lines, line) && !line.empty();) {
      if (!std::regex_match(line, match, row)) continue;
      int64_t times = 0, bytes = 0;
      for (const json::value& record : page.collectives()) {
        if (text_of(record, "kind") != match[1] || text_of(record, "axes") != match[2]) continue;
        if (text_of(record, "pass") != match[5]) continue;
        ++times;
        bytes += record.at("bytes").as_int64();
      }
      EXPECT_EQ(times, std::stoll(match[3])) << line;
      EXPECT_EQ(bytes, std::stoll(match[4])) << line;
      found += static_cast<size_t>(times);
    }
    EXPECT_EQ(found, page.collectives().size()) << flags;
  }
}

TEST_F(TrainingReport, DrawsTheMetrics) {
  const Page page = page_of("--steps 6");
  const json::array& charts = page.data.at("charts").as_array();
  ASSERT_EQ(charts.size(), 4u);
  const char* const keys[] = {"loss", "tokens_per_second", "grad_norm", "learning_rate"};
  for (size_t i = 0; i < 4; ++i) {
    const json::array& points = charts[i].at("series").at(0).at("points").as_array();
    size_t at = 0;
    for (const Row& row : page.rows) {
      if (row.is_validation()) continue;
      ASSERT_LT(at, points.size());
      EXPECT_EQ(points[at].at(0).to_number<double>(), row["step"]);
      EXPECT_NEAR(points[at].at(1).to_number<double>(), row[keys[i]], 1e-5 * row[keys[i]] + 0.05 * (i == 1));
      ++at;
    }
    EXPECT_EQ(at, points.size()) << keys[i];
  }
  const json::array& validation = charts[0].at("series").at(1).at("points").as_array();
  EXPECT_NEAR(validation.back().at(1).to_number<double>(), page.rows.back()["validation_loss"], 1e-5);
}

TEST_F(TrainingReport, ContinuesWithAResumedTraining) {
  const std::string save = " --save " + folder_.path("saved") + " --save-every 2";
  page_of("--steps 4" + save);
  std::filesystem::remove_all(folder_.path("saved/step-00000004"));
  const Page page = page_of("--steps 4 --resume" + save);
  const json::array& losses = page.data.at("charts").at(0).at("series").at(0).at("points").as_array();
  ASSERT_EQ(losses.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(losses[i].at(0).to_number<double>(), static_cast<double>(i + 1));
}

TEST_F(TrainingReport, AFileThatCannotBeWrittenIsNamed) {
  expect_error("--report " + folder_.path("nowhere/report.html"), "[metrics] " + folder_.path("nowhere/report.html"),
               1);
}

// ---- in a browser

class ReportInABrowser : public TrainingReport {
 protected:
  void SetUp() override {
    if (std::string(TESSERA_CHROMIUM).empty()) GTEST_SKIP() << "no Chromium is installed";
  }

  // Opens the page in a browser; returns its elements after the script ran, and the console's messages.
  std::string opened(const std::string& path, const std::string& flags = "") {
    const Outcome outcome = run_program(
        fmt::format("timeout 120 {} --headless --no-sandbox --disable-gpu --enable-logging=stderr --user-data-dir={} "
                    "--virtual-time-budget=3000 --window-size=1280,900 {} --dump-dom file://{}",
                    TESSERA_CHROMIUM, folder_.path("browser"), flags, path));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_FALSE(outcome.says(":CONSOLE")) << outcome.output;
    return outcome.output.substr(std::min(outcome.output.find("<html"), outcome.output.size()));
  }
};

TEST_F(ReportInABrowser, DrawsEveryArrayEveryCollectiveAndEveryCurve) {
  for (const char* flags : placements) {
    const Page page = page_of(flags);
    const nn::PlacementTable table = page.table();
    int64_t arrays = 0;
    for (const nn::PlacementRow& row : table.rows()) arrays += row.bytes_per_device > 0;
    const int64_t devices = flags == std::string("--mesh data=1") ? 1 : 8;
    for (const char* scheme : {"--blink-settings=preferredColorScheme=0", "--blink-settings=preferredColorScheme=1"}) {
      const std::string drawn = opened(page.path, scheme);
      EXPECT_EQ(count(drawn, "class=\"tile "), arrays) << flags;
      EXPECT_EQ(count(drawn, "class=\"bar "), static_cast<int64_t>(page.collectives().size())) << flags;
      EXPECT_EQ(count(drawn, "aria-label=\"Device at "), devices) << flags;
      EXPECT_EQ(count(drawn, "<figure class=\"chart\">"), 4);
      EXPECT_GE(count(drawn, "<path class=\"curve "), 8);
      EXPECT_EQ(count(drawn, "id=\"problem\" role=\"alert\" hidden"), 1) << "an error is shown";
    }
  }
}

TEST_F(ReportInABrowser, ShowsTextsAsTheyAre) {
  const std::string path = folder_.path("hostile.html");
  std::ofstream(path)
      << nn::Report{.title = "</script><b>bold</b>",
                    .facts = {{"<i>", "&amp;"}},
                    .placement = nn::PlacementTable(
                        {{.path = "<img src=x onerror=alert(1)>", .spec = "P()", .bytes = 4, .bytes_per_device = 4}}),
                    .collectives = {{.kind = "<u>", .mesh_axes = "<s>", .bytes = 4, .operation = "<q>"}}}
             .to_html();
  const std::string drawn = opened(path);
  EXPECT_EQ(count(drawn, "<h1 id=\"title\">&lt;/script&gt;&lt;b&gt;bold&lt;/b&gt;</h1>"), 1);
  EXPECT_EQ(count(drawn, "<dt>&lt;i&gt;</dt><dd>&amp;amp;</dd>"), 1);
  for (const char* tag : {"<b>bold", "<img", "<u>", "<s>", "<q>"}) EXPECT_EQ(count(drawn, tag), 0) << tag;
  EXPECT_EQ(count(drawn, "class=\"tile "), 1);
}

}  // namespace
}  // namespace tessera::examples::report_test
