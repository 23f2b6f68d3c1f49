// Edge cases of operations: shardings that no parameter has, sizes without memory, and types without a kernel.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "sharding/accounting/ledger.h"
#include "sharding/autodiff/tape.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/expressions.h"

namespace tessera::edge_test {
namespace {

using testing::expect_error;

// Returns the derivative of sum(x w) with respect to w, for w in this sharding. x is 4 by 3, all ones.
std::vector<float> gradient_of(const PartitionSpec& form, bool private_replicas) {
  const Mesh mesh = make_mesh({{"a", 2}}, {.private_replicas = private_replicas});
  const Array x = device_put(ones({4, 3}), NamedSharding(mesh, P{"a"}));
  Tape tape({device_put(ones({3}), NamedSharding(mesh, form))});
  return tape.gradients(sum(x * tape.shadows()[0]))[0].to_host<float>();
}

TEST(EdgeTest, TheGradientOfAPartialSumOrAReducedArrayIsAValue) {
  for (const bool private_replicas : {false, true})
    for (const PartitionSpec& form : {P{}, P{}.unreduced({"a"}), P{}.reduced({"a"})})
      EXPECT_EQ(gradient_of(form, private_replicas), (std::vector<float>{4, 4, 4}))
          << form.to_string() << (private_replicas ? " private" : "");
}

// float16 cannot hold a number above 65504.
TEST(EdgeTest, AMeanOfHalfPrecisionIsSummedInFloat) {
  const Mesh mesh = make_mesh({{"a", 2}});
  for (const PartitionSpec& form : {P{}, P{"a"}, P{none, "a"}}) {
    const Array x = device_put(full({2, 100'000}, 3, {.dtype = float16}), NamedSharding(mesh, form));
    EXPECT_EQ(astype(mean(x, 1), float32).to_host<float>(), (std::vector<float>{3, 3})) << form.to_string();
  }
}

TEST(EdgeTest, UnsignedNumbersAboveInt64AreReadAsTheyAre) {
  const uint64_t most = std::numeric_limits<uint64_t>::max();
  const float value = 0x1p64f;
  const Array x = array<float>({-1, 2, 1e30F});
  EXPECT_EQ(clip(x, 0, most).to_host<float>(), (std::vector<float>{0, 2, value}));
  EXPECT_EQ(where(x < 0, most, x).to_host<float>(), (std::vector<float>{value, 2, 1e30F}));
  EXPECT_EQ(power(array<float>({1, 0.5F}), most).to_host<float>(), (std::vector<float>{1, 0}));
}

TEST(EdgeTest, LinspaceOfIntegersRoundsDown) {
  EXPECT_EQ(linspace(-1, 1, 4, {.dtype = int32}).to_host<int32_t>(), (std::vector<int32_t>{-1, -1, 0, 1}));
}

TEST(EdgeTest, AShardedTableWithoutRowsHasNoRowToGive) {
  const Mesh mesh = make_mesh({{"model", 4}});
  const Array table = device_put(zeros({0, 4}), NamedSharding(mesh, P{"model"}));
  EXPECT_EQ(embedding(table, zeros({0}, int32)).shape(), (Shape{0, 4}));
}

TEST(EdgeTest, APositionWhoseWindowHasNoKeyHasTheMeanOfAllValues) {
  const Array key = normal(Key(0), {1, 5, 1, 4}), value = normal(Key(1), {1, 5, 1, 4});
  const std::vector<float> expected = mean(value, 1).to_host<float>();
  const auto last_row = [&](int64_t queries, const DotProductAttentionOptions& options) {
    const auto all = dot_product_attention(ones({1, queries, 1, 4}), key, value, options).to_host<float>();
    return std::vector<float>(all.end() - 4, all.end());
  };
  for (const std::vector<float>& row :
       {last_row(1, {.causal = true, .offset = 10, .window = 2}), last_row(10, {.causal = true, .window = 2})})
    for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(row[i], expected[i], 1e-6);
}

TEST(EdgeTest, ParametersAreNotPartialSums) {
  const Mesh mesh = make_mesh({{"a", 2}});
  for (const PartitionSpec& form : {P{}.unreduced({"a"}), P{}.reduced({"a"})})
    expect_error(ErrorKind::invalid_argument, "a parameter is sharded or replicated",
                 CALL(place_parameter(ones({4}), NamedSharding(mesh, form), "w")));
}

TEST(EdgeTest, ShapesFitIntoMemory) {
  const int64_t large = int64_t{1} << 40;
  expect_error(ErrorKind::invalid_argument, "fewer than 2^63 bytes", CALL(zeros({large, large})));
  expect_error(ErrorKind::invalid_argument, "fewer than 2^63 bytes",
               CALL(array<float>(std::vector<float>{}, {int64_t{1} << 32, int64_t{1} << 32})));
  expect_error(ErrorKind::invalid_argument, "expected sizes from 0",
               CALL(NamedSharding(make_mesh({}), P{}).shard_shape({-4})));
  expect_error(ErrorKind::out_of_memory, "[place] no memory for a block of float32[1099511627776]",
               CALL(device_put(ones({large}), NamedSharding(make_mesh({{"a", 1}}), P{}))));
}

TEST(EdgeTest, KernelsRefuseInOneLine) {
  const Array bits = array<bool>({true, false});
  expect_error(ErrorKind::dtype_mismatch, "[sub] given bool[2] and bool[2], expected numbers.", CALL(bits - bits));
  const char* by_zero = "given int32[8]: an integer by 0, which has no value.";
  expect_error(ErrorKind::invalid_argument, std::string("[remainder] ") + by_zero, CALL(arange(8) % 0));
  expect_error(ErrorKind::invalid_argument, std::string("[floor_divide] ") + by_zero, CALL(floor_divide(arange(8), 0)));
}

// Integers have no negative powers, as in numpy: 2 to the power of -1 is not an integer.
TEST(EdgeTest, IntegersHaveNoNegativePowers) {
  const Mesh mesh = make_mesh({{"a", 4}});
  const char* words = "[power] an exponent of -2 given for integers, expected 0 or more.";
  for (const PartitionSpec& spec : {P{}, P{{"a", Uneven::pad}}}) {
    const Array x = device_put(arange(6) + 1, NamedSharding(mesh, spec));
    const Array last = device_put(arange(3, -3, -1), NamedSharding(mesh, spec));
    expect_error(ErrorKind::invalid_argument, words, CALL(power(x, -2)));
    expect_error(ErrorKind::invalid_argument, words, CALL(power(2, last)));
    expect_error(ErrorKind::invalid_argument, words, CALL(power(x, last)));
    EXPECT_EQ(power(x, x - 1).to_host<int32_t>(), (std::vector<int32_t>{1, 2, 9, 64, 625, 7776}));
    EXPECT_EQ(power(astype(x, float32), last).to_host<float>()[4], 0.2F);
    EXPECT_EQ(power(2.0, last).to_host<float>()[5], 0.25F);
  }
}

TEST(EdgeTest, NoNormHasANegativeEps) {
  const Array x = ones({2, 4}), scale = ones({4});
  for (const double eps : {-1e-5, std::nan(""), static_cast<double>(INFINITY)}) {
    expect_error(ErrorKind::invalid_argument, "[layer_norm] eps = ", CALL(layer_norm(x, eps)));
    expect_error(ErrorKind::invalid_argument, "[layer_norm] eps = ", CALL(layer_norm(x, scale, scale, eps)));
    expect_error(ErrorKind::invalid_argument, "[rms_norm] eps = ", CALL(rms_norm(x, eps)));
    expect_error(ErrorKind::invalid_argument, "[rms_norm] eps = ", CALL(rms_norm(x, scale, eps)));
  }
}

TEST(EdgeTest, ResultsThatAreTooLargeNameTheirOperation) {
  const int64_t large = int64_t{1} << 62;
  const Array one = ones({1}), nothing = zeros({0, 2});
  const ErrorKind kind = ErrorKind::invalid_argument;
  expect_error(kind, "[broadcast_to] the shape ", CALL(broadcast_to(one, {large, 4})));
  expect_error(kind, "[one_hot] the shape ", CALL(one_hot(arange(8), large)));
  expect_error(kind, "[reshape] the shape ", CALL(reshape(nothing, {0, large, 4})));
  const Array placed = device_put(nothing, NamedSharding(make_mesh({{"a", 2}}), P{none, "a"}));
  expect_error(kind, "[reshape] the shape ", CALL(reshape(placed, {0, large, 4})));
}

// ---- arguments that do not fit

struct Refusal {
  ErrorKind kind;
  const char* words;
  std::function<void()> call;
};

void expect_refusals(const std::vector<Refusal>& table) {
  for (const Refusal& row : table) expect_error(row.kind, row.words, row.call);
}

TEST(EdgeTest, NumbersThatNoElementHoldsAreNamed) {
  const Array i = arange(8), large = astype(i, int64);
  const ErrorKind kind = ErrorKind::invalid_argument;
  expect_refusals({
      {kind, "[less] the number 3000000000 given for int32, expected -2147483648 to 2147483647.",
       CALL((void)(i < 3000000000LL))},
      {kind, "[less] the number 18446744073709551615 given for int64", CALL((void)(large < UINT64_MAX))},
      {kind, "[equal] the number 4294967297 given for int32", CALL(equal(i, 4294967297LL))},
      {kind, "[clip] the number -3000000000 given for int32", CALL(clip(i, -3000000000LL, 3000000000LL))},
      {kind, "[maximum] the number 4294967300 given for int32", CALL(maximum(i, 4294967300LL))},
      {kind, "[power] the number 4294967296 given for int32", CALL(power(i, 4294967296LL))},
      {kind, "[add_scalar] the number 3000000000 given for int32", CALL(i + 3000000000LL)},
      {kind, "[scale] the number 3000000000 given for int32", CALL(i * 3000000000LL)},
      {kind, "[where] the number 4294967296 given for int32", CALL(where(i > 3, 4294967296LL, i))},
      {kind, "[full] the number -1 given for uint8, expected 0 to 255.", CALL(full({2}, -1, uint8))},
      {kind, "[full] the number nan given for int32", CALL(full({2}, std::nan(""), int32))},
      {kind, "[full] the number 1e+30 given for int32", CALL(full_like(i, 1e30))},
      {kind, "[full] the number 255.9 given for uint8, expected a whole number. Round it, or use a floating type.",
       CALL(full({2}, 255.9, uint8))},
      {kind, "[full] the number -0.5 given for int32, expected a whole number.", CALL(full_like(i, -0.5))},
      {kind, "[pad] the number 1.5 given for int32, expected a whole number.", CALL(pad(i, {{1, 0}}, 1.5))},
      {kind, "[pad] the number nan given for int32", CALL(pad(i, {{1, 0}}, std::nan("")))},
      {kind, "[item] the number 8589934592 given for int32", CALL(array<int64_t>({1LL << 33}).item<int32_t>())},
  });
}

TEST(EdgeTest, NumbersWithNarrowIntegersAreNamedToo) {
  const Array u = array<uint8_t>({0, 1, 200, 255}), s = astype(u, int16), b = astype(arange(4), int8);
  const ErrorKind kind = ErrorKind::invalid_argument;
  expect_refusals({
      {kind, "[less] the number 300 given for uint8, expected 0 to 255.", CALL((void)(u < 300))},
      {kind, "[greater] the number -1 given for uint8", CALL((void)(u > -1))},
      {kind, "[greater] the number 1000 given for uint8", CALL(where(u > 1000, 1, 0))},
      {kind, "[equal] the number 256 given for uint8", CALL(equal(u, 256))},
      {kind, "[add_scalar] the number 300 given for uint8", CALL(u + 300)},
      {kind, "[add_scalar] the number 300 given for uint8", CALL(300 - u)},
      {kind, "[scale] the number 256 given for uint8", CALL(u * 256)},
      {kind, "[remainder] the number 256 given for uint8", CALL(u % 256)},
      {kind, "[floor_divide] the number 256 given for uint8", CALL(floor_divide(u, 256))},
      {kind, "[maximum] the number 300 given for uint8", CALL(maximum(u, 300))},
      {kind, "[power] the number 256 given for uint8", CALL(power(u, 256))},
      {kind, "[bitwise_and] the number 255 given for int8, expected -128 to 127.", CALL(bitwise_and(b, 255))},
      {kind, "[minimum] the number -129 given for int8", CALL(minimum(-129, b))},
      {kind, "[maximum] the number 40000 given for int16, expected -32768 to 32767.", CALL(maximum(s, 40000))},
      {kind, "[clip] the number 300 given for uint8", CALL(clip(u, 0, 300))},
      {kind, "[clip] the number -1 given for uint8", CALL(clip(u, -1, 3))},
      {kind, "[where] the number 256 given for uint8", CALL(where(u > 1, u, 256))},
      {kind, "[arange] the number 3000000000 given for int32", CALL(arange(3000000000LL, 3000000002LL))},
      {kind, "[arange] the number 256 given for uint8", CALL(arange(0, 257, 1, {.dtype = uint8}))},
      {kind, "[arange] the number 255.5 given for int8", CALL(arange(0.5, 256, 1, {.dtype = int8}))},
      {kind, "[linspace] the number 256 given for uint8", CALL(linspace(0, 256, 3, {.dtype = uint8}))},
      {kind, "[linspace] the number -1 given for uint8", CALL(linspace(-1, 255, 3, {.dtype = uint8}))},
  });
}

TEST(EdgeTest, NarrowIntegersMeetTheNumbersThatTheyHold) {
  const Array u = array<uint8_t>({0, 1, 200, 255});
  EXPECT_EQ((u > 254).to_host<bool>(), (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ((u % 255).to_host<uint8_t>(), (std::vector<uint8_t>{0, 1, 200, 0}));
  EXPECT_EQ((u + 255).to_host<uint8_t>(), (std::vector<uint8_t>{255, 0, 199, 254}));
  EXPECT_EQ(clip(u, 1, 255).to_host<uint8_t>(), (std::vector<uint8_t>{1, 1, 200, 255}));
  EXPECT_EQ((astype(u, int16) - 32767).to_host<int16_t>()[0], -32767);
  EXPECT_EQ(arange(254, 256, 1, {.dtype = uint8}).to_host<uint8_t>(), (std::vector<uint8_t>{254, 255}));
  EXPECT_EQ(arange(0, 0, 1, {.dtype = uint8}).size(), 0);
  constexpr int64_t most = std::numeric_limits<int64_t>::max(), least = std::numeric_limits<int64_t>::min();
  const auto values = [](int64_t start, int64_t stop, int64_t step) {
    return arange(start, stop, step, {.dtype = int64}).to_host<int64_t>();
  };
  EXPECT_EQ(values(most - 3, most, 1), (std::vector<int64_t>{most - 3, most - 2, most - 1}));
  EXPECT_EQ(values(least + 3, least, -2), (std::vector<int64_t>{least + 3, least + 1}));
  EXPECT_EQ(values(least, most, most), (std::vector<int64_t>{least, -1, most - 1}));
  EXPECT_EQ(values(most, least, least), (std::vector<int64_t>{most, -1}));
  EXPECT_EQ(values(most, most - 1, 1), std::vector<int64_t>());
  EXPECT_EQ(linspace(0, 255, 2, {.dtype = uint8}).to_host<uint8_t>(), (std::vector<uint8_t>{0, 255}));
  EXPECT_EQ(linspace(0, 256, 2, {.endpoint = false, .dtype = uint8}).to_host<uint8_t>(),
            (std::vector<uint8_t>{0, 128}));
}

TEST(EdgeTest, NumbersThatElementsHoldAreTaken) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(full({2}, 1e300).to_host<float>(), std::vector<float>(2, infinity));
  EXPECT_EQ(full({2}, -1e300).to_host<float>(), std::vector<float>(2, -infinity));
  EXPECT_EQ(full({1}, 70000.0, float16).to_host<float>(), std::vector<float>{infinity});
  EXPECT_EQ(full({1}, 65519.0, float16).to_host<float>(), std::vector<float>{65504});
  EXPECT_EQ(full({1}, 255.0, uint8).to_host<uint8_t>(), std::vector<uint8_t>{255});
  EXPECT_EQ(full({1}, 0.5, boolean).to_host<bool>(), std::vector<bool>{true});
  EXPECT_EQ(where(array<bool>({true}), 1e300, zeros({1})).to_host<float>(), std::vector<float>{infinity});
  EXPECT_EQ((arange(2) < 2147483647LL).to_host<bool>(), (std::vector<bool>{true, true}));
  EXPECT_EQ((astype(arange(2), int64) + 3000000000LL).to_host<int64_t>(),
            (std::vector<int64_t>{3000000000LL, 3000000001LL}));
  EXPECT_EQ(array<double>({1e300}).item<float>(), infinity);
}

TEST(EdgeTest, ListsAndVectorsMakeArrays) {
  const std::vector<float> values{1, 2, 3, 4};
  const float few[] = {1, 2};
  EXPECT_EQ(array({1.f, 2.f, 3.f, 4.f}, {2, 2}).type_string(), "float32[2,2]");
  EXPECT_EQ(array({1, 2}).type_string(), "int32[2]");
  EXPECT_EQ(array<double>({1, 2}, {1, 2}).type_string(), "float64[1,2]");
  EXPECT_EQ(array(values).to_host<float>(), values);
  EXPECT_EQ(array(values, {2, 2}).to_host<float>(), values);
  EXPECT_EQ(array<float>(few, {2, 1}).type_string(), "float32[2,1]");
}

TEST(EdgeTest, AnItemIsReadAsItsKindOfNumber) {
  EXPECT_EQ(array({7}).item<int64_t>(), 7);
  EXPECT_EQ(array({7}).item<float>(), 7);
  EXPECT_TRUE(array({7}).item<bool>());
  EXPECT_EQ(array<double>({2.75}).item<float>(), 2.75f);
  EXPECT_EQ(astype(array<double>({-2.75}), int32).item<int32_t>(), -2);
  EXPECT_EQ(array<int64_t>({1 << 24}).item<float>(), 0x1p24f);
  EXPECT_EQ(array<int64_t>({(1 << 24) + 1}).item<double>(), 0x1p24 + 1);
  constexpr int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(array<int64_t>({least}).item<float>(), -0x1p63f);
  EXPECT_EQ(array<int64_t>({most}).item<long double>(), static_cast<long double>(most));
  EXPECT_EQ(array<int64_t>({most}).item<uint64_t>(), static_cast<uint64_t>(most));
  EXPECT_EQ(array({7}).item<size_t>(), 7u);
  EXPECT_EQ(array({-7}).item<long long>(), -7);
  EXPECT_EQ(array({7}).item<uint32_t>(), 7u);
  const ErrorKind kind = ErrorKind::dtype_mismatch, lost = ErrorKind::invalid_argument;
  expect_refusals({
      {kind,
       "[item] float64[1] read as int32, which has no fractions. Read item<float>(), or convert it first: "
       "astype(x, int32) drops a fraction, astype(round(x), int32) rounds it.",
       CALL(array<double>({-2.75}).item<int32_t>())},
      {kind, "[item] float32[] read as int64", CALL(ones({}).item<int64_t>())},  // for any value
      {kind, "[item] bfloat16[] read as bool", CALL(ones({}, bfloat16).item<bool>())},
      {kind, "[item] float32[] read as uint64", CALL(ones({}).item<size_t>())},
      {lost,
       "[item] the number 16777217 given for float32, which cannot hold it. Read item<int64_t>(), or round it first "
       "with astype.",
       CALL(array<int64_t>({(1 << 24) + 1}).item<float>())},
      {lost, "[item] the number 9223372036854775807 given for float64", CALL(array<int64_t>({most}).item<double>())},
      {lost, "[item] the number -1 given for uint64, which cannot hold it. Read item<int64_t>().",
       CALL(array({-1}).item<uint64_t>())},
      {lost, "[item] the number 256 given for uint8", CALL(array({256}).item<uint8_t>())},
  });
}

TEST(EdgeTest, SizesAreNamedAsTheyWereGiven) {
  const int64_t huge = int64_t{1} << 62;
  const Array i = arange(8), f = ones({4, 8}), image = ones({1, 3, 9, 9}), kernel = ones({3, 3, 3, 3});
  const ErrorKind kind = ErrorKind::invalid_argument;
  expect_refusals({
      {kind, "[arange] 0 to nan in steps of 1 given", CALL(arange(std::nan("")))},
      {kind, "[arange] 0 to inf in steps of 1 given", CALL(arange(std::numeric_limits<double>::infinity()))},
      {kind, "[arange] 0 to 1e+30 in steps of 1 given", CALL(arange(1e30))},
      {kind, "[arange] 0 to 9223372036854775807 in steps of 1 given", CALL(arange(INT64_MAX))},
      {kind, "[pad] widths 4611686018427387904 and 4611686018427387904 of dim 0 of int32[8]",
       CALL(pad(i, {{huge, huge}}))},
      {kind, "[tile] reps (1, 4611686018427387904) of float32[4,8]", CALL(tile(f, {huge}))},
      {kind, "[repeat] repeats 4611686018427387904 of dim 1 of float32[4,8]", CALL(repeat(f, huge, 1))},
      {ErrorKind::shape_mismatch,
       "[conv_general_dilated] padding (4611686018427387904, 4611686018427387904) of spatial dim 0 given",
       CALL(conv_general_dilated(image, kernel, {1, 1}, {{huge, huge}, {0, 0}}))},
      {ErrorKind::shape_mismatch,
       "[conv_general_dilated] rhs_dilation (4611686018427387904, 1) given, expected 2 sizes",
       CALL(conv_general_dilated(image, kernel, {1, 1}, "VALID", {.rhs_dilation = {huge, 1}}))},
      {kind, "[zeros] the shape (-1) given, expected sizes from 0", CALL(zeros({-1}))},
      {kind, "[array] the shape (-1) given", CALL(array<float>(std::vector<float>{1}, {-1}))},
      {kind, "[normal] the shape (-1) given", CALL(normal(Key(0), {-1}))},
      {kind, "[eye] the shape (-1, -1) given", CALL(eye(-1))},
      {ErrorKind::shape_mismatch, "[dynamic_slice] sizes (-1, 2) for float32[4,8], expected 0 to its own.",
       CALL(dynamic_slice(f, {0, 0}, {-1, 2}))},
  });
}

TEST(EdgeTest, ErrorsSpeakOfTheCallThatWasMade) {
  const Array i = arange(8), f = ones({4, 8}), whole = ones({2, 2}, int32), heads = ones({1, 2, 4, 4});
  const ErrorKind argument = ErrorKind::invalid_argument, shape = ErrorKind::shape_mismatch,
                  dtype = ErrorKind::dtype_mismatch;
  expect_refusals({
      {dtype, "[cross_entropy] logits int32[2,2], expected a floating type.",
       CALL(cross_entropy(whole, array<int32_t>({0, 1})))},
      {dtype, "int32[1,2,4,4], expected one floating type.",
       CALL(dot_product_attention(heads, heads, astype(heads, int32)))},
      {dtype, "expected one floating type.", CALL(dot_product_attention(heads, astype(heads, bfloat16), heads))},
      {shape, "6 heads, 4 kv heads, expected a multiple.",
       CALL(dot_product_attention(ones({1, 2, 6, 4}), heads, heads))},
      {dtype, "[round] decimals -1 of int32[8], expected 0 or more of integers.", CALL(round(i, -1))},
      {argument, "[flip] dim 0 of float32[4,8] given twice.", CALL(flip(f, {0, 0}))},
      {shape, "[einsum] \"ii\": 'i' of float32[4,8] is 4 and 8, expected one size.", CALL(einsum("ii", {f}))},
      {shape, "[einsum] \"ij,jk\": int32[8] has 1 dims, expected 2.", CALL(einsum("ij,jk", {i, whole}))},
      {argument, "[celu] alpha 0 given", CALL(celu(f, 0))},
      {argument, "[bincount] indices from -1 to 5 given, expected 0 to 2.",
       CALL(bincount(array<int32_t>({0, 5, 5, -1}), 3))},
      {shape, "[stack] given float32[4,8] and int32[8], expected equal shapes.", CALL(stack({f, i}))},
      {argument, "[stack] dim 3 of a stack of float32[4,8], expected -3 to 2.", CALL(stack({f}, 3))},
      {argument, "[sum] dim 0 of float32[], which has no dims.", CALL(sum(ones({}), {0}))},
      {argument, "[index] index 0 of dim 0 of float32[0,3], which has no elements.", CALL(zeros({0, 3}).index({0}))},
      {argument, "of dim 0 of float32[2,3], expected -2 to 1.", CALL(zeros({2, 3}).index({UINT64_MAX}))},
      {argument, "[make_mesh] mesh axis \"x,y\" has a comma", CALL(make_mesh({{"x,y", 2}}))},
  });
}

TEST(EdgeTest, CallsOfTooManyDimsNameTheLimit) {
  const ErrorKind kind = ErrorKind::invalid_argument;
  const Array i = arange(8), f = ones({4, 8}), many = ones(Shape(16, 1));
  expect_refusals({
      {kind, "[reshape] int32[8]: 17 dims of the result, expected at most 16.",
       [=] {
         Shape shape(17, 1);
         shape[0] = 8;
         reshape(i, shape);
       }},
      {kind, "[sum] float32[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]: 16 dims to reduce, expected at most 15.",
       CALL(sum(many))},
      {kind, "[broadcast_to] float32[1,1,1,1,1,1,1,1,1]: 18 dims of operand and result together, expected at most 16.",
       CALL(broadcast_to(ones(Shape(9, 1)), Shape(9, 2)))},
      {kind, "[expand_dims] int32[8]: 17 new dims, expected at most 16.",
       CALL(expand_dims(i, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}))},
  });
  EXPECT_EQ(sum(ones(Shape(15, 1))).item<float>(), 1);
  EXPECT_EQ(reshape(many, {1}).shape(), Shape{1});
  EXPECT_EQ(einsum(std::string(200, ' ') + "ij->i", {f}).shape(), Shape{4});
}

TEST(EdgeTest, NoCopiesAndNoElementsHaveValues) {
  const Array placed = device_put(arange(8), NamedSharding(make_mesh({{"a", 2}}), P{"a"}));
  for (const Array& x : {arange(8), placed}) {
    EXPECT_EQ(repeat(x, 0, 0).shape(), Shape{0});
    EXPECT_EQ(tile(x, {0}).shape(), Shape{0});
    EXPECT_EQ(tile(x, {2, 0}).shape(), (Shape{2, 0}));
  }
  const float least = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(logsumexp(zeros({0, 3})).item<float>(), least);
  EXPECT_EQ(logsumexp(zeros({0, 3}), {0}).to_host<float>(), std::vector<float>(3, least));
}

// The variance of `ddof` or fewer elements is not a number, as in jnp.var.
TEST(EdgeTest, AVarianceOfTooFewIsNotANumber) {
  const Array x = reshape(arange(8.0), {4, 2});
  for (const Array& y : {x, device_put(x, NamedSharding(make_mesh({{"a", 2}}), P{"a"}))}) {
    EXPECT_FLOAT_EQ(var(y, {0}, false, 3).to_host<float>()[0], 20);
    for (const int ddof : {4, 5})
      for (const float v : var(y, {0}, false, ddof).to_host<float>()) EXPECT_TRUE(std::isnan(v)) << ddof;
  }
}

TEST(EdgeTest, AnEinsumOfIntegersHasTheirType) {
  const NamedSharding rows(make_mesh({{"a", 2}}), P{"a"});
  for (const Array& x : {reshape(arange(4), {2, 2}), device_put(reshape(arange(4), {2, 2}), rows)}) {
    EXPECT_EQ(to_tensor(einsum("ij->j", {x})).scalar_type(), at::kInt);
    EXPECT_EQ(einsum("ij->j", {x}).to_host<int32_t>(), (std::vector<int32_t>{2, 4}));
    EXPECT_EQ(einsum("ij,kj->", {x, x}).item<int32_t>(), 20);
  }
  EXPECT_EQ(einsum("ij->j", {full({2, 1}, 200, {.dtype = uint8})}).to_host<uint8_t>(), (std::vector<uint8_t>{144}));
}

TEST(EdgeTest, APartialSumTimesInfinityIsInfinite) {
  const Array x = array<float>({-1, 3});
  const NamedSharding rows(make_mesh({{"a", 2}}), P{"a"});
  EXPECT_EQ((sum(device_put(x, rows)) * INFINITY).item<float>(), INFINITY);
  EXPECT_EQ((sum(x) * INFINITY).item<float>(), INFINITY);
}

TEST(EdgeTest, ANormOfHalvesIsThatOfFloats) {
  const Array x = astype(array<float>({300, 400}), float16);
  for (const Array& y : {x, device_put(x, NamedSharding(make_mesh({{"a", 2}}), P{"a"}))}) {
    EXPECT_EQ(norm(y).dtype(), float16);
    EXPECT_EQ(norm(y).item<float>(), 500);
  }
}

// Conversions clamp floats to the range of the integer type, and NaN becomes 0, as in XLA.
TEST(EdgeTest, NumbersBeyondAnIntegerTypeAreItsLast) {
  const Array x = array<float>({3e9f, INFINITY, -INFINITY, NAN, 300, -1.5f});
  constexpr int32_t most = std::numeric_limits<int32_t>::max(), least = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(astype(x, int32).to_host<int32_t>(), (std::vector<int32_t>{most, most, least, 0, 300, -1}));
  EXPECT_EQ(astype(x, uint8).to_host<uint8_t>(), (std::vector<uint8_t>{255, 255, 0, 0, 255, 0}));
  EXPECT_EQ(astype(x, int8).to_host<int8_t>(), (std::vector<int8_t>{127, 127, -128, 0, 127, -1}));
  EXPECT_EQ(astype(array<float>({1e30f, -1e30f, NAN}), int64).to_host<int64_t>(),
            (std::vector<int64_t>{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(), 0}));
}

TEST(EdgeTest, BracesTakeAWholeDim) {
  const Array x = reshape(arange(32), {4, 8});
  EXPECT_EQ(x.index({{}, 1}).to_host<int32_t>(), (std::vector<int32_t>{1, 9, 17, 25}));
  EXPECT_EQ(x.index({}).shape(), (Shape{4, 8}));
}

TEST(EdgeTest, ASoftmaxOfNothingIsNothingOnEveryMesh) {
  const NamedSharding rows(make_mesh({{"a", 2}}), P{none, "a"});
  for (const auto& f :
       {+[](const Array& x) { return softmax(x, -1); }, +[](const Array& x) { return log_softmax(x, -1); }}) {
    Tape tape({device_put(zeros({3, 0}), rows)});
    const Array y = f(tape.shadows()[0]);
    EXPECT_EQ(y.type_string(), "float32[3,0@a]");
    EXPECT_EQ(tape.gradients(sum(y * y))[0].shape(), (Shape{3, 0}));
  }
}

// A block of half a row of the result is not a box of the operand. Only y is gathered.
TEST(EdgeTest, AReshapeGivesUpTheAxesWhoseLossCostsLeast) {
  const Mesh mesh = make_mesh({{"x", 4}, {"y", 2}});
  const Array x = device_put(reshape(arange(48, {.dtype = float32}), {12, 4}), NamedSharding(mesh, P{"x", "y"}));
  CommLedger ledger;
  const Array y = reshape(x, {4, 12});
  EXPECT_EQ(y.type_string(), "float32[4@x,12]");
  int64_t bytes = 0;
  for (const CommRecord& record : ledger.records()) bytes += record.bytes;
  EXPECT_EQ(bytes, 24);
  EXPECT_EQ(y.to_host<float>(), x.to_host<float>());
}

TEST(EdgeTest, NothingHasNoMean) {
  expect_error(ErrorKind::shape_mismatch, "so their mean is undefined",
               CALL(cross_entropy(zeros({0, 4}), array<int32_t>(std::vector<int32_t>{}, {0}))));
}

TEST(EdgeTest, AnEmptyArrayTakesAnyEmptyShape) {
  const Array placed = device_put(ones({0, 6}), NamedSharding(make_mesh({{"a", 2}}), P{none, "a"}));
  for (const Shape& shape : {Shape{0}, Shape{6, 0}, Shape{0, 5}, Shape{0, 0, 6}, Shape{0, 3, 2}}) {
    EXPECT_EQ(reshape(ones({0, 6}), shape).shape(), shape);
    EXPECT_EQ(reshape(placed, shape).shape(), shape);
  }
  expect_error(ErrorKind::shape_mismatch, "another number", CALL(reshape(placed, {1, 6})));
}

TEST(EdgeTest, APadKeepsItsValueAlongAShardedDim) {
  const Array x = device_put(ones({4}), NamedSharding(make_mesh({{"a", 2}}), P{"a"}));
  for (const double value : {0.0, 1e-6, 2e-6, -std::numeric_limits<double>::infinity()}) {
    const float v = static_cast<float>(value);
    EXPECT_EQ(pad(x, {{2, 2}}, value).to_host<float>(), (std::vector<float>{v, v, 1, 1, 1, 1, v, v}));
  }
}

TEST(EdgeTest, NoMeshIsAnError) {
  expect_error(ErrorKind::invalid_argument, "this is not a mesh", CALL(Mesh().size()));
  expect_error(ErrorKind::invalid_argument, "this is not a mesh", CALL(Mesh().has_axis("a")));
}

TEST(EdgeTest, WhatIsMadeOfAFormulaFitsIntoMemoryToo) {
  const int64_t large = int64_t{1} << 40;
  const Mesh mesh = make_mesh({{"a", 2}});
  const auto refused = [](const char* words, auto&& make) { expect_error(ErrorKind::out_of_memory, words, make); };
  refused("no memory for a block of int64[1099511627776]", CALL(arange(large, {.dtype = int64})));
  refused("no memory for a block of float32[1099511627776]", CALL(linspace(0, 1, large)));
  refused("no memory for a block of float32[4194304,4194304]", CALL(eye(int64_t{1} << 22)));
  refused("no memory for a block of int64[549755813888]",
          CALL(arange(large, {.dtype = int64, .out_sharding = NamedSharding(mesh, P{"a"})})));
}

}  // namespace
}  // namespace tessera::edge_test
