// Token files: each format assembled byte by byte, files written by numpy, documents, and damaged files.
#include "data/sources/token_files.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "data/batches/token_batch.h"
#include "data/loader.h"
#include "data/sources/windows.h"
#include "tests/data/expect_error.h"
#include "tests/data/scratch_folder.h"

namespace tessera::data::token_files_test {
namespace {

using Ids = std::vector<int32_t>;

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <class T>
std::string bytes_of(T value) {
  return bytes_of(std::vector<T>{value});
}

std::string llm_c(int32_t magic, int32_t version, int32_t count, const std::string& tokens) {
  std::vector<int32_t> header(256);
  header[0] = magic, header[1] = version, header[2] = count;
  return bytes_of(header) + tokens;
}

std::string npy(const std::string& dict, const std::string& elements, char version = 1) {
  std::string header = dict + std::string(20, ' ') + "\n";
  const std::string length =
      version == 1 ? bytes_of(static_cast<uint16_t>(header.size())) : bytes_of(static_cast<uint32_t>(header.size()));
  return std::string("\x93NUMPY") + version + '\0' + length + header + elements;
}

std::string dict(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

struct Index {
  std::string magic = std::string("MMIDIDX\0\0", 9);
  uint64_t version = 1;
  uint8_t type = 8;
  std::vector<int32_t> sizes = {2, 1, 3};
  std::vector<int64_t> pointers = {0, 4, 6};
  std::vector<int64_t> documents = {0, 2, 3};
  uint64_t more_sequences = 0;

  std::string bytes() const {
    return magic + bytes_of(version) + bytes_of(type) + bytes_of<uint64_t>(sizes.size() + more_sequences) +
           bytes_of<uint64_t>(documents.size()) + bytes_of(sizes) + bytes_of(pointers) + bytes_of(documents);
  }
};
const std::string six_tokens = bytes_of<uint16_t>({10, 11, 12, 13, 14, 15});

Ids all(const TokenFiles& files) {
  Ids tokens(static_cast<size_t>(files.size()));
  files.read(0, tokens);
  return tokens;
}

template <class Source>
std::vector<Ids> documents_of(const Source& source) {
  std::vector<Ids> documents;
  for (int64_t i = 0; i < source.size(); ++i) documents.push_back(source[i]);
  return documents;
}

TEST(TokenFiles, ReportTheirFormat) {
  const ScratchFolder folder;
  const struct {
    const char* name;
    std::string bytes;
    TokenFormat format;
    Ids tokens;
  } cases[] = {
      {"plain.bin", bytes_of<uint16_t>({1, 65535, 3}), TokenFormat::headerless, {1, 65535, 3}},
      {"gpt2.bin", llm_c(20240520, 1, 2, bytes_of<uint16_t>({7, 65000})), TokenFormat::llm_c, {7, 65000}},
      {"llama.bin", llm_c(20240801, 7, 2, bytes_of<uint32_t>({7, 128000})), TokenFormat::llm_c, {7, 128000}},
      {"a.npy", npy(dict("<u2", "(2,)"), bytes_of<uint16_t>({5, 6})), TokenFormat::npy, {5, 6}},
      {"b.npy", npy(dict("<i8", "(1,)"), bytes_of<int64_t>(2147483647), 2), TokenFormat::npy, {2147483647}},
      {"c.npy", npy(dict("|u1", "(3, )"), "\x01\xff\x02", 3), TokenFormat::npy, {1, 255, 2}},
      {"d.npy",
       npy("{\"shape\":(1,),\"fortran_order\":True,\"descr\":\"<i4\"}", bytes_of<int32_t>(9)),
       TokenFormat::npy,
       {9}},
      {"a.uint32.bin", bytes_of<uint32_t>({70000, 5}), TokenFormat::headerless_uint32, {70000, 5}},
      {"b.u32.bin", bytes_of<uint32_t>({2147483647}), TokenFormat::headerless_uint32, {2147483647}},
      {"C.UINT32.bin", bytes_of<uint32_t>({70000, 5}), TokenFormat::headerless_uint32, {70000, 5}},
      {"c.u32.bin", llm_c(20240801, 7, 1, bytes_of<uint32_t>(7)), TokenFormat::llm_c, {7}},
  };
  for (const auto& c : cases) {
    const auto files = TokenFiles::open({folder.write(c.name, c.bytes)});
    EXPECT_EQ(files.format(), c.format) << c.name;
    EXPECT_EQ(all(files), c.tokens) << c.name;
    EXPECT_FALSE(files.knows_documents());
  }
}

TEST(TokenFiles, OfOtherKindsAreRefused) {
  const ScratchFolder folder;
  std::vector<uint32_t> llama, small;
  std::vector<uint64_t> wide;
  std::vector<uint16_t> narrow, dna, padded{5};
  const std::vector<uint16_t> ends(100, 50256);  // its bytes are letters, but the file is not text
  for (uint32_t i = 0; i < 1000; ++i) {
    const uint32_t random = (i + 1) * 2654435761u >> 8;
    llama.push_back(70'000 + i), small.push_back(random % 50257), wide.push_back(random % 50257);
    narrow.push_back(static_cast<uint16_t>(random % 50257)), dna.push_back(static_cast<uint16_t>(random % 4));
    padded.push_back(0);
  }
  const std::string filling(200, '\1');
  const struct {
    std::string bytes, kind, advice;
  } cases[] = {
      {"PK\x03\x04" + filling, "a zip archive", "numpy.save"},
      {"\x80\x02\x8a\x0a" + filling, "a PyTorch checkpoint", "numpy.save"},
      {"\x80\x04\x95" + filling + ".", "a pickle", "numpy.save"},
      {"\x1f\x8b\x08" + filling, "a gzip file", "Decompress it"},
      {"\x28\xb5\x2f\xfd" + filling, "a zstd file", "Decompress it"},
      {"PAR1" + filling, "a Parquet file", "numpy.save"},
      {"ARROW1" + filling, "an Arrow file", "numpy.save"},
      {"\xff\xff\xff\xff" + filling, "an Arrow stream", "numpy.save"},
      {"GGUF" + filling, "a GGUF file", "It holds no tokens"},
      {bytes_of<uint64_t>(8) + "{\"a\": 1}" + filling, "a safetensors file", "It holds no tokens"},
      {"Once upon a time, there was a file of text, which had\r\n64 bytes or more.\xc3\xa9\n", "text", "Tokenize"},
      {bytes_of(llama), "a file of uint32", ".uint32.bin, or name TokenFormat::headerless_uint32"},
      {bytes_of(small), "a file of uint32", ".uint32.bin, or name TokenFormat::headerless_uint32"},
      {bytes_of(wide), "a file of numbers of 8 bytes", "numpy.save"},
  };
  for (const auto& [bytes, kind, advice] : cases) {
    const std::string path = folder.write("a.bin", bytes);
    expect_error(ErrorKind::invalid_file,
                 {"[open] " + path + ": this is " + kind, "expected uint16 tokens", advice, "TokenFormat::headerless."},
                 [&] { TokenFiles::open({path}); });
    if (bytes.size() % 2 == 0) {
      EXPECT_EQ(TokenFiles::open({path}, {.format = TokenFormat::headerless}).size() * 2, std::ssize(bytes));
    }
  }
  const std::string pointer = folder.write("a.bin", "version https://git-lfs.github.com/spec/v1\n" + filling);
  expect_error(ErrorKind::invalid_file, {pointer + ": this is a pointer of Git LFS", "git lfs pull"},
               [&] { TokenFiles::open({pointer}); });
  const std::string path = folder.write("a.uint32.bin", bytes_of(wide));
  expect_error(ErrorKind::invalid_file, {"this is a file of numbers of 8 bytes, expected uint32 tokens"},
               [&] { TokenFiles::open({path}); });
  expect_error(ErrorKind::invalid_file, {"6 bytes are not a whole number of uint32 tokens"},
               [&] { TokenFiles::open({folder.write("b.u32.bin", "abcdef")}); });
  for (const char* name : {"a.bin", "c.uint32.bin"})
    EXPECT_EQ(
        all(TokenFiles::open({folder.write(name, bytes_of(llama))}, {.format = TokenFormat::headerless_uint32}))[3],
        70'003);
  for (const std::vector<uint32_t>& tokens : {llama, small, std::vector<uint32_t>(1000, 3)})
    EXPECT_EQ(TokenFiles::open({folder.write("c.uint32.bin", bytes_of(tokens))}).size(), std::ssize(tokens));
  for (const auto& tokens : {narrow, dna, padded, ends, std::vector<uint16_t>(1000)})
    EXPECT_EQ(TokenFiles::open({folder.write("a.bin", bytes_of(tokens))}).size(), std::ssize(tokens));
}

TEST(TokenFiles, AMegatronPairHasManyNames) {
  const ScratchFolder folder;
  const auto tokens = folder.write("text_document.bin", six_tokens),
             index = folder.write("text_document.idx", Index().bytes());
  const std::vector<std::vector<std::string>> names = {
      {tokens}, {index}, {index, tokens}, {folder.path("text_document")}, {folder.path()}};
  for (const auto& paths : names) {
    const auto files = TokenFiles::open(paths);
    EXPECT_EQ(files.format(), TokenFormat::megatron);
    EXPECT_EQ(all(files), (Ids{10, 11, 12, 13, 14, 15}));
    EXPECT_EQ(documents_of(token_documents(files)), (std::vector<Ids>{{10, 11, 12}, {13, 14, 15}}));
    EXPECT_TRUE(token_documents(files).describe().ends_with(" as Megatron tokens | documents(2)"));
  }
  EXPECT_EQ(all(TokenFiles::open({tokens, tokens})).size(), 12u);
  EXPECT_EQ(token_documents(TokenFiles::open({tokens, tokens}))[3], (Ids{13, 14, 15}));
  EXPECT_EQ(TokenFiles::open({tokens}, {.format = TokenFormat::headerless}).knows_documents(), false);
  folder.write("text_document.idx", Index().bytes() + std::string(3, '\1'));  // with a mode for each sequence
  EXPECT_EQ(TokenFiles::open({tokens}).size(), 6);
}

TEST(TokenFiles, AreReadAcrossFilesAndNameTheirPlaces) {
  const ScratchFolder folder;
  std::vector<uint16_t> long_file(20000);
  for (size_t i = 0; i < long_file.size(); ++i) long_file[i] = static_cast<uint16_t>(i * 7);
  folder.write("a.bin", llm_c(20240520, 1, 3, bytes_of<uint16_t>({1, 2, 3})));
  folder.write("b.bin", llm_c(20240520, 1, 20000, bytes_of(long_file)));
  folder.write("c.bin", llm_c(20240801, 7, 2, bytes_of<uint32_t>({100000, 5})));
  for (const int64_t map_from : {1, 1 << 20}) {
    const auto files = TokenFiles::open({folder.path()}, {.map_from = map_from});
    ASSERT_EQ(files.size(), 20005);
    const Ids tokens = all(files);
    EXPECT_EQ(tokens[2], 3);
    for (size_t i = 0; i < long_file.size(); ++i) ASSERT_EQ(tokens[3 + i], long_file[i]);
    EXPECT_EQ(tokens[20003], 100000);
    EXPECT_EQ(files.where(2), folder.path("a.bin") + ", token 2");
    EXPECT_EQ(files.where(20004), folder.path("c.bin") + ", token 1");
    EXPECT_EQ(windows(files, 3, 1)[2], (Ids{3, 0, 7}));
    EXPECT_TRUE(files.describe().ends_with(" as llm.c tokens"));
    expect_error(ErrorKind::invalid_argument, {"[read] 2 tokens from 20004"}, [&] {
      Ids two(2);
      files.read(20004, two);
    });
    expect_error(ErrorKind::invalid_argument, {"[read]"}, [&] { files.where(20005); });
  }
}

TEST(TokenFiles, FillBatchesAndRows) {
  const ScratchFolder folder;
  const auto path = folder.write("a.bin", bytes_of<uint16_t>({4, 5, 0, 6, 0, 7, 8}));
  const auto files = TokenFiles::open({path});
  const TokenBatch batch = *Loader(windows(files, 3), token_batch, {.batch_size = 2}).next();
  EXPECT_EQ(batch.targets.value.to_host<int32_t>(), (Ids{5, 0, 6, 0}));
  const auto packed = token_documents(files, {.end_of_text = 0}).pack({.length = 5, .num_packing_bins = 1});
  EXPECT_EQ(packed.begin()->tokens, (Ids{4, 5, 0, 6, 0}));
  EXPECT_EQ(packed.begin()->segment_ids, (Ids{1, 1, 1, 2, 2}));
  expect_error(ErrorKind::invalid_argument, {"[token_batch]", "token -2 is below 0"}, [] {
    token_batch(std::vector<Ids>{{1, -2}});
  });
}

TEST(TokenDocuments, EndOrBeginWithASeparator) {
  const ScratchFolder folder;
  const auto a = folder.write("a.bin", bytes_of<uint16_t>({9, 4, 5, 9, 9, 6}));
  const auto b = folder.write("b.bin", bytes_of<uint16_t>({7, 9, 8}));
  const auto files = TokenFiles::open({a, b});
  EXPECT_EQ(documents_of(token_documents(files, {.end_of_text = 9})),
            (std::vector<Ids>{{9}, {4, 5, 9}, {9}, {6, 7, 9}, {8}}));
  EXPECT_EQ(documents_of(token_documents(files, {.begin_of_text = 9})),
            (std::vector<Ids>{{9, 4, 5}, {9}, {9, 6, 7}, {9, 8}}));
  EXPECT_EQ(documents_of(token_documents(files, {.begin_of_text = 4})).size(), 2u);
  expect_error(ErrorKind::invalid_file, {"[token_documents]", "the separator 3 does not occur in 9 tokens"},
               [&] { token_documents(files, {.end_of_text = 3}); });
  expect_error(ErrorKind::invalid_argument, {"[token_documents]", "give end_of_text or begin_of_text"},
               [&] { token_documents(files); });
  expect_error(ErrorKind::invalid_argument,
               {"[token_documents] end_of_text 9 and begin_of_text 4 given, expected one of them"},
               [&] { token_documents(files, {.end_of_text = 9, .begin_of_text = 4}); });
  expect_error(ErrorKind::invalid_argument, {"[read] document 5, expected one of [0, 5)"},
               [&] { TokenDocuments(files, {.end_of_text = 9})[5]; });
  folder.write("m.bin", six_tokens);
  folder.write("m.idx", Index().bytes());
  expect_error(ErrorKind::invalid_argument, {"mark the ends of documents themselves"},
               [&] { token_documents(TokenFiles::open({folder.path("m")}), {.end_of_text = 9}); });
}

TEST(TokenDocuments, MayBeEmptyByTheirIndex) {
  const ScratchFolder folder;
  Index index;
  index.documents = {0, 0, 2, 2, 3};
  folder.write("m.bin", six_tokens);
  folder.write("m.idx", index.bytes());
  EXPECT_EQ(documents_of(token_documents(TokenFiles::open({folder.path("m")}))),
            (std::vector<Ids>{{}, {10, 11, 12}, {}, {13, 14, 15}}));
  index.documents = {0};
  index.sizes = {}, index.pointers = {};
  folder.write("m.idx", index.bytes());
  expect_error(ErrorKind::invalid_file, {"declares 0 tokens"}, [&] { TokenFiles::open({folder.path("m")}); });
}

TEST(TokenFiles, IdsBeyondTheVocabularyAreErrorsThatNameThem) {
  const ScratchFolder folder;
  std::vector<uint16_t> tokens(9000, 1);
  tokens[8500] = 300;
  const auto first = folder.write("a.bin", bytes_of<uint16_t>({299, 1})),
             path = folder.write("b.bin", bytes_of(tokens));
  const auto files = TokenFiles::open({first, path}, {.vocab_size = 300});
  Ids some(5000);
  files.read(0, some);
  EXPECT_EQ(some[0], 299);
  expect_error(ErrorKind::invalid_file, {"[read] " + path + ", token 8500: id 300, expected one of 0 to 299"},
               [&] { files.read(4000, some); });
  const struct {
    const char* type;
    std::string bytes;
    const char* id;
  } odd[] = {{"|i1", "\x80", "-128"},
             {"<i2", bytes_of<int16_t>(-2), "-2"},
             {"<i4", bytes_of<int32_t>(-3), "-3"},
             {"<u4", bytes_of<uint32_t>(4000000000), "4000000000"},
             {"<i8", bytes_of<int64_t>(int64_t{1} << 31), "2147483648"},
             {"<u8", bytes_of<uint64_t>(~uint64_t{0}), "18446744073709551615"}};
  for (const auto& c : odd) {
    const auto file = TokenFiles::open({folder.write("odd.npy", npy(dict(c.type, "(1,)"), c.bytes))});
    expect_error(ErrorKind::invalid_file,
                 {"odd.npy, token 0: id " + std::string(c.id) + ", expected one of 0 to 2147483647"},
                 [&] { all(file); });
  }
  for (const int64_t size : {int64_t{-1}, (int64_t{1} << 31) + 1})
    expect_error(ErrorKind::invalid_argument, {"[open] a vocabulary of"},
                 [&] { TokenFiles::open({path}, {.vocab_size = size}); });
}

TEST(TokenFiles, DamagedHeadersAreErrorsThatNameTheFile) {
  const ScratchFolder folder;
  const std::string two = bytes_of<uint16_t>({1, 2});
  const struct {
    const char* name;
    std::string bytes;
    const char* words;
    TokenFormat format = TokenFormat::automatic;
  } cases[] = {
      {"odd.bin", "abc", "3 bytes are not a whole number of uint16 tokens"},
      {"a.bin", llm_c(20240520, 1, 3, two), "its header declares 3 tokens of 2 bytes, and 4 bytes follow"},
      {"a.bin", llm_c(20240520, 1, 1, two), "its header declares 1 tokens"},
      {"a.bin", llm_c(20240520, 1, -2, two), "its header declares -2 tokens"},
      {"a.bin", llm_c(20240520, 7, 2, two), "version 7 of llm.c's 20240520, expected 1"},
      {"a.bin", llm_c(20240801, 1, 1, two), "version 1 of llm.c's 20240801, expected 7"},
      {"a.bin", llm_c(20240520, 1, 2, two).substr(0, 500), "500 bytes, expected llm.c's header of 1024"},
      {"a.bin", llm_c(20240520, 1, 0, ""), "no token in it"},
      {"a.bin", two, "does not begin with llm.c's number", TokenFormat::llm_c},
      {"a.bin", Index().bytes(), "an index of Megatron's; name the .bin next to it"},
      {"a.npy", two, "4 bytes, fewer than the header of a .npy file"},
      {"a.bin", two, "4 bytes, fewer than the header of a .npy file", TokenFormat::npy},
      {"a.npy", std::string(20, 'x'), "does not begin with \\x93NUMPY", TokenFormat::npy},
      {"a.npy", npy(dict("<u2", "(2,)"), two, 4), "version 4.0 of .npy"},
      {"a.npy", npy(dict(">u2", "(2,)"), two), "elements \">u2\", expected little-endian whole numbers"},
      {"a.npy", npy(dict("<f4", "(1,)"), two), "elements \"<f4\""},
      {"a.npy", npy(dict("<u3", "(1,)"), two), "elements \"<u3\""},
      {"a.npy", npy(dict("<u2", "(1, 2)"), two), "shape (1, 2), expected one dim"},
      {"a.npy", npy(dict("<u2", "()"), two), "shape (), expected one dim"},
      {"a.npy", npy(dict("<u2", "(2)"), two), "shape (2), expected one dim"},
      {"a.npy", npy(dict("<u2", "(-2,)"), two), "shape (-2,)"},
      {"a.npy", npy(dict("<u2", "(3,)"), two), "its header declares 3 elements of 2 bytes, and 4 bytes follow"},
      {"a.npy", npy(dict("<u2", "(9223372036854775807,)"), two), "its header declares 9223372036854775807 elements"},
      {"a.npy", npy(dict("<u2", "(2,)") + "}", two), "not a dict of descr, fortran_order and shape"},
      {"a.npy", npy("{'descr': '<u2', 'shape': (2,)}", two), "not a dict of descr"},
      {"a.npy", npy("{'descr': '<u2', 'descr': '<u2', 'shape': (2,)}", two), "not a dict of descr"},
      {"a.npy", npy("{'descr': '<u2", two), "not a dict of descr"},
      {"a.npy", npy(dict("<u2", "(2,)"), two).substr(0, 40), "a header of 78 bytes in a file of 40"},
  };
  for (const auto& c : cases) {
    const auto path = folder.write(c.name, c.bytes);
    const std::string said =
        testing::error_of(ErrorKind::invalid_file, [&] { TokenFiles::open({path}, {.format = c.format}); });
    EXPECT_TRUE(said.starts_with("[open] " + path + ": ")) << said;
    EXPECT_NE(said.find(c.words), std::string::npos) << said << "\n lacks " << c.words;
  }
}

TEST(TokenFiles, DamagedIndicesAreErrorsThatNameTheFile) {
  const auto changed = [](auto change) {
    Index index;
    change(index);
    return index.bytes();
  };
  const struct {
    std::string bytes;
    const char* words;
  } cases[] = {
      {"", "no bytes"},
      {"MMIDIDX", "does not begin with MMIDIDX"},
      {changed([](Index& i) { i.magic = "TNTIDX\0\0\0"; }), "does not begin with MMIDIDX"},
      {Index().bytes().substr(0, 20), "20 bytes, expected a header of 34"},
      {changed([](Index& i) { i.version = 2; }), "version 2 of Megatron's index"},
      {changed([](Index& i) { i.type = 6; }), "element type 6"},
      {changed([](Index& i) { i.more_sequences = 1; }), "its header declares 4 sequences and 3 boundaries"},
      {changed([](Index& i) { i.more_sequences = ~uint64_t{0} - 5; }), "it is truncated or damaged"},
      {Index().bytes().substr(0, 80), "and 46 bytes follow"},
      {Index().bytes() + "xx", "it is truncated or damaged"},
      {changed([](Index& i) {
         i.sizes = {2, -1, 3};
       }),
       "sequence 1 has -1 tokens"},
      {changed([](Index& i) {
         i.pointers = {0, 2, 6};
       }),
       "sequence 1 begins at byte 2, and those before it end at byte 4"},
      {changed([](Index& i) {
         i.sizes = {2, 2147483647, 3}, i.pointers = {0, 4, 4294967298};
       }),
       "sequence 1 ends after the 12 bytes of tokens"},
      {changed([](Index& i) {
         i.documents = {0, 2, 2};
       }),
       "do not go from 0 up to its 3 sequences"},
      {changed([](Index& i) {
         i.documents = {1, 2, 3};
       }),
       "do not go from 0"},
      {changed([](Index& i) {
         i.documents = {0, 4, 3};
       }),
       "do not go from 0"},
      {changed([](Index& i) {
         i.documents = {0, -1, 3};
       }),
       "do not go from 0"},
      {changed([](Index& i) { i.documents = {}; }), "do not go from 0"},
  };
  const ScratchFolder folder;
  const auto tokens = folder.write("m.bin", six_tokens);
  for (const auto& c : cases) {
    const auto index = folder.write("m.idx", c.bytes);
    const std::string said = testing::error_of(ErrorKind::invalid_file, [&] { TokenFiles::open({tokens}); });
    EXPECT_TRUE(said.starts_with("[open] " + index + ": ")) << said;
    EXPECT_NE(said.find(c.words), std::string::npos) << said << "\n lacks " << c.words;
  }
  folder.write("m.idx", Index().bytes());
  folder.write("m.bin", six_tokens + "x");
  expect_error(ErrorKind::invalid_file, {"[open] " + tokens, "13 bytes, and", "declares 6 tokens of 2 bytes"},
               [&] { TokenFiles::open({tokens}); });
  std::filesystem::remove(tokens);
  expect_error(ErrorKind::invalid_file, {tokens, "No such file"}, [&] { TokenFiles::open({folder.path("m.idx")}); });
}

TEST(TokenFiles, OfTwoFormatsAreOneSetOfNeither) {
  const ScratchFolder folder;
  folder.write("a.bin", bytes_of<uint16_t>({1, 2}));
  const auto second = folder.write("b.npy", npy(dict("<u2", "(1,)"), bytes_of<uint16_t>(5)));
  expect_error(ErrorKind::invalid_file, {"[open] " + second, "a npy file, and those before it are headerless"},
               [&] { TokenFiles::open({folder.path()}); });
}

TEST(TokenFiles, ThrowAfterAMove) {
  const ScratchFolder folder;
  auto files = TokenFiles::open({folder.write("a.bin", "ab")});
  const auto heir = std::move(files);
  expect_error(ErrorKind::invalid_argument, {"[TokenFiles] this source was moved into another"}, [&] { files.size(); });
  auto documents = TokenDocuments(heir, {.end_of_text = 'a' + 256 * 'b'});
  const auto heirs = std::move(documents);
  expect_error(ErrorKind::invalid_argument, {"[TokenDocuments] this source was moved"}, [&] { documents.size(); });
}

TEST(TokenFiles, OfAllVersionsOfNumpyAreRead) {
  const std::string folder = TESSERA_REFERENCE_DIR "/token_files/";
  for (const char* name : {"u2_version_1.npy", "i4_version_2.npy", "u4_version_3.npy", "i8_version_1.npy",
                           "u8_version_3.npy", "u1_version_2.npy", "i1_version_1.npy", "headerless.bin",
                           "llm_c_gpt2.bin", "llm_c_llama3.bin", "megatron.bin"}) {
    const Ids tokens = all(TokenFiles::open({folder + name}));
    ASSERT_EQ(tokens.size(), 300u) << name;
    const int32_t modulus = name[1] == '1' ? 101 : 50257;
    for (int32_t i = 0; i < 300; ++i) ASSERT_EQ(tokens[static_cast<size_t>(i)], i * 7919 % 50257 % modulus) << name;
  }
  const auto documents = token_documents(TokenFiles::open({folder + "megatron"}));
  ASSERT_EQ(documents.size(), 4);
  EXPECT_EQ(documents[0].size(), 100u);
  EXPECT_EQ(documents[1].front(), 100 * 7919 % 50257);
  EXPECT_EQ(documents[2], Ids{});
  EXPECT_EQ(documents[3].size(), 143u);
}

}  // namespace
}  // namespace tessera::data::token_files_test
