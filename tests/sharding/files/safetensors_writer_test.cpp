// The safetensors writer compared with the reader, and its checksum compared with Boost's.
#include "sharding/files/safetensors_writer.h"

#include <gtest/gtest.h>

#include <boost/crc.hpp>
#include <cstring>

#include "sharding/base/error.h"
#include "sharding/files/file.h"
#include "tests/data/scratch_folder.h"
#include "tests/sharding/expect_error.h"

namespace tessera::safetensors_writer_test {
namespace {

using testing::expect_error;

TEST(SafetensorsWriter, LargerItemsComeFirstThenNamesAndDataIsAligned) {
  const SafetensorsPlan plan(
      {{"b", float32, {2, 3}}, {"z", float64, {1}}, {"a", float32, {0}}, {"c", boolean, {3}}, {"d", bfloat16, {5}}},
      {{"format", "pt"}});
  std::vector<std::string> names;
  for (const TensorEntry& tensor : plan.tensors()) names.push_back(tensor.name);
  EXPECT_EQ(names, (std::vector<std::string>{"z", "a", "b", "d", "c"}));
  EXPECT_EQ(plan.header().size() % 256, 0u);
  EXPECT_EQ(plan.file_bytes(), static_cast<int64_t>(plan.header().size()) + 8 + 24 + 10 + 3);
  EXPECT_EQ(plan.offset(2), static_cast<int64_t>(plan.header().size()) + 8);
}

TEST(SafetensorsWriter, TheReaderFindsWhatWasWritten) {
  const data::ScratchFolder folder;
  const std::string path = folder.path("a \"quoted\".safetensors"), bytes = "0123456789abcdefghijklmnopq";
  const SafetensorsPlan plan({{"model.\"x\"", float32, {2, 3}}, {"flags", boolean, {3}}, {"none", int64, {0, 4}}},
                             {{"format", "pt"}});
  write_safetensors(path, plan, [&](const TensorEntry& tensor) {
    return std::as_bytes(std::span(bytes)).first(static_cast<size_t>(tensor.bytes()));
  });
  const SafetensorsFile file = SafetensorsFile::open(path);
  EXPECT_EQ(file.names(), (std::vector<std::string>{"none", "model.\"x\"", "flags"}));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(std::memcmp(file.bytes("model.\"x\"").data(), bytes.data(), 24), 0);
  EXPECT_EQ(std::memcmp(file.bytes("flags").data(), bytes.data(), 3), 0);
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(SafetensorsWriter, RefusesWhatNoFileCanHold) {
  const auto plan = [](std::vector<TensorEntry> tensors) { return [=] { SafetensorsPlan{tensors}; }; };
  expect_error(ErrorKind::invalid_argument, "[safetensors] two tensors are called \"a\". Give each its own name.",
               plan({{"a", float32, {1}}, {"b", float32, {1}}, {"a", int32, {2}}}));
  expect_error(ErrorKind::invalid_argument,
               "[safetensors] no tensor can be called \"__metadata__\", which the format reserves.",
               plan({{"__metadata__", float32, {1}}}));
  expect_error(ErrorKind::invalid_argument,
               "[safetensors] a: the shape (4611686018427387904, 2) has more than 2^63 - 1 bytes.",
               plan({{"a", float32, {int64_t{1} << 62, 2}}}));
  expect_error(ErrorKind::invalid_argument, "xx...\", expected at most 4096. Shorten it.",
               plan({{std::string(4097, 'x'), float32, {1}}}));
  expect_error(ErrorKind::invalid_argument, "[safetensors] a: 65 dimensions, expected at most 64. Reshape it.",
               plan({{"a", float32, Shape(65, 1)}}));
  const data::ScratchFolder folder;
  expect_error(ErrorKind::invalid_argument, "[safetensors] a: 3 bytes given for float32 (1), expected 4.", [&] {
    write_safetensors(folder.path("x"), SafetensorsPlan({{"a", float32, {1}}}),
                      [](const TensorEntry&) { return std::as_bytes(std::span("ab", 3)); });
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(Crc32c, EqualsBoostsAndContinues) {
  std::vector<std::byte> bytes(40009);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * i >> 3);
  for (const size_t size : {0, 1, 7, 8, 9, 63, 64, 1000, 5003, 12287, 12288, 12289, 40009}) {
    boost::crc_optimal<32, 0x1edc6f41, 0xffffffff, 0xffffffff, true, true> expected;
    expected.process_bytes(bytes.data(), size);
    EXPECT_EQ(crc32c({bytes.data(), size}), expected.checksum()) << size;
    EXPECT_EQ(crc32c({bytes.data() + size / 3, size - size / 3}, crc32c({bytes.data(), size / 3})),
              expected.checksum());
  }
}

TEST(Crc32c, PartsThatDoNotOverlapAddUp) {
  std::vector<std::byte> whole(4097), even(4097), odd(4097);
  for (size_t i = 0; i < whole.size(); ++i) {
    whole[i] = static_cast<std::byte>(i * 31 + 7);
    (i % 2 ? odd : even)[i] = whole[i];
  }
  EXPECT_EQ(crc32c(whole), crc32c(even) ^ crc32c(odd) ^ crc32c_of_zeros(whole.size()));
  EXPECT_EQ(crc32c_of_zeros(9000), crc32c(std::vector<std::byte>(9000)));
}

}  // namespace
}  // namespace tessera::safetensors_writer_test
