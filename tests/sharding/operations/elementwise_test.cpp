// Elementwise functions compared with tables of JAX: element types, values, and gradients at kinks.
#include "sharding/operations/elementwise/elementwise.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>

#include "sharding/autodiff/tape.h"
#include "sharding/files/json.h"
#include "sharding/operations.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/expect_error.h"

namespace tessera::elementwise_test {
namespace {

namespace json = boost::json;
using testing::expect_error;

const json::value& tables() {
  static const json::value value = parse_json_file(
      std::filesystem::path(__FILE__).parent_path().parent_path().parent_path() / "reference" / "elementwise.json");
  return value;
}

using Unary = std::function<Array(const Array&)>;

std::pair<const std::string, Unary> row(const char* name, Unary f) { return {name, std::move(f)}; }

#define ROW(name) row(#name, [](const Array& x) { return name(x); })
const std::map<std::string, Unary> unary_functions = {
    ROW(abs),
    ROW(sign),
    ROW(floor),
    ROW(ceil),
    ROW(trunc),
    ROW(round),
    ROW(square),
    ROW(reciprocal),
    ROW(sqrt),
    ROW(rsqrt),
    ROW(cbrt),
    ROW(exp),
    ROW(exp2),
    ROW(expm1),
    ROW(log),
    ROW(log1p),
    ROW(log2),
    ROW(log10),
    ROW(sin),
    ROW(cos),
    ROW(tan),
    ROW(arcsin),
    ROW(arccos),
    ROW(arctan),
    ROW(sinh),
    ROW(cosh),
    ROW(tanh),
    ROW(arcsinh),
    ROW(arccosh),
    ROW(arctanh),
    ROW(erf),
    ROW(erfc),
    ROW(erf_inv),
    ROW(nan_to_num),
    ROW(sigmoid),
    ROW(log_sigmoid),
    ROW(relu),
    ROW(leaky_relu),
    ROW(silu),
    ROW(softplus),
    ROW(soft_sign),
    ROW(elu),
    ROW(celu),
    ROW(selu),
    ROW(mish),
    ROW(gelu),
    ROW(logical_not),
    ROW(isfinite),
    ROW(isinf),
    ROW(isnan),
    ROW(bitwise_not),
    {"negative", [](const Array& x) { return -x; }},
    {"gelu_exact", [](const Array& x) { return gelu(x, false); }},
};
#undef ROW

// A function of two operands, each an array or a number.
using Binary = std::function<Array(const ArrayOrNumber&, const ArrayOrNumber&)>;

// The upper bound b + b of clip(a, b, b + b).
ArrayOrNumber twice(const ArrayOrNumber& b, const Array& sum) {
  if (!b.is_number()) return sum;
  const Number& n = b.number();
  return n.kind == Number::Kind::floating ? Number(2 * n.floating) : Number(2 * n.integer);
}

Array clipped(const ArrayOrNumber& a, const ArrayOrNumber& b) {
  const Array sum = b.is_number() ? Array() : b.array() + b.array();
  return clip(a.operand(), b, twice(b, sum));
}

std::pair<const std::string, Binary> row(const char* name, Binary f) { return {name, std::move(f)}; }

#define ROW(name) row(#name, [](const ArrayOrNumber& a, const ArrayOrNumber& b) { return name(a, b); })
#define OPERATOR(name, symbol) row(#name, [](const ArrayOrNumber& a, const ArrayOrNumber& b) { return a symbol b; })
const std::map<std::string, Binary> binary_functions = {
    OPERATOR(add, +),
    OPERATOR(subtract, -),
    OPERATOR(multiply, *),
    OPERATOR(divide, /),
    OPERATOR(remainder, %),
    OPERATOR(less, <),
    OPERATOR(less_equal, <=),
    OPERATOR(greater, >),
    OPERATOR(greater_equal, >=),
    ROW(equal),
    ROW(not_equal),
    ROW(floor_divide),
    ROW(power),
    ROW(maximum),
    ROW(minimum),
    ROW(logaddexp),
    ROW(arctan2),
    ROW(logical_and),
    ROW(logical_or),
    ROW(logical_xor),
    ROW(bitwise_and),
    ROW(bitwise_or),
    ROW(bitwise_xor),
    {"where", [](const ArrayOrNumber& a, const ArrayOrNumber& b) { return where(a.array() > 0, a, b); }},
    {"clip", clipped},
};
#undef OPERATOR
#undef ROW

std::vector<float> floats(const json::value& values) { return json::value_to<std::vector<float>>(values); }

Array as_array(const json::value& values) {
  const std::vector<float> host = floats(values);
  return array<float>(host, {static_cast<int64_t>(host.size())});
}

void expect_values(const Array& result, const json::value& expected) {
  const std::vector<float> got = astype(result, float32).to_host<float>(), want = floats(expected);
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 2e-6 * (1 + std::abs(want[i]))) << "at " << i;
}

// Compares values, and the gradients of their sum.
void expect_results(const json::object& expected, const std::vector<Array>& inputs,
                    const std::function<Array(const std::vector<Array>&)>& f) {
  expect_values(f(inputs), expected.at("values"));
  if (!expected.contains("gradients")) return;
  Tape tape(inputs, {});
  const Array recorded = f(tape.shadows());  // some functions compute differently under a tape
  expect_values(recorded, expected.at("values"));
  const std::vector<Array> gradients = tape.gradients(sum(recorded));
  for (size_t i = 0; i < inputs.size(); ++i) {
    SCOPED_TRACE("gradient " + std::to_string(i));
    expect_values(gradients[i], expected.at("gradients").at(i));
  }
}

// Compares the element type of f's result; null: f throws.
void expect_dtype(const json::value& expected, const std::function<Array()>& f) {
  if (expected.is_null()) return expect_error(ErrorKind::dtype_mismatch, "Convert with astype", f);
  EXPECT_EQ(name_of(f().dtype()), std::string_view(expected.as_string()));
}

TEST(ElementwiseTest, FunctionsOfOneArrayAreJaxs) {
  for (const auto& [name, expected] : tables().at("unary").as_object()) {
    SCOPED_TRACE(std::string(name));
    const Unary& f = unary_functions.at(std::string(name));
    const json::object& row = expected.as_object();
    if (row.contains("x"))
      expect_results(row, {as_array(row.at("x"))}, [&](const std::vector<Array>& x) { return f(x[0]); });
    for (const auto& [dtype, result] : row.at("dtypes").as_object()) {
      if (name == "log_sigmoid" && dtype == "bool") continue;  // JAX negates it
      SCOPED_TRACE(std::string(dtype));
      expect_dtype(result, [&] { return f(ones({2}, *dtype_of(dtype))); });
    }
  }
}

TEST(ElementwiseTest, FunctionsOfTwoArraysAreJaxs) {
  for (const auto& [name, expected] : tables().at("binary").as_object()) {
    SCOPED_TRACE(std::string(name));
    const Binary& f = binary_functions.at(std::string(name));
    const json::object& row = expected.as_object();
    if (!row.contains("x")) continue;
    expect_results(row, {as_array(row.at("x")), as_array(row.at("y"))},
                   [&](const std::vector<Array>& x) { return f(x[0], x[1]); });
  }
}

TEST(ElementwiseTest, ABoundThatIsANumberHasHalfAGradient) {
  const Array x = array<float>({-2, -1, 0.5, 1, 3});
  const std::vector<float> values{-1, -1, 0.5, 1, 1};
  EXPECT_EQ(clip(x, -1, 1).to_host<float>(), values);
  Tape tape({x}, {});
  const Array recorded = clip(tape.shadows()[0], -1, 1);
  EXPECT_EQ(recorded.to_host<float>(), values);
  EXPECT_EQ(tape.gradients(sum(recorded))[0].to_host<float>(), (std::vector<float>{0, 0.5, 1, 0.5, 0}));
  EXPECT_EQ(clip(array<int32_t>({-5, 2, 7}), 0, 4).to_host<int32_t>(), (std::vector<int32_t>{0, 2, 4}));
}

struct Numbered {
  Array array;
  std::optional<Number> number;
  ArrayOrNumber term() const { return number ? ArrayOrNumber(*number) : ArrayOrNumber(array); }
};

Numbered operand_of(std::string_view name) {
  if (name == "True") return {{}, true};
  if (name == "2") return {{}, 2};
  if (name == "2.5") return {{}, 2.5};
  return {ones({2}, *dtype_of(name)), std::nullopt};
}

TEST(ElementwiseTest, ElementTypesOfTwoOperandsAreJaxs) {
  for (const auto& [name, expected] : tables().at("binary").as_object())
    for (const json::value& row : expected.at("dtypes").as_array()) {
      const std::string_view a = row.at(0).as_string(), b = row.at(1).as_string();
      SCOPED_TRACE(std::string(name) + " of " + std::string(a) + " and " + std::string(b));
      const Numbered left = operand_of(a), right = operand_of(b);
      expect_dtype(row.at(2), [&] { return binary_functions.at(std::string(name))(left.term(), right.term()); });
    }
}

TEST(ElementwiseTest, WideTypesThatAreAskedForAreKept) {
  const Array wide = ones({2}, float64), whole = ones({2}, int64);
  EXPECT_EQ((wide * 2.5).dtype(), float64);
  EXPECT_EQ((wide + ones({2}, float32)).dtype(), float64);
  EXPECT_EQ((whole + 1).dtype(), int64);
  EXPECT_EQ((whole % ones({2}, int32)).dtype(), int64);
  EXPECT_EQ(exp(wide).dtype(), float64);
  EXPECT_EQ(exp(whole).dtype(), float32);
  EXPECT_EQ(where(wide > 0, whole, 2).dtype(), int64);
}

TEST(ElementwiseTest, IntegersStayExactWithNumbers) {
  const int64_t large = (int64_t{1} << 53) + 1;
  EXPECT_EQ((array<int64_t>({large}) + 0).item<int64_t>(), large);
  EXPECT_EQ((array<int64_t>({0}) + large).item<int64_t>(), large);
  EXPECT_EQ((7 / array<int32_t>({2})).item<float>(), 3.5f);
  EXPECT_EQ(floor_divide(array<int32_t>({-7}), 2).item<int32_t>(), -4);
  EXPECT_EQ((array<int32_t>({-7}) % 3).item<int32_t>(), 2);
  EXPECT_EQ(power(2, array<int32_t>({10})).item<int32_t>(), 1024);
}

TEST(ElementwiseTest, WhereTakesNumbersOnBothSides) {
  const Array x = array<float>({-1, 2});
  EXPECT_EQ(where(x > 0, x, 0).to_host<float>(), (std::vector<float>{0, 2}));
  EXPECT_EQ(where(x > 0, 0.5, x).to_host<float>(), (std::vector<float>{-1, 0.5}));
  EXPECT_EQ(where(x > 0, 1.0, 0.0).to_host<float>(), (std::vector<float>{0, 1}));
  EXPECT_EQ(where(x > 0, 1, 0).to_host<int32_t>(), (std::vector<int32_t>{0, 1}));
}

TEST(ElementwiseTest, ErrorsNameTheOperandsByTheirTypes) {
  const Array a = ones({4, 3}), b = ones({4, 2}), flags = ones({4}, boolean);
  expect_error(ErrorKind::shape_mismatch, "[add] given float32[4,3] and float32[4,2]", [&] { a + b; });
  expect_error(ErrorKind::shape_mismatch, "[where] given bool[4,3]", [&] { where(a > 0, a, b); });
  expect_error(ErrorKind::dtype_mismatch, "[sub] given bool[4] and bool[4], expected numbers", [&] { flags - flags; });
  expect_error(ErrorKind::dtype_mismatch, "[bitwise_and] given float32[4,3] and float32[4,3]",
               [&] { bitwise_and(a, a); });
  expect_error(ErrorKind::dtype_mismatch, "[sigmoid] given int32[2]", [&] { sigmoid(ones({2}, int32)); });
  expect_error(ErrorKind::missing_array, "[exp]", [&] { exp(Array()); });
  expect_error(ErrorKind::missing_array, "[maximum]", [&] { maximum(Array(), 0); });
}

TEST(ElementwiseTest, TheSignOfZeroAndNaNIsTheirOwn) {
  const Mesh mesh = make_mesh({{"a", 2}});
  const Array x = array<float>({-2, 3, -0.0f, 0.0f, NAN, -INFINITY});
  for (const Array& on : {x, device_put(x, NamedSharding(mesh, P{"a"}))}) {
    const std::vector<float> y = sign(on).to_host<float>();
    EXPECT_EQ(std::vector<float>(y.begin(), y.begin() + 4), (std::vector<float>{-1, 1, 0, 0}));
    EXPECT_TRUE(std::signbit(y[2]) && !std::signbit(y[3]) && std::isnan(y[4]) && y[5] == -1);
    Tape tape({on});
    EXPECT_EQ(tape.gradients(sum(sign(tape.shadows()[0]) + tape.shadows()[0]))[0].to_host<float>(),
              std::vector<float>(6, 1));
  }
  EXPECT_EQ(sign(array<int32_t>({-4, 0, 5})).to_host<int32_t>(), (std::vector<int32_t>{-1, 0, 1}));
}

TEST(ElementwiseTest, PaddingAddsNothingToTheGradientOfABroadcastDivisor) {
  const NamedSharding padded(make_mesh({{"x", 4}}), P{{"x", Uneven::pad}});
  for (const Shape& shape : {Shape{}, Shape{1}})
    for (const Array& x : {full({3}, 2), device_put(full({3}, 2), padded)}) {
      Tape tape({x, zeros(shape)});
      const std::vector<Array> gradients = tape.gradients(sum(tape.shadows()[0] / tape.shadows()[1]));
      EXPECT_EQ(gather(gradients[0]).to_host<float>(), std::vector<float>(3, INFINITY));
      EXPECT_EQ(gather(gradients[1]).item<float>(), -INFINITY);
    }
}

TEST(ElementwiseTest, ADimOfSizeOneKeepsItsPadding) {
  const Array x = device_put(ones({1, 2}), NamedSharding(make_mesh({{"x", 4}}), P{{"x", Uneven::pad}}));
  for (const Array& y : {x * 2, x * full({}, 2), x + ones({2}), x + x}) {
    EXPECT_EQ(y.type_string(), "float32[1+3@x,2]");
    EXPECT_EQ(gather(y).to_host<float>(), (std::vector<float>{2, 2}));
  }
  EXPECT_EQ(gather(x + ones({3, 2})).to_host<float>(), std::vector<float>(6, 2));
}

TEST(ElementwiseTest, ACubeRootHasJaxsGradientAtZero) {
  const Array x = array({-8.F, -0.F, 0.F, 27.F});
  Tape tape({x});
  const Array root = cbrt(tape.shadows()[0]);
  const std::vector<float> gradient = tape.gradients(sum(root))[0].to_host<float>();
  EXPECT_NEAR(gradient[0], 1.0 / 12, 1e-6);
  EXPECT_EQ(gradient[1], INFINITY);
  EXPECT_EQ(gradient[2], INFINITY);
  EXPECT_NEAR(gradient[3], 1.0 / 27, 1e-6);
  EXPECT_TRUE(std::signbit(root.to_host<float>()[1]));
}

TEST(ElementwiseTest, LogicHasOperators) {
  const Array a = array<bool>({true, true, false, false}), b = array<bool>({true, false, true, false});
  EXPECT_EQ((a & b).to_host<bool>(), logical_and(a, b).to_host<bool>());
  EXPECT_EQ((a | b).to_host<bool>(), logical_or(a, b).to_host<bool>());
  EXPECT_EQ((a ^ b).to_host<bool>(), logical_xor(a, b).to_host<bool>());
  EXPECT_EQ((!a).to_host<bool>(), logical_not(a).to_host<bool>());
  EXPECT_EQ((~array<int32_t>({0, 5})).to_host<int32_t>(), (std::vector<int32_t>{-1, -6}));
  EXPECT_EQ((array<int32_t>({12}) & 10).to_host<int32_t>(), (std::vector<int32_t>{8}));
}

TEST(ElementwiseTest, TheSignOfTheSmallestAndLargestNumbersIsOne) {
  const std::pair<DType, double> smallest[] = {{float64, 4.9406564584124654e-324},
                                               {float32, 1.401298464324817e-45},
                                               {bfloat16, 9.18355e-41},
                                               {float16, 5.96e-8}};
  for (const auto& [dtype, least] : smallest) {
    const Array x = astype(array<double>({least, -least, 2 * least, 3, -65504, HUGE_VAL, -HUGE_VAL}), dtype);
    EXPECT_EQ(astype(sign(x), float32).to_host<float>(), (std::vector<float>{1, -1, 1, 1, -1, 1, -1}))
        << name_of(dtype);
  }
}

TEST(ElementwiseTest, NumbersBeyondAFloatingTypeAreItsInfinities) {
  for (const DType dtype : {float16, bfloat16, float32}) {
    const Array x = astype(array<float>({1, 2}), dtype);
    const auto values = [](const Array& y) { return astype(y, float32).to_host<float>(); };
    EXPECT_EQ(values(clip(x, -1e300, 1e300)), (std::vector<float>{1, 2})) << name_of(dtype);
    EXPECT_EQ(values(clip(x, 1.5, 1e300)), (std::vector<float>{1.5, 2})) << name_of(dtype);
    EXPECT_EQ(values(power(x, 1e300)), (std::vector<float>{1, INFINITY})) << name_of(dtype);
    EXPECT_EQ(values(power(1e300, x)), (std::vector<float>{INFINITY, INFINITY})) << name_of(dtype);
  }
  EXPECT_EQ(clip(array<double>({1e200}), 0, 1e100).item<double>(), 1e100);
}

}  // namespace
}  // namespace tessera::elementwise_test
