// Compressed text: files written by gzip and zstd, files assembled from blocks, and damaged files.
#include "data/sources/decompress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/crc.hpp>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "data/sources/json_lines.h"
#include "data/sources/text_source.h"
#include "tests/data/expect_error.h"
#include "tests/data/memory_limit.h"
#include "tests/data/scratch_folder.h"
#include "tests/data/skip_without.h"

namespace tessera::data {

struct TextRecord {
  std::string text;
};

namespace {

template <size_t n>
std::string text_of(const char (&bytes)[n]) {
  return {bytes, n - 1};
}

// {"text": "one"}\n{"text": "two two two two two two two two"}\n, by gzip -n and by zstd.
const std::string gzip_lines = text_of(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xab\x56\x2a\x49\xad\x28\x51\xb2\x52\x50\xca\xcf\x4b\x55\xaa\xe5\xaa\x86"
    "\xf3"
    "\x4b\xca\xf3\x15\xf0\x60\xa0\x5a\x00\xd2\xb4\x71\xeb\x3c\x00\x00\x00");
const std::string zstd_lines = text_of(
    "\x28\xb5\x2f\xfd\x24\x3c\xfd\x00\x00\xb8\x7b\x22\x74\x65\x78\x74\x22\x3a\x20\x22\x6f\x6e\x65\x22\x7d\x0a\x74\x77"
    "\x6f"
    "\x20\x22\x7d\x0a\x02\x00\xbb\x40\x0c\x3c\x97\x6b\x8d\xaf\xe0");

// 40,000 newlines, by gzip -n9.
const std::string repeated_gzip_newlines = text_of(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff\xed\xc1\x21\x01\x00\x00\x00\xc3\x20\xbf\xfe\x81\xaf\xde\x02"
    "\x28\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
    "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xe0\x06\x63\x85\xd9\x17\x40\x9c\x00\x00");

std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> 8 * i);
  return text;
}

// Stores the text uncompressed, in stored blocks (RFC 1951, 3.2.4; RFC 1952).
std::string stored_gzip(const std::string& text) {
  std::string file("\x1f\x8b\x08\0\0\0\0\0\0\x03", 10);
  for (size_t at = 0, n; at == 0 || at < text.size(); at += n) {
    n = std::min<size_t>(text.size() - at, 65535);
    file += at + n == text.size() ? '\1' : '\0';
    file += little_endian(n, 2) + little_endian(~n, 2) + text.substr(at, n);
    if (n == 0) break;
  }
  boost::crc_32_type crc;
  crc.process_bytes(text.data(), text.size());
  return file + little_endian(crc.checksum(), 4) + little_endian(text.size(), 4);
}

// Stores the text uncompressed, in raw blocks (RFC 8878, 3.1.1).
std::string stored_zstd(const std::string& text) {
  std::string file = std::string("\x28\xb5\x2f\xfd\xe0", 5) + little_endian(text.size(), 8);
  for (size_t at = 0, n; at == 0 || at < text.size(); at += n) {
    n = std::min<size_t>(text.size() - at, 128 << 10);
    file += little_endian(n << 3 | (at + n == text.size()), 3) + text.substr(at, n);
    if (n == 0) break;
  }
  return file;
}

// `blocks` blocks of 128 KiB, each a single repeated byte that takes 4 bytes in the file (RFC 8878, 3.1.1.2.3).
std::string repeated_zstd(char byte, int blocks) {
  std::string file = std::string("\x28\xb5\x2f\xfd\xe0", 5) + little_endian(uint64_t(blocks) << 17, 8);
  for (int i = 0; i < blocks; ++i)
    file += little_endian(uint64_t{128 << 10} << 3 | 1 << 1 | (i + 1 == blocks), 3) + byte;
  return file;
}

class Compressed : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    testing::skip_without("was built without", [&] { text(stored("x")); });
  }
  static std::span<const uint8_t> as_bytes(const std::string& text) {
    return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  }
  std::string end() const { return GetParam(); }
  bool is_zstd() const { return end() == ".zst"; }
  std::string stored(const std::string& text) const { return is_zstd() ? stored_zstd(text) : stored_gzip(text); }
  std::string lines() const { return is_zstd() ? zstd_lines : gzip_lines; }
  std::string text(const std::string& compressed) const {
    std::string text;
    for (const auto& piece : detail::decompressed(as_bytes(compressed), "x" + end(), 1 << 30))
      text.append(reinterpret_cast<const char*>(piece.bytes.get()), static_cast<size_t>(piece.size));
    return text;
  }

  ScratchFolder folder;
};

TEST_P(Compressed, RecordsAreThoseOfTheText) {
  const auto path = folder.write("a.jsonl" + end(), lines());
  const auto records = json_lines<TextRecord>({path});
  ASSERT_EQ(records.size(), 2);
  EXPECT_EQ(records[0].text, "one");
  EXPECT_EQ(records[1].text, "two two two two two two two two");
  folder.write("b.jsonl", "{\"text\": 3}\n");
  const auto all = json_lines<TextRecord>({folder.path()}, {.extensions = {".jsonl", ".jsonl" + end()}});
  ASSERT_EQ(all.size(), 3);
  expect_error(ErrorKind::invalid_file, {folder.path("b.jsonl") + ", line 1", "record.text: 3 given"}, [&] { all[2]; });
  EXPECT_EQ(LineSource::open({folder.path()}).where(1), path + ", line 2");
  const auto whole = documents({path});
  EXPECT_EQ(whole[0].text, text(lines()));
  EXPECT_EQ(whole[0].path, path);
}

TEST_P(Compressed, FilesOfSeveralPartsAreTheirTextsTogether) {
  EXPECT_EQ(text(lines() + stored("end") + stored("")), text(lines()) + "end");
  EXPECT_EQ(text(stored("")), "");
  folder.write("a" + end(), stored(""));
  folder.write("b" + end(), stored("first\nsec") + stored("ond"));
  const auto source = LineSource::open({folder.path()});
  EXPECT_EQ(source.size(), 2);
  EXPECT_EQ(source[1], "second");
}

TEST_P(Compressed, ZerosAfterAGzipMemberAreIgnored) {
  const std::string padded = lines() + std::string(512, '\0');
  if (!is_zstd()) {
    EXPECT_EQ(text(padded), text(lines()));
  }
  expect_error(ErrorKind::invalid_file, {"[open] x" + end()}, [&] { text(padded + "\1"); });
}

TEST_P(Compressed, LinesMayCrossPiecesOfMemory) {
  std::mt19937 random(3);
  std::string text;
  std::vector<std::string> expected;
  while (text.size() < 13'000'000) {
    expected.emplace_back(random() % 200'000, static_cast<char>('a' + random() % 26));
    text += expected.back() + "\n";
  }
  const auto source = LineSource::open({folder.write("long.txt" + end(), stored(text))});
  ASSERT_EQ(source.size(), static_cast<int64_t>(expected.size()));
  for (int64_t i = source.size() - 1; i >= 0; --i) ASSERT_EQ(source[i], expected[static_cast<size_t>(i)]) << i;
}

// One megabyte of frames or members. Each one expands to as many equal bytes as possible.
TEST_P(Compressed, FilesThatHoldTooMuchAreRefusedBeforeTheyAreInMemory) {
  const std::string member = is_zstd() ? repeated_zstd('\n', 200) : repeated_gzip_newlines;
  std::string bomb;
  while (bomb.size() < 300'000) bomb += member;
  const auto path = folder.write("bomb.txt" + end(), bomb);
  const std::initializer_list<std::string> words = {"[open] " + path, "hold more than", "raise max_decompressed_bytes"};
  const testing::MemoryLimit limit(size_t{150} << 20);
  expect_error(ErrorKind::invalid_file, words, [&] { LineSource::open({path}); });
  expect_error(ErrorKind::invalid_file, words, [&] { json_lines({path}); });
  expect_error(ErrorKind::invalid_file, words, [&] { documents({path})[0]; });
  expect_error(ErrorKind::invalid_file, words, [&] { ByteSource::open({path}, {.decompress = true}); });
}

TEST_P(Compressed, TheLimitIsAnOptionForAllFilesTogether) {
  folder.write("a.txt" + end(), stored(std::string(600, 'a') + "\n"));
  folder.write("b.txt" + end(), stored(std::string(400, 'b')));
  EXPECT_EQ(LineSource::open({folder.path()}, {.max_decompressed_bytes = 1001}).size(), 2);
  expect_error(ErrorKind::invalid_file, {folder.path("b.txt" + end()), "hold more than 399"},
               [&] { LineSource::open({folder.path()}, {.max_decompressed_bytes = 1000}); });
  EXPECT_EQ(documents({folder.path()}, {.max_decompressed_bytes = 601})[0].text.size(), 601u);
  expect_error(ErrorKind::invalid_file, "hold more than 600",
               [&] { documents({folder.path()}, {.max_decompressed_bytes = 600})[0]; });
  expect_error(ErrorKind::invalid_argument, "max_decompressed_bytes -1",
               [&] { LineSource::open({folder.path()}, {.max_decompressed_bytes = -1}); });
}

TEST_P(Compressed, DamagedFilesAreErrorsThatNameThem) {
  const auto said_of = [&](const std::string& bytes) {
    const auto path = folder.write("bad.txt" + end(), bytes);
    const std::string said = testing::error_of(ErrorKind::invalid_file, [&] { LineSource::open({path}); });
    EXPECT_TRUE(said.starts_with("[open] " + path + ": ")) << said;
    return said;
  };
  EXPECT_NE(said_of("plain text\n").find(", or a damaged one"), std::string::npos);
  EXPECT_NE(said_of(lines() + "plain text\n").find(", or a damaged one"), std::string::npos);
  for (size_t size = 0; size < lines().size(); ++size)
    EXPECT_NE(said_of(lines().substr(0, size)).find("truncated"), std::string::npos) << size;
  std::string damaged = lines();
  damaged[damaged.size() - (is_zstd() ? 1 : 6)] ^= 1;  // a byte of the checksum
  EXPECT_NE(said_of(damaged).find(", or a damaged one"), std::string::npos);
  const auto path = folder.path("bad.txt" + end());
  expect_error(ErrorKind::invalid_file, path, [&] { documents({path})[0]; });
}

TEST_P(Compressed, DamagedBytesAreErrorsOrText) {
  std::mt19937 random(7);
  int read = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = lines() + stored("some more");
    for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes)
      bytes[random() % bytes.size()] = static_cast<char>(random());
    try {
      text(bytes);
      ++read;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::invalid_file);
    }
  }
  EXPECT_LT(read, 2900);
}

INSTANTIATE_TEST_SUITE_P(, Compressed, ::testing::Values(".gz", ".zst"),
                         [](const auto& info) { return std::string(info.param).substr(1); });

}  // namespace
}  // namespace tessera::data
