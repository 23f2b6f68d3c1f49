// stack: batches of tensors from numbers, vectors, arrays and structs; padding with a mask; packed records.
#include "data/batches/stack.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "data/batches/packed_tokens.h"
#include "data/batches/token_batch.h"
#include "data/datasets/combine.h"
#include "data/loader.h"
#include "data/sources/safetensors_source.h"
#include "sharding/operations.h"
#include "tests/data/expect_error.h"
#include "tests/data/scratch_folder.h"

namespace tessera::data {

struct Digit {
  std::vector<float> pixels;
  int32_t digit = 0;
  std::array<uint16_t, 2> place = {};
};
struct DigitBatch {
  NamedArray digit{"batch"};
  NamedArray pixels{"batch", "pixel"};
  Array place;
};
struct Parts {
  std::vector<Array> all;
};
struct Pair {
  NamedArray x{"batch", "feature"};
  Array y;
};

namespace {

template <class T>
std::vector<T> values(const Array& x) {
  return x.to_host<T>();
}

TEST(Stack, NumbersVectorsAndArrays) {
  const Array numbers = stack(std::vector<float>{1, 2, 3});
  EXPECT_EQ(numbers.type_string(), "float32[3]");
  EXPECT_EQ(values<float>(numbers), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(stack(std::vector<bool>{true, false}).type_string(), "bool[2]");
  EXPECT_EQ(stack(std::vector<uint16_t>{65535}).type_string(), "int32[1]");
  EXPECT_EQ(values<int64_t>(stack(std::vector<uint32_t>{4000000000})), (std::vector<int64_t>{4000000000}));
  const Array rows = stack(std::vector<std::vector<uint8_t>>{{1, 2}, {3, 4}, {5, 6}});
  EXPECT_EQ(rows.type_string(), "uint8[3,2]");
  EXPECT_EQ(values<uint8_t>(rows), (std::vector<uint8_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(stack(std::vector<Array>{zeros({2, 3}), ones({2, 3})}).shape(), (Shape{2, 2, 3}));
  const auto [left, right] = stack(std::vector<std::tuple<int32_t, std::vector<double>>>{{1, {2, 3}}, {4, {5, 6}}});
  EXPECT_EQ(values<int32_t>(left), (std::vector<int32_t>{1, 4}));
  EXPECT_EQ(right.type_string(), "float64[2,2]");
}

TEST(Stack, AStructOfArraysIsAStructOfBatches) {
  const auto pairs = range(4).map([](int64_t i) {
    Pair pair;
    pair.x = array<float>({static_cast<float>(i), 1});
    pair.y = full({}, static_cast<double>(i));
    return pair;
  });
  const Pair batch = pairs.batch(3, stack)[0];
  EXPECT_EQ(batch.x.value.type_string(), "float32[3,2]");
  EXPECT_EQ(batch.x.axes, (Axes{"batch", "feature"}));
  EXPECT_EQ(values<float>(batch.y), (std::vector<float>{0, 1, 2}));
}

TEST(StackAs, TakesFieldsByName) {
  const auto digits = range(5).map([](int64_t i) {
    return Digit{{static_cast<float>(i), 0.5}, static_cast<int32_t>(10 * i), {7, 8}};
  });
  Loader loader(digits, stack_as<DigitBatch>, {.batch_size = 2});
  const DigitBatch batch = *loader.next();
  EXPECT_EQ(values<int32_t>(batch.digit), (std::vector<int32_t>{0, 10}));
  EXPECT_EQ(values<float>(batch.pixels), (std::vector<float>{0, 0.5, 1, 0.5}));
  EXPECT_EQ(batch.pixels.axes, (Axes{"batch", "pixel"}));
  EXPECT_EQ(batch.place.type_string(), "int32[2,2]");
  expect_error(ErrorKind::shape_mismatch, {"[stack] pixels: rows of 1 and 2 values"}, [] {
    stack_as<DigitBatch>(std::vector<Digit>{{{1}, 1}, {{1, 2}, 2}});
  });
}

TEST(Stack, WhatIsAbsentInAllRecordsIsAbsent) {
  EXPECT_TRUE(stack(std::vector<Array>{Array(), Array()}).is_absent());
  expect_error(ErrorKind::missing_array, {"[stack]", "absent in 1 of 2 records"},
               [] { stack(std::vector<Array>{zeros({2}), Array()}); });
}

TEST(Stack, RowsThatDoNotFitAreErrors) {
  constexpr auto kind = ErrorKind::shape_mismatch;
  expect_error(kind, {"[stack]", "rows of 1 and 2 values"}, [] {
    stack(std::vector<std::vector<float>>{{1}, {1, 2}});
  });
  expect_error(kind, {"float32[2] and float32[3]"}, [] { stack(std::vector<Array>{zeros({2}), zeros({3})}); });
  expect_error(kind, {"no records"}, [] { stack(std::vector<float>{}); });
  const Array x = zeros({2});
  expect_error(kind, {"arrays of a record: rows of 2 and 1 values"}, [&] {
    stack(std::vector<Parts>{{{x, x}}, {{x}}});
  });
}

TEST(PadLastBatch, FillsUpAndMarksTheLastBatch) {
  const auto batches = range(10).batch(4, pad_last_batch(stack));
  ASSERT_EQ(batches.size(), 3);
  EXPECT_EQ(values<int64_t>(batches[2].batch), (std::vector<int64_t>{8, 9, 9, 9}));
  EXPECT_EQ(values<bool>(batches[2].mask), (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(values<bool>(batches[1].mask), (std::vector<bool>(4, true)));
  EXPECT_EQ(range(2).batch(4, pad_last_batch(as_vector))[0].batch, (std::vector<int64_t>{0, 1, 1, 1}));
}

// For any number of processes and any kind of chain, an epoch's unmasked rows are its records, each exactly once.
TEST(PadLastBatch, AnEpochIsItsRecordsOnAnyNumberOfProcesses) {
  const auto even = [](int64_t x) { return x % 2 == 0; };
  const auto check = [](const auto& source, const std::vector<int64_t>& expected) {
    for (const int64_t count : {1, 2, 3, 6}) {
      std::vector<std::vector<int64_t>> by_batch;
      for (int64_t index = 0; index < count; ++index) {
        Loader loader(source, pad_last_batch(stack), {.batch_size = 6, .shard = {index, count}});
        for (int64_t epoch = 0; epoch < 2; ++epoch) {
          size_t number = 0;
          for (const auto& batch : loader) {
            if (by_batch.size() <= number) by_batch.resize(number + 1);
            ASSERT_EQ(batch.batch.shape(), (Shape{6 / count}));
            const auto rows = values<int64_t>(batch.batch);
            const auto mask = values<bool>(batch.mask);
            for (size_t i = 0; i < rows.size(); ++i)
              if (mask[i] && epoch == 0) by_batch[number].push_back(rows[i]);
            ++number;
          }
          ASSERT_EQ(number, (expected.size() + 5) / 6) << "every process makes the same number of steps";
        }
      }
      std::vector<int64_t> seen;
      for (const auto& batch : by_batch) seen.insert(seen.end(), batch.begin(), batch.end());
      EXPECT_EQ(seen, expected) << count;
    }
  };
  check(range(13), {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  check(range(4), {0, 1, 2, 3});
  check(range(15).filter(even), {0, 2, 4, 6, 8, 10, 12, 14});
  check(range(11).filter(even), {0, 2, 4, 6, 8, 10});
}

// The consumer's function throws once, at the end of an epoch.
template <class L>
void expect_the_end_after_an_error(L loader, int64_t batches) {
  bool is_first = true;
  auto mine = std::move(loader).map_on_consumer([&](auto batch, int64_t) {
    if (!batch && std::exchange(is_first, false)) throw std::runtime_error("the peer is away");
    return batch;
  });
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int64_t i = 0; i < batches; ++i) EXPECT_TRUE(mine.next().has_value()) << "epoch " << epoch;
    if (epoch == 0) {
      EXPECT_THROW(mine.next(), std::runtime_error);
    }
    EXPECT_FALSE(mine.next().has_value());
  }
}

TEST(PadLastBatch, AnEndThatFailsWhereItIsConsumedComesAgain) {
  constexpr auto every = [](int64_t) { return true; };
  for (const int prefetch : {0, 3}) {
    const LoaderOptions options{.batch_size = 4, .prefetch = prefetch};
    expect_the_end_after_an_error(Loader(range(10), as_vector, options), 2);
    expect_the_end_after_an_error(Loader(range(10).filter(every), as_vector, options), 2);
    expect_the_end_after_an_error(Loader(range(10), pad_last_batch(as_vector), options), 3);
    expect_the_end_after_an_error(Loader(range(10).filter(every), pad_last_batch(as_vector), options), 3);
  }
}

TEST(Pack, MakesBatchesOfRows) {
  const auto documents =
      range(20).map([](int64_t i) { return std::vector<uint16_t>(static_cast<size_t>(1 + i % 3), 9); });
  Loader loader(documents.pack({.length = 4}), stack_as<PackedBatch>, {.batch_size = 2});
  const PackedBatch batch = *loader.next();
  EXPECT_EQ(batch.tokens.value.type_string(), "int32[2,4]");
  EXPECT_EQ(batch.segment_ids.value.shape(), (Shape{2, 4}));
  EXPECT_EQ(batch.positions.axes, (Axes{"batch", "seq"}));
}

std::string safetensors_bytes(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + header + data;
}

TEST(SafetensorsRows, AreRecords) {
  const ScratchFolder folder;
  const std::vector<float> x = {0, 1, 2, 3, 4, 5};
  const std::vector<int32_t> y = {7, 8, 9};
  std::string data(reinterpret_cast<const char*>(x.data()), 24);
  data += std::string(reinterpret_cast<const char*>(y.data()), 12);
  const std::string header = R"({"x":{"dtype":"F32","shape":[3,2],"data_offsets":[0,24]},)"
                             R"("y":{"dtype":"I32","shape":[3],"data_offsets":[24,36]}})";
  const auto path = folder.write("a.safetensors", safetensors_bytes(header, data));
  const auto pairs = safetensors_rows<Pair>(path);
  ASSERT_EQ(pairs.size(), 3);
  EXPECT_EQ(values<float>(pairs[2].x), (std::vector<float>{4, 5}));
  EXPECT_EQ(pairs[1].y.item<int>(), 8);
  EXPECT_EQ(pairs.batch(3, stack)[0].x.value.type_string(), "float32[3,2]");
  EXPECT_EQ(concat(pairs, pairs)[4].y.item<int>(), 8);
  EXPECT_TRUE(pairs.describe().starts_with("1 file, "));
  EXPECT_TRUE(pairs.describe().ends_with(" | safetensors(3 rows of x float32(3, 2) y int32(3))"));
  const auto other = folder.write(
      "b.safetensors",
      safetensors_bytes(
          R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"y":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
          "abc"));
  expect_error(ErrorKind::invalid_file, {other, "\"y\" has 1 rows and \"x\" 2"},
               [&] { safetensors_rows<Pair>(other); });
  expect_error(ErrorKind::invalid_file, {other, "no tensor \"digit\"; it has x, y"},
               [&] { safetensors_rows<DigitBatch>(other); });
  auto moved = safetensors_rows<Pair>(path);
  const auto heir = std::move(moved);
  expect_error(ErrorKind::invalid_argument, {"[safetensors_rows] this source was moved into another; use that one"},
               [&] { moved.size(); });
  EXPECT_EQ(heir.size(), 3);
}

TEST(SafetensorsRows, OfAFileThatChangesUnderneathAreErrors) {
  const ScratchFolder folder;
  const std::string header = R"({"x":{"dtype":"U8","shape":[2,10000],"data_offsets":[0,20000]},)"
                             R"("y":{"dtype":"U8","shape":[2],"data_offsets":[20000,20002]}})";
  const auto path = folder.write("a.safetensors", safetensors_bytes(header, std::string(20'002, 'a')));
  constexpr auto kind = ErrorKind::invalid_file;
  {
    const auto pairs = safetensors_rows<Pair>(path);
    EXPECT_EQ(pairs[1].y.item<int>(), 'a');
    std::filesystem::resize_file(path, 500);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    for (int again = 0; again < 2; ++again)
      for (const int64_t row : {0, 1}) expect_error(kind, {"[read]", path, "changed while it was open"}, [&] { pairs[row]; });
  }
  folder.write("a.safetensors", safetensors_bytes(header, std::string(20'002, 'a')));
  const auto pairs = safetensors_rows<Pair>(path);
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  folder.write("a.safetensors", safetensors_bytes(header, std::string(20'002, 'b')));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  expect_error(kind, {"[read]", path, "written to"}, [&] { pairs[0]; });
}

TEST(TokenBatch, OfTwoAndFourBytes) {
  const std::vector<std::vector<uint16_t>> shorts = {{1, 65535, 3}};
  EXPECT_EQ(values<int32_t>(token_batch(shorts).targets), (std::vector<int32_t>{65535, 3}));
  const std::vector<std::vector<uint32_t>> longs = {{1, 4000000000}};
  expect_error(ErrorKind::invalid_argument, {"[token_batch]", "4000000000", "int32"}, [&] { token_batch(longs); });
}

}  // namespace
}  // namespace tessera::data
