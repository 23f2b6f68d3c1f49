// The tutorial programs compared with their Python originals: the same output, and no more lines of code.
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/examples/program.h"

namespace tessera::examples::tutorials_test {
namespace {

std::vector<std::string> lines_of(std::istream& in) {
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> lines_of_file(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return lines_of(file);
}

// Counts lines that are neither empty nor only a comment.
size_t lines_of_code(const std::string& path, const std::string& comment) {
  size_t count = 0;
  for (const std::string& line : lines_of_file(path)) {
    const size_t begin = line.find_first_not_of(" \t");
    count +=
        begin != std::string::npos && line.compare(begin, comment.size(), comment) != 0 && !line.starts_with("\"\"\"");
  }
  return count;
}

// Rewrites spec tuples of one entry as they are printed here: P('data') for Python's P('data',).
std::string respelt(std::string line) {
  if (const size_t comma = line.find(",)"); comma != std::string::npos) line.erase(comma, 1);
  return line;
}

// Words must be equal, and numbers with a fraction equal to a relative tolerance of 2e-5.
void expect_like(const std::string& got, const std::string& expected) {
  std::istringstream a(got), b(respelt(expected));
  std::string ours, theirs;
  while (b >> theirs) {
    ASSERT_TRUE(a >> ours) << got << "\nexpected: " << expected;
    const bool number = std::isdigit(static_cast<unsigned char>(theirs[0])) && theirs.find('.') != std::string::npos;
    if (!number)
      EXPECT_EQ(ours, theirs) << got << "\nexpected: " << expected;
    else
      EXPECT_NEAR(std::stod(ours), std::stod(theirs), 2e-5 * std::stod(theirs)) << got << "\nexpected: " << expected;
  }
  EXPECT_FALSE(a >> ours) << got << "\nexpected: " << expected;
}

class Tutorial : public ::testing::TestWithParam<const char*> {};

TEST_P(Tutorial, PrintsWhatItsOriginalPrints) {
  const std::string name = GetParam();
  const Outcome outcome = run_program(std::string(TESSERA_EXAMPLES_DIR) + "/" + name);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  std::istringstream output(outcome.output);
  const std::vector<std::string> got = lines_of(output);
  const std::vector<std::string> expected = lines_of_file(TESSERA_REFERENCE_DIR "/tutorial_" + name + ".txt");
  ASSERT_EQ(got.size(), expected.size()) << outcome.output;
  for (size_t i = 0; i < got.size(); ++i) expect_like(got[i], expected[i]);
}

TEST_P(Tutorial, IsNoLongerThanItsOriginal) {
  const std::string name = GetParam();
  const size_t ours = lines_of_code(TESSERA_EXAMPLES_SOURCE "/" + name + ".cpp", "//");
  const size_t theirs = lines_of_code(TESSERA_REFERENCE_DIR "/tutorial_" + name + ".py", "#");
  EXPECT_GT(ours, 20u);
  EXPECT_LE(ours, theirs);
}

INSTANTIATE_TEST_SUITE_P(Of, Tutorial, ::testing::Values("filter_shard", "dot_relu_dot", "logical_axes", "scaling_up"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tessera::examples::tutorials_test
