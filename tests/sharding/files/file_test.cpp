// Files written to a folder that others can change, and untrusted text in error messages.
#include "sharding/files/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <boost/json/value.hpp>

#include "sharding/base/table.h"
#include "sharding/base/text.h"
#include "sharding/files/json.h"
#include "sharding/files/json_part.h"
#include "tests/data/scratch_folder.h"
#include "tests/sharding/expect_error.h"

namespace tessera::file_test {
namespace {

namespace fs = std::filesystem;
using data::ScratchFolder;
using testing::expect_error;

TEST(File, ANewOneReplacesALinkAndNotTheFileItLeadsTo) {
  const ScratchFolder folder;
  const fs::path victim = folder.path("victim"), link = folder.path("link");
  write_text(victim, "keep me", "test");
  fs::create_symlink(victim, link);
  File::create(link, "test").write_at(std::as_bytes(std::span(std::string_view("new"))), 0);
  EXPECT_EQ(read_text(victim, "test"), "keep me");
  EXPECT_EQ(read_text(link, "test"), "new");
  EXPECT_FALSE(fs::is_symlink(link));
}

TEST(File, IsWrittenAndLockedOnlyWhereItIsItself) {
  const ScratchFolder folder;
  const fs::path victim = folder.path("victim"), link = folder.path("link");
  write_text(victim, "keep me", "test");
  fs::create_symlink(victim, link);
  for (const auto& write : {File::modify, File::lock})
    expect_error(ErrorKind::invalid_file, "cannot be written to (Too many levels of symbolic links). Remove the link",
                 [&] { write(link, "test"); });
}

TEST(File, ReplacesNoFolderAndNoPipe) {
  const ScratchFolder folder;
  const fs::path pipe = folder.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  fs::create_directory(folder.path("inner"));
  for (const fs::path& path : {pipe, fs::path(folder.path("inner"))})
    expect_error(ErrorKind::invalid_file, path.string() + ": this is not a regular file",
                 [&] { File::create(path, "test"); });
  fs::create_symlink(pipe, folder.path("link"));
  for (const fs::path& path : {pipe, fs::path(folder.path("inner")), fs::path(folder.path("link"))})
    expect_error(ErrorKind::invalid_file, path.string() + ": this is not a regular file",
                 [&] { write_text(path, "text", "test"); });
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST(File, ATextIsReplacedWholeAndNeverThroughALinkAtItsFirstName) {
  const ScratchFolder folder;
  const fs::path victim = folder.path("victim"), text = folder.path("config.json");
  write_text(victim, "keep me", "test");
  write_text(text, "old", "test");
  fs::create_symlink(victim, text.string() + ".partial");
  write_text(text, "new", "test");
  EXPECT_EQ(read_text(victim, "test"), "keep me");
  EXPECT_EQ(read_text(text, "test"), "new");
  EXPECT_FALSE(fs::exists(fs::symlink_status(text.string() + ".partial")));
}

TEST(File, OfATextHasAtMostSoManyBytes) {
  const ScratchFolder folder;
  const fs::path large = folder.path("large");
  write_text(large, "", "test");
  fs::resize_file(large, (int64_t{1} << 26) + 1);  // sparse: takes no space
  expect_error(ErrorKind::invalid_file, "67108865 bytes, expected at most 67108864", [&] { read_text(large, "test"); });
}

// ---- untrusted text

TEST(Escaped, ControlCharactersAreWrittenOut) {
  const struct {
    std::string_view given, expected;
  } cases[] = {{"plain \xc3\xa4 \xe2\x82\xac\n\t", "plain \xc3\xa4 \xe2\x82\xac\n\t"},
               {"\x1b]0;PWN\x07", "\\u001b]0;PWN\\u0007"},
               {"a\x7f\r", "a\\u007f\\u000d"},
               {"\xc2\x9b[2J \xc2\xa0", "\\u009b[2J \xc2\xa0"},
               {"\u2027\u2028\u202e\u202f", "\u2027\\u2028\\u202e\u202f"},
               {"\u2065\u2066\u2069\u206a \xe2\x80", "\u2065\\u2066\\u2069\u206a \xe2\x80"},
               {"\u200d\u200e\u200f\u2010 \u061b\u061c", "\u200d\\u200e\\u200f\u2010 \u061b\\u061c"},
               {"\x9b[2J \xc3\xa4\x84 \xf0\x9f\x98\x80", "\\u009b[2J \xc3\xa4\\u0084 \xf0\x9f\x98\x80"},
               {std::string_view("\0", 1), "\\u0000"}};
  for (const auto& [given, expected] : cases) {
    EXPECT_EQ(detail::escaped(given), expected);
    EXPECT_EQ(detail::escaped(detail::escaped(given)), expected);
  }
  EXPECT_EQ(detail::escaped("a\nb", ""), "a\\u000ab");
}

TEST(Escaped, ErrorsAndTablesObeyNoTerminal) {
  expect_error(ErrorKind::invalid_file, "[test] name\\u001b[2J: no",
               [] { fail(ErrorKind::invalid_file, "test", "name\x1b[2J: no"); });
  expect_error(ErrorKind::invalid_file, "[test] name\\u000aerror: none: no",
               [] { fail(ErrorKind::invalid_file, "test", "name\nerror: none: no"); });
  expect_error(ErrorKind::invalid_file, "[test] two names:\n  a\n  b\\u000ac", [] {
    fail_lines(ErrorKind::invalid_file, "test", "two names:", std::vector<std::string>{"a", "b\nc"});
  });
  detail::Table table({"name", "n"}, "<,");
  table.add({"a\x1b", int64_t{1}});
  table.add({"b\nc\xc2\x9b", int64_t{2000}});
  EXPECT_EQ(table.to_text(), "name                n\na\\u001b             1\nb\\u000ac\\u009b  2,000\n");
  EXPECT_EQ(table.to_markdown(), "| name | n |\n|---|---:|\n| a\\u001b | 1 |\n| b\\u000ac\\u009b | 2,000 |\n");
}

TEST(Escaped, ALongNameDoesNotMakeEveryLineOfATableLong) {
  detail::Table table({"", ""}, "<<");
  for (int i = 0; i < 1000; ++i) table.add({"name", "1"});
  table.add({std::string(100'000, 'x'), "1"});
  const std::string text = table.to_text();
  EXPECT_LT(text.size(), 400'000u);
  EXPECT_NE(text.find(std::string(100'000, 'x')), text.npos);
}

// ---- positions in JSON

TEST(JsonPart, ErrorsNameThePlaceWhereverTheValueIs) {
  const boost::json::value value = parse_json(R"({"a": [1, {"b": null, "c": "x"}], "d": {"e": 2}})", "test", "file");
  const detail::JsonPart file(value, "file", "test", " Really?");
  const auto inner = [&] { return file.at("a").item(1); };
  const std::pair<const char*, std::function<void()>> cases[] = {
      {"[test] file: {\"a\":[1,{\"b\":null,\"c\":\"x\"}],\"d\":{\"e\":2}} given, expected an integer. Really?",
       [&] { file.integer(); }},
      {"[test] file.a.0: 1 given, expected a string. Really?", [&] { file.at("a").item(0).text(); }},
      {"[test] file.a.1.c: \"x\" given, expected an integer. Really?", [&] { inner().at("c").integer(); }},
      {"[test] file.a.1.b: null given, expected an integer. Really?", [&] { inner().at_or_null("b").integer(); }},
      {"[test] file.a.1.z: null given, expected an integer. Really?", [&] { inner().at_or_null("z").integer(); }},
      {"[test] file.a.1: has no \"z\". Really?", [&] { inner().at("z"); }},
      {"[test] file.d.e: 2 given, expected an object. Really?", [&] { file.at("d").at("e").has("f"); }},
      {"[test] file.a.1: {\"b\":null,\"c\":\"x\"} given, expected a string. Really?",
       [&] {
         for (const auto& item : file.at("a").items()) item.is_null() || item.value.is_int64() ? "" : item.text();
       }},
      {"[test] file.d.e: 2 given, expected true or false. Really?", [&] {
         for (const auto& [key, member] : file.at("d").members()) member.flag();
       }}};
  for (const auto& [message, call] : cases) EXPECT_EQ(testing::error_of(ErrorKind::invalid_file, call), message);
}

}  // namespace
}  // namespace tessera::file_test
