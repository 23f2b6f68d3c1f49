// A byte source concatenates its files; every unsuitable path is an Error that names it.
#include "data/sources/source.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "data/sources/token_source.h"
#include "data/sources/windows.h"
#include "tests/data/expect_error.h"
#include "tests/data/scratch_folder.h"

namespace tessera::data::source_test {
namespace {

namespace fs = std::filesystem;

std::string read(const ByteSource& source, int64_t offset, int64_t count) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count));
  source.read(offset, bytes);
  return std::string(bytes.begin(), bytes.end());
}

std::string all(const ByteSource& source) { return read(source, 0, source.size()); }

TEST(ByteSource, FilesOfAFolderFollowEachOtherInPathOrder) {
  const ScratchFolder folder;
  folder.write("b.txt", "B");
  folder.write("a/z.txt", "Z");
  folder.write("a/.hidden", "H");
  folder.write("c/_empty", "");
  folder.write("c/d/e.txt", "E");
  const auto source = ByteSource::open({folder.path()});
  EXPECT_EQ(all(source), "HZBE");
  ASSERT_EQ(source.files().size(), 5u);
  EXPECT_EQ(source.files()[3].path, folder.path("c/_empty"));
  EXPECT_EQ(source.files()[4].begin, 3);
}

TEST(ByteSource, PathsKeepTheirOrderAndExtensionsFilterFoldersOnly) {
  const ScratchFolder folder;
  folder.write("in/a.h", "1");
  folder.write("in/b.cuh", "2");
  folder.write("in/c.txt", "3");
  const auto direct = folder.write("z.txt", "4");
  EXPECT_EQ(all(ByteSource::open({direct, folder.path("in")}, {.extensions = {".h"}})), "41");
  EXPECT_EQ(all(ByteSource::open({folder.path("in")}, {.extensions = {"cuh", "txt"}})), "23");
  EXPECT_EQ(all(ByteSource::open({direct, direct})), "44");
}

TEST(ByteSource, AWindowMayStraddleManyFilesWhateverIsMapped) {
  const ScratchFolder folder;
  std::string expected;
  for (int i = 0; i < 12; ++i) {
    const std::string bytes(static_cast<size_t>(i * 7 % 5), static_cast<char>('a' + i));
    folder.write("f" + std::to_string(10 + i), bytes);
    expected += bytes;
  }
  for (const int64_t map_from : {0, 1, 3, 100}) {
    const auto source = ByteSource::open({folder.path()}, {.map_from = map_from});
    ASSERT_EQ(source.size(), static_cast<int64_t>(expected.size()));
    for (int64_t begin = 0; begin <= source.size(); ++begin) {
      for (int64_t count = 0; count <= source.size() - begin; ++count) {
        ASSERT_EQ(read(source, begin, count), expected.substr(static_cast<size_t>(begin), static_cast<size_t>(count)));
      }
    }
  }
}

TEST(ByteSource, AScanSeesEveryByteAndWhereNamesIt) {
  const ScratchFolder folder;
  folder.write("a", "aa");
  folder.write("b", "");
  folder.write("c", "cccc");
  const auto source = ByteSource::open({folder.path()}, {.map_from = 3});
  std::string seen;
  const auto see = [&](std::span<const uint8_t> piece) { seen.append(piece.begin(), piece.end()); };
  source.scan(0, 6, see);
  EXPECT_EQ(seen, "aacccc");
  source.scan(1, 2, see);
  EXPECT_EQ(seen, "aaccccac");
  source.scan(6, 0, see);
  EXPECT_EQ(source.where(1), folder.path("a") + ", byte 1");
  EXPECT_EQ(source.where(2), folder.path("c") + ", byte 0");
}

TEST(ByteSource, ManySmallFiles) {
  const ScratchFolder folder;
  for (int i = 0; i < 3000; ++i) folder.write(std::to_string(i / 100) + "/" + std::to_string(10000 + i), "abc");
  const auto source = ByteSource::open({folder.path()});
  EXPECT_EQ(source.size(), 9000);
  source.scan(0, 9000, [](auto piece) { EXPECT_EQ(piece.size(), 9000u) << "small files are one piece"; });
}

TEST(ByteSource, FollowsLinksAndCopiesOutliveTheOriginal) {
  const ScratchFolder folder;
  folder.write("elsewhere/a", "A");
  folder.write("in/b", "B");
  fs::create_directory_symlink(folder.path("elsewhere"), folder.path("in/linked"));
  fs::create_symlink(folder.path("elsewhere/a"), folder.path("in/a"));
  auto source = std::make_unique<ByteSource>(ByteSource::open({folder.path("in")}));
  const ByteSource copy = *source;
  source.reset();
  EXPECT_EQ(all(copy), "ABA");
}

TEST(ByteSource, AFolderThatManyLinksLeadToIsListedOnce) {
  const ScratchFolder folder;
  folder.write("in/0/text", "A");
  folder.write("in/z/text", "Z");
  fs::create_directory_symlink("z", folder.path("in/latest"));
  EXPECT_EQ(all(ByteSource::open({folder.path("in")})), "AZ");
  EXPECT_EQ(ByteSource::open({folder.path("in")}).files()[1].path, folder.path("in/latest/text"));
  EXPECT_EQ(all(ByteSource::open({folder.path("in/z"), folder.path("in/latest")})), "ZZ");
  // Each of the 60 levels has two links to the next one.
  for (int level = 0; level < 60; ++level) {
    const auto name = [](int number) { return "levels/" + std::to_string(number); };
    fs::create_directories(folder.path(name(level)));
    for (const char* link : {"/a", "/b"})
      fs::create_directory_symlink(folder.path(name(level + 1)), folder.path(name(level) + link));
  }
  folder.write("levels/60/text", "deep");
  EXPECT_EQ(all(ByteSource::open({folder.path("levels/30")})), "deep");
}

TEST(ByteSource, OddPathsAreErrorsThatNameThem) {
  const ScratchFolder folder;
  folder.write("texts/a.txt", "a");
  folder.write("nothing/empty.txt", "");
  fs::create_directories(folder.path("bare"));
  const auto missing = folder.path("no/such");
  expect_error(ErrorKind::invalid_file, {"[open]", missing, "No such file"}, [&] { ByteSource::open({missing}); });
  expect_error(ErrorKind::invalid_file, {folder.path("texts"), "no file ends in .h .cuh"},
               [&] { ByteSource::open({folder.path("texts")}, {.extensions = {"h", "cuh"}}); });
  expect_error(ErrorKind::invalid_file, {folder.path("bare"), "without any file"},
               [&] { ByteSource::open({folder.path("bare")}); });
  expect_error(ErrorKind::invalid_file, {folder.path("nothing"), "no bytes in 1 file"},
               [&] { ByteSource::open({folder.path("nothing")}); });
  expect_error(ErrorKind::invalid_argument, {"no paths"}, [] { ByteSource::open({}); });
  expect_error(ErrorKind::invalid_argument, {"no bytes"}, [] { ByteSource::from_string(""); });
}

TEST(ByteSource, OddEntriesOfAFolderAreErrorsUnlessFilteredOut) {
  const ScratchFolder folder;
  folder.write("a.txt", "a");
  fs::create_symlink(folder.path("gone"), folder.path("dangling"));
  expect_error(ErrorKind::invalid_file, {folder.path("dangling"), "a broken symbolic link"},
               [&] { ByteSource::open({folder.path()}); });
  EXPECT_EQ(all(ByteSource::open({folder.path()}, {.extensions = {".txt"}})), "a");
  fs::remove(folder.path("dangling"));
  ASSERT_EQ(::mkfifo(folder.path("pipe").c_str(), 0600), 0);
  expect_error(ErrorKind::invalid_file, {folder.path("pipe"), "neither"}, [&] { ByteSource::open({folder.path()}); });
  fs::remove(folder.path("pipe"));
  fs::create_directories(folder.path("deep/er"));
  fs::create_directory_symlink(folder.path("deep"), folder.path("deep/er/loop"));
  expect_error(ErrorKind::invalid_file, {"loop", "no end"}, [&] { ByteSource::open({folder.path()}); });
}

TEST(ByteSource, UnreadableFilesAndFoldersAreErrors) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const ScratchFolder folder;
  const auto file = folder.write("locked/a.txt", "a");
  for (const auto& path : {file, folder.path("locked")}) {
    fs::permissions(path, fs::perms::none);
    expect_error(ErrorKind::invalid_file, {path, "readable"}, [&] { ByteSource::open({path}); });
    fs::permissions(path, fs::perms::owner_all);
  }
}

TEST(ByteSource, AFileThatChangesUnderneathIsAnError) {
  const ScratchFolder folder;
  const auto path = folder.write("a", std::string(100'000, 'a'));
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(30)); };
  const auto source = ByteSource::open({path}, {.map_from = 1});
  EXPECT_EQ(read(source, 99'990, 10), "aaaaaaaaaa");
  fs::resize_file(path, 1000);
  pause();
  for (int again = 0; again < 2; ++again) {
    expect_error(ErrorKind::invalid_file, {"[read]", path, "had 100000 bytes", "now has 1000"},
                 [&] { read(source, 99'990, 10); });
    expect_error(ErrorKind::invalid_file, {path}, [&] { source.scan(0, 10, [](auto) {}); });
  }
  const auto other = folder.write("b", std::string(5000, 'b'));
  const auto written = ByteSource::open({other}, {.map_from = 1});
  pause();
  folder.write("b", std::string(5000, 'c'));
  pause();
  expect_error(ErrorKind::invalid_file, {other, "written to"}, [&] { read(written, 0, 1); });
  const auto replaced = ByteSource::open({other}, {.map_from = 1});
  folder.write("new", "short");
  fs::rename(folder.path("new"), other);
  pause();
  EXPECT_EQ(read(replaced, 0, 3), "ccc") << "the source continues with the old file";
}

TEST(ByteSource, AScanLooksAtAMappedFileAgainAndAgain) {
  const ScratchFolder folder;
  const auto path = folder.write("a", std::string(3'000'000, 'a'));
  const auto source = ByteSource::open({path}, {.map_from = 1});
  int64_t seen = 0;
  expect_error(ErrorKind::invalid_file, {"[read]", path, "had 3000000 bytes", "now has 10"}, [&] {
    source.scan(0, 3'000'000, [&](std::span<const uint8_t> piece) {
      seen += static_cast<int64_t>(piece.size());
      fs::resize_file(path, 10);
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
    });
  });
  EXPECT_LT(seen, 3'000'000);
}

TEST(ByteSource, DescribesItsContentsNotItsPath) {
  const ScratchFolder folder;
  folder.write("1/a", "one");
  folder.write("2/a", "one");
  folder.write("3/a", "two");
  const auto words = [&](const char* name) { return ByteSource::open({folder.path(name)}).describe(); };
  EXPECT_EQ(words("1"), words("2"));
  EXPECT_NE(words("1"), words("3"));
  EXPECT_TRUE(words("1").starts_with("1 file, 3 bytes, "));
}

TEST(TokenSource, ReadsNumbersOfSeveralBytes) {
  const ScratchFolder folder;
  const std::vector<uint16_t> shorts = {1, 513, 65535, 7};
  const std::vector<uint32_t> longs = {1, 70000, 4000000000};
  const auto as_text = [](const auto& v) {
    return std::string(reinterpret_cast<const char*>(v.data()), v.size() * sizeof v[0]);
  };
  const auto small = folder.write("a.bin", as_text(shorts)), large = folder.write("b.bin", as_text(longs));
  const auto source = TokenSource<uint16_t>::open({small, small});
  EXPECT_EQ(source.size(), 8);
  EXPECT_EQ(windows(source, 4, 4)[1], shorts);
  EXPECT_EQ(windows(source, 3, 3)[1], (std::vector<uint16_t>{7, 1, 513})) << "across files";
  EXPECT_EQ(windows(TokenSource<uint32_t>::open({large}), 3)[0], longs);
  EXPECT_TRUE(windows(source, 3).describe().ends_with("as uint16 tokens | windows(3, 2)"));
  expect_error(ErrorKind::invalid_file, {"[open]", small, "7 bytes", "truncated"},
               [&] { fs::resize_file(small, 7), TokenSource<uint16_t>::open({small}); });
}

TEST(ByteSource, ThrowsAfterAMove) {
  auto source = ByteSource::from_string("abc");
  const auto heir = std::move(source);
  const std::function<void()> uses[] = {[&] { source.size(); },      [&] { source.files(); },
                                        [&] { read(source, 0, 1); }, [&] { source.scan(0, 1, [](auto) {}); },
                                        [&] { source.where(0); },    [&] { source.describe(); }};
  for (const auto& use : uses)
    expect_error(ErrorKind::invalid_argument, {"[ByteSource] this source was moved into another; use that one"}, use);
  EXPECT_EQ(all(heir), "abc");
}

TEST(ByteSource, ReadingPastTheEndIsAnError) {
  const auto source = ByteSource::from_string("abc");
  expect_error(ErrorKind::invalid_argument, {"[read] 2 bytes from 2 on, of a source of 3"},
               [&] { read(source, 2, 2); });
  expect_error(ErrorKind::invalid_argument, {"1 bytes from -1 on"}, [&] { read(source, -1, 1); });
  expect_error(ErrorKind::invalid_argument, {"from 3 on"}, [&] { source.where(3); });
  const auto most = std::numeric_limits<int64_t>::max();
  for (const int64_t offset : {most, most - 1, -most})
    expect_error(ErrorKind::invalid_argument, {"2 bytes from " + std::to_string(offset)},
                 [&] { read(source, offset, 2); });
  EXPECT_EQ(read(source, 3, 0), "");
}

}  // namespace
}  // namespace tessera::data::source_test
