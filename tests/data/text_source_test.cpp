// Lines and documents: where each one begins, and files that are not text.
#include "data/sources/text_source.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "data/loader.h"
#include "tests/data/expect_error.h"
#include "tests/data/memory_limit.h"
#include "tests/data/scratch_folder.h"

namespace tessera::data::text_source_test {
namespace {

std::vector<std::string> all(const LineSource& source) {
  std::vector<std::string> lines;
  for (int64_t i = 0; i < source.size(); ++i) lines.push_back(source[i]);
  return lines;
}

TEST(Lines, EndWithNewlinesOrWithTheirFile) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(all(LineSource::from_string("a\nbc\r\n\nd")), (Lines{"a", "bc", "", "d"}));
  EXPECT_EQ(all(LineSource::from_string("a\n")), (Lines{"a"}));
  EXPECT_EQ(all(LineSource::from_string("\n")), (Lines{""}));
  EXPECT_EQ(all(LineSource::from_string("a\rb\r\r\n")), (Lines{"a\rb\r"}));
  EXPECT_EQ(all(LineSource::from_string("\xef\xbb\xbf"
                                        "a\n\xef\xbb\xbf"
                                        "b")),
            (Lines{"a",
                   "\xef\xbb\xbf"
                   "b"}));
  EXPECT_EQ(all(LineSource::from_string("\xef\xbb\xbf\n")), (Lines{""}));
  expect_error(ErrorKind::invalid_file, {"marked", "no line"},
               [] { LineSource::from_string("\xef\xbb\xbf", "marked"); });
  const std::string huge(3'000'000, 'x');
  EXPECT_EQ(all(LineSource::from_string(huge + "\n" + huge)), (Lines{huge, huge}));
  const ScratchFolder folder;
  folder.write("1", "a\nb");
  folder.write("2", "");
  folder.write("3", "c\n\nd\n");
  const auto source = LineSource::open({folder.path()});
  EXPECT_EQ(all(source), (Lines{"a", "b", "c", "", "d"}));
  EXPECT_EQ(source.where(1), folder.path("1") + ", line 2");
  EXPECT_EQ(source.where(4), folder.path("3") + ", line 3");
  expect_error(ErrorKind::invalid_argument, {"[read]", "line 5", "[0, 5)"}, [&] { source[5]; });
  EXPECT_EQ(lines({folder.path()}).map([](const std::string& s) { return s.size(); }).batch(2)[1],
            (std::vector<size_t>{1, 0}));
}

TEST(Lines, EmptyEndsOfFilesAreLeftOut) {
  const ScratchFolder folder;
  folder.write("1", "a\n\nb\n\r\n\n");
  folder.write("2", "\n\n");
  folder.write("3", "c\n\nd");
  const auto source = LineSource::open({folder.path()}).without_empty_ends();
  EXPECT_EQ(all(source), (std::vector<std::string>{"a", "", "b", "c", "", "d"}));
  EXPECT_EQ(source.where(2), folder.path("1") + ", line 3");
  EXPECT_EQ(source.where(5), folder.path("3") + ", line 3");
  expect_error(ErrorKind::invalid_file, "no line", [] { LineSource::from_string("\n\r\n").without_empty_ends(); });
}

TEST(Lines, AnIndexTakesLittleMemoryForEmptyLines) {
  std::string text(4'000'000, '\n');
  const testing::MemoryLimit limit(20 * text.size());
  const auto source = LineSource::from_string(std::move(text));
  EXPECT_EQ(source.size(), 4'000'000);
  EXPECT_EQ(source[3'999'999], "");
}

TEST(Utf8, IsCheckedByTheByte) {
  const struct {
    std::string text;
    int64_t at;
  } cases[] = {{"", -1},
               {"plain", -1},
               {"caf\xc3\xa9", -1},
               {"\xe2\x82\xac", -1},
               {"\xf0\x9f\x98\x80", -1},
               {"a\xff", 1},
               {"\xc3", 0},
               {"ab\xe2\x82", 2},
               {"\xc0\xaf", 0},
               {"\xe0\x9f\xbf", 0},
               {"\xed\xa0\x80", 0},
               {"\xf0\x8f\xbf\xbf", 0},
               {"\xf4\x90\x80\x80", 0},
               {"\xf5\x80\x80\x80", 0},
               {"\x80", 0},
               {"\xc3\x28", 0}};
  for (const auto& c : cases) EXPECT_EQ(first_invalid_utf8(c.text), c.at) << c.text;
}

TEST(Utf8, TextThatIsNoneIsAnErrorThatNamesItsPlace) {
  const ScratchFolder folder;
  const auto path = folder.write("odd.txt", "fine\nb\xe9te\n");
  const auto checked = LineSource::open({path});
  EXPECT_EQ(checked[0], "fine");
  expect_error(ErrorKind::invalid_file, {"[read]", path + ", line 2", "byte 1 (0xe9)", "UTF-8", "check_utf8"},
               [&] { checked[1]; });
  EXPECT_EQ(LineSource::open({path}, {.check_utf8 = false})[1], "b\xe9te");
  expect_error(ErrorKind::invalid_file, {path, "byte 6"}, [&] { documents({path})[0]; });
  Loader loader(lines({path}), as_vector, {.batch_size = 1});
  loader.next();
  expect_error(ErrorKind::invalid_file, {"[next] record 1 of epoch 0", "line 2"}, [&] { loader.next(); });
}

TEST(Documents, AreReadWhenAskedFor) {
  const ScratchFolder folder;
  folder.write("a.txt", "one");
  folder.write("b.md", "two");
  const auto path = folder.write("c.txt", "three");
  const auto texts = documents({folder.path()}, {.extensions = {"txt"}});
  EXPECT_EQ(texts.size(), 2);
  EXPECT_EQ(texts[0].text, "one");
  EXPECT_EQ(texts[1].path, path);
  folder.write("c.txt", "changed");
  expect_error(ErrorKind::invalid_file, {path, "had 5 bytes", "now has 7"}, [&] { texts[1]; });
  std::filesystem::remove(path);
  expect_error(ErrorKind::invalid_file, {path, "No such file"}, [&] { texts[1]; });
  expect_error(ErrorKind::invalid_argument, {"file 2"}, [&] { DocumentSource::open({folder.path()})[2]; });
}

TEST(TextSources, ThrowAfterAMove) {
  const ScratchFolder folder;
  folder.write("a.txt", "one");
  auto lines = LineSource::from_string("one\ntwo");
  auto documents = DocumentSource::open({folder.path()});
  const auto heir = std::move(lines);
  const auto heirs = std::move(documents);
  const std::pair<const char*, std::function<void()>> uses[] = {{"LineSource", [&] { lines[0]; }},
                                                                {"LineSource", [&] { lines.size(); }},
                                                                {"DocumentSource", [&] { documents.size(); }},
                                                                {"LineSource", [&] { lines.where(0); }},
                                                                {"ByteSource", [&] { lines.describe(); }},
                                                                {"DocumentSource", [&] { documents[0]; }},
                                                                {"DocumentSource", [&] { documents.describe(); }}};
  for (const auto& [name, use] : uses)
    expect_error(ErrorKind::invalid_argument,
                 {"[" + std::string(name) + "] this source was moved into another; use that one"}, use);
  EXPECT_EQ(heir[1], "two");
  EXPECT_EQ(heirs[0].text, "one");
}

}  // namespace
}  // namespace tessera::data::text_source_test
