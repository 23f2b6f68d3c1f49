// TokenWriter: the bytes of both files, and reading them with TokenFiles.
#include "data/sources/token_writer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "data/sources/token_files.h"
#include "tests/data/expect_error.h"
#include "tests/data/scratch_folder.h"

namespace tessera::data::token_writer_test {
namespace {

using Ids = std::vector<int32_t>;

std::string written(const ScratchFolder& folder, int64_t vocab_size, const std::vector<Ids>& documents) {
  std::filesystem::remove(folder.path("a.bin"));
  TokenWriter writer(folder.path("a"), vocab_size);
  for (const Ids& document : documents) writer.add(document);
  EXPECT_FALSE(std::filesystem::exists(folder.path("a.bin")));
  writer.finish();
  EXPECT_FALSE(std::filesystem::exists(folder.path("a.bin.partial")));
  EXPECT_FALSE(std::filesystem::exists(folder.path("a.idx.partial")));
  return folder.read("a.bin");
}

// The layout of Megatron's writer: magic, version, type, two counts, sizes, pointers, boundaries.
TEST(TokenWriter, WritesMegatronsBytes) {
  const ScratchFolder folder;
  EXPECT_EQ(written(folder, 65536, {{258, 3}, {65535}}), std::string("\2\1\3\0\xff\xff", 6));
  EXPECT_EQ(folder.read("a.idx"), std::string("MMIDIDX\0\0"
                                              "\1\0\0\0\0\0\0\0"
                                              "\10"
                                              "\2\0\0\0\0\0\0\0"
                                              "\3\0\0\0\0\0\0\0"
                                              "\2\0\0\0\1\0\0\0"
                                              "\0\0\0\0\0\0\0\0\4\0\0\0\0\0\0\0"
                                              "\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0",
                                              34 + 8 + 16 + 24));
  EXPECT_EQ(written(folder, 65537, {{65536}}), std::string("\0\0\1\0", 4));
  EXPECT_EQ(folder.read("a.idx")[17], '\4');
}

TEST(TokenWriter, IsReadByTokenFiles) {
  const ScratchFolder folder;
  std::vector<Ids> documents{{}, {1, 2}};
  documents.emplace_back(700'000, 7);
  documents.push_back({99'999});
  for (const int64_t vocab_size : {100'000, 60'000}) {
    documents.back() = {static_cast<int32_t>(vocab_size - 1)};
    written(folder, vocab_size, documents);
    const auto read = token_documents(TokenFiles::open({folder.path("a")}, {.vocab_size = vocab_size}));
    ASSERT_EQ(read.size(), 4);
    for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(read[i], documents[static_cast<size_t>(i)]) << i;
  }
}

TEST(TokenWriter, HasNothingOfADocumentThatItRefused) {
  const ScratchFolder folder;
  TokenWriter writer(folder.path("a"), 100);
  EXPECT_THROW(writer.add(Ids{1, 2, 500}), Error);
  writer.add(Ids{3, 4});
  writer.finish();
  const auto read = token_documents(TokenFiles::open({folder.path("a")}, {.vocab_size = 100}));
  ASSERT_EQ(read.size(), 1);
  EXPECT_EQ(read[0], (Ids{3, 4}));
}

TEST(TokenWriter, RefusesOtherIdsAndPlaces) {
  const ScratchFolder folder;
  TokenWriter writer(folder.path("a"), 10);
  for (const int32_t id : {-1, 10})
    expect_error(ErrorKind::invalid_argument, {"[TokenWriter] " + folder.path("a") + ": id " + std::to_string(id)},
                 [&] { writer.add(Ids{id}); });
  expect_error(ErrorKind::invalid_file, {"[TokenWriter] " + folder.path("none/a.bin.partial")},
               [&] { TokenWriter(folder.path("none/a"), 10); });
}

// A dead writer's partial file is longer than the new one.
TEST(TokenWriter, IsAloneUntilItHasFinished) {
  const ScratchFolder folder;
  folder.write("a.bin.partial", std::string(100, 'x'));
  auto writer = std::make_unique<TokenWriter>(folder.path("a"), 100);
  writer->add(Ids{1, 2});
  expect_error(ErrorKind::invalid_file, {"[TokenWriter] " + folder.path() + ": another run saves here"},
               [&] { TokenWriter(folder.path("a"), 100); });
  TokenWriter(folder.path("b"), 100).finish();
  writer->add(Ids{3});
  writer->finish();
  TokenWriter second(folder.path("a"), 100);
  EXPECT_EQ(folder.read("a.bin"), std::string("\1\0\2\0\3\0", 6));
  writer.reset();
  second.add(Ids{4});
  second.finish();
  const std::string finished = "a: finish() was called before. Make another writer.";
  expect_error(ErrorKind::invalid_argument, {finished}, [&] { second.add(Ids{5}); });
  expect_error(ErrorKind::invalid_argument, {finished}, [&] { second.finish(); });
  EXPECT_EQ(folder.read("a.bin"), std::string("\4\0", 2));
}

}  // namespace
}  // namespace tessera::data::token_writer_test
