// Products: the meaning of equations, shardings of results, element types, and errors.
#include "sharding/operations/linalg/linear_algebra.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sharding/accounting/ledger.h"
#include "sharding/operations.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/operations/shape/shapes.h"
#include "sharding/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/expressions.h"
#include "tests/sharding/step.h"

namespace tessera::linear_algebra_test {
namespace {

using testing::expect_error;
using Values = std::vector<float>;

Values values(const Array& x) { return astype(x, float32).to_host<float>(); }

Array numbers(Shape shape) {
  int64_t size = 1;
  for (int64_t n : shape) size *= n;
  return reshape(arange(1, 1.0 + static_cast<double>(size)), std::move(shape));
}

Array on(const Mesh& mesh, const Array& x, const PartitionSpec& spec) {
  return device_put(x, NamedSharding(mesh, spec));
}

TEST(EinsumTest, LettersGiveSumsDiagonalsAndOrder) {
  const Array x = numbers({2, 3}), square = numbers({2, 2});
  EXPECT_EQ(values(einsum("ij->ji", {x})), values(transpose(x)));
  EXPECT_EQ(values(einsum("ba", {x})), values(transpose(x)));
  EXPECT_EQ(values(einsum("ij->", {x})), Values{21});
  EXPECT_EQ(values(einsum("ii", {square})), Values{5});
  EXPECT_EQ(values(einsum("ii->i", {square})), (Values{1, 4}));
  EXPECT_EQ(values(einsum(" i j , j k -> i k ", {square, square})), values(matmul(square, square)));
  EXPECT_EQ(values(einsum("ij,jk", {square, square})), values(matmul(square, square)));
  EXPECT_EQ(values(einsum("...j,jk->...k", {square, square})), values(matmul(square, square)));
  EXPECT_EQ(values(einsum("i...->...", {x})), (Values{5, 7, 9}));
}

TEST(EinsumTest, DimsOfSizeOneBroadcast) {
  const Array column = numbers({2, 1}), row = numbers({3});
  EXPECT_EQ(values(einsum("ij,j->ij", {column, row})), (Values{1, 2, 3, 2, 4, 6}));
  EXPECT_EQ(values(einsum("ij,j->i", {column, row})), (Values{6, 12}));
  EXPECT_EQ(values(einsum("...i,i->...", {column, row})), (Values{6, 12}));
}

TEST(EinsumTest, ManyOperandsAreMultipliedInTurn) {
  const Array m = array<float>({1, 1, 0, 1}), square = reshape(m, {2, 2});
  const std::vector<Array> eight(8, square);
  EXPECT_EQ(values(einsum("ab,bc,cd,de,ef,fg,gh,hi->ai", eight)), (Values{1, 8, 0, 1}));
  EXPECT_EQ(values(einsum("...ab,bc,cd,de,ef,fg,gh,hi->...ai", eight)), (Values{1, 8, 0, 1}));
}

TEST(EinsumTest, ElementTypesAreJaxs) {
  const Array flags = array<bool>({true, false}), whole = array<int32_t>({2, 3});
  EXPECT_EQ(einsum("i,i->", {flags, flags}).dtype(), boolean);
  EXPECT_EQ(values(einsum("i,j->ij", {flags, flags})), (Values{1, 0, 0, 0}));
  EXPECT_EQ(einsum("i,i->", {flags, whole}).item<int32_t>(), 2);
  EXPECT_EQ(einsum("i,i->", {whole, ones({2}, float16)}).dtype(), float16);
  EXPECT_EQ(matmul(flags, flags).dtype(), boolean);
  EXPECT_EQ(matmul(ones({2, 2}, uint8), ones({2, 2}, boolean)).dtype(), uint8);
}

TEST(EinsumTest, ErrorsDescribeTheWrongEquation) {
  const Array x = numbers({2, 3});
  const auto refused = [&](const char* equation, std::vector<Array> operands, const char* words) {
    expect_error(ErrorKind::invalid_argument, words, CALL(einsum(equation, operands)));
  };
  refused("ij,jk->ik", {x}, "[einsum] \"ij,jk->ik\": it is for 2 operands, given 1");
  refused("ij->k", {x}, "the result has 'k', which no operand has");
  refused("ij->ii", {x}, "the result has 'i' twice");
  refused("i1->i", {x}, "'1' is neither a letter");
  refused("......->", {x}, "two ellipses");
  refused("", {}, "no operands given");
  expect_error(ErrorKind::shape_mismatch, "[einsum] given float32[2,3] and float32[2,3]: dim \"j\" is",
               CALL(einsum("ij,jk->ik", {x, x})));
  expect_error(ErrorKind::shape_mismatch, "float32[2,3] has 2 dims, expected 3", CALL(einsum("ijk->", {x})));
}

TEST(ProductTest, AreNumpysProducts) {
  const Array x = numbers({2, 3}), y = numbers({3, 2}), v = numbers({3});
  EXPECT_EQ(values(dot(x, y)), values(matmul(x, y)));
  EXPECT_EQ(values(dot(x, v)), (Values{14, 32}));
  EXPECT_EQ(values(dot(x, numbers({}))), values(x));
  EXPECT_EQ(values(inner(x, v)), (Values{14, 32}));
  EXPECT_EQ(values(vdot(x, y)), Values{91});
  EXPECT_EQ(values(outer(v, array<float>({1, 2}))), (Values{1, 2, 2, 4, 3, 6}));
  EXPECT_EQ(values(tensordot(x, y, {{0, 1}, {1, 0}})), Values{1 * 1 + 2 * 3 + 3 * 5 + 4 * 2 + 5 * 4 + 6 * 6});
  EXPECT_EQ(tensordot(x, y, 0).shape(), (Shape{2, 3, 3, 2}));
  EXPECT_EQ(dot_general(numbers({2, 4, 3}), numbers({2, 3, 5}), {.contract = {{2}, {1}}, .batch = {{0}, {0}}}).shape(),
            (Shape{2, 4, 5}));
}

TEST(ProductTest, ErrorsNameTheOperandsByTheirTypes) {
  const Array x = numbers({2, 3});
  expect_error(ErrorKind::shape_mismatch, "[dot_general] dim 1 of float32[2,3] and dim 0 of float32[2,3]",
               CALL(dot_general(x, x, {.contract = {{1}, {0}}})));
  expect_error(ErrorKind::invalid_argument, "[tensordot] over 3 dims", CALL(tensordot(x, x, 3)));
  expect_error(ErrorKind::invalid_argument, "[tensordot] a dim of float32[2,3] given twice",
               CALL(tensordot(x, x, {{0, 0}, {0, 1}})));
  expect_error(ErrorKind::invalid_argument, "[dot_general] 1 dims of float32[2,3] and 0 of float32[2,3]",
               CALL(dot_general(x, x, {.contract = {{1}, {}}})));
  expect_error(ErrorKind::shape_mismatch, "[matmul] given float32[2,3] and float32[2,3]", CALL(matmul(x, x)));
}

// Products of integers whose sums fit in float32 are exact, for every library, forward and backward.
TEST(ProductTest, LargeOnesAreExact) {
  const Mesh mesh = make_mesh({{"a", 2}});
  const auto whole = [](uint64_t seed, Shape shape) { return randint(Key(seed), std::move(shape), -3, 4, int32); };
  const Array x = whole(0, {2, 512, 256}), w = whole(1, {256, 128}), b = whole(2, {128}), g = whole(3, {2, 512, 128});
  const Array rows = reshape(x, {1024, 256}), columns = reshape(g, {1024, 128});
  const std::vector<Values> expected{values(matmul(x, w) + b), values(matmul(g, transpose(w))),
                                     values(matmul(transpose(rows), columns)), values(sum(columns, {0}))};
  for (const PartitionSpec& on_x : {P{}, P{"a"}, P{none, none, "a"}})
    for (const PartitionSpec& on_w : {P{}, P{none, "a"}, P{"a"}}) {
      SCOPED_TRACE(on_x.to_string() + " " + on_w.to_string());
      const auto placed = [&](const Array& t, const PartitionSpec& spec) { return on(mesh, astype(t, float32), spec); };
      Array y;
      const auto made = testing::step({placed(x, on_x), placed(w, on_w), placed(b, P{})}, [&](const auto& p) {
        y = detail::linear(p[0], p[1], p[2]);
        return sum(y * placed(g, P{}));
      });
      std::vector<Values> found{values(stop_gradient(y))};
      for (const Array& gradient : made.gradients) found.push_back(values(gradient));
      EXPECT_EQ(found, expected);
    }
}

TEST(OutShardingTest, APartialSumIsReducedDirectlyToItsTarget) {
  const Mesh mesh = make_mesh({{"x", 2}, {"y", 2}});
  const Array a = on(mesh, numbers({8, 8}), P{none, "x"}), b = on(mesh, numbers({8, 8}), P{"x"});
  const Values product = values(matmul(numbers({8, 8}), numbers({8, 8})));
  const auto kinds = [&](const PartitionSpec& spec) {
    CommLedger ledger;
    const Array c = matmul(a, b, {.out_sharding = spec});
    EXPECT_EQ(c.sharding().spec(), spec);
    EXPECT_EQ(values(c), product);
    std::vector<std::string> found;
    for (const CommRecord& record : ledger.records()) found.push_back(record.kind);
    return found;
  };
  using Kinds = std::vector<std::string>;
  EXPECT_EQ(kinds(P{"x"}), Kinds{"reduce_scatter"});
  EXPECT_EQ(kinds(P{none, "x"}), Kinds{"reduce_scatter"});
  EXPECT_EQ(kinds(P{"y"}), Kinds{"all_reduce"});
  EXPECT_EQ(kinds(P{}), Kinds{"all_reduce"});
  EXPECT_EQ(kinds(P{}.unreduced({"x"})), Kinds{});
}

TEST(OutShardingTest, NeedsAMesh) {
  const Array x = numbers({2, 2});
  expect_error(ErrorKind::device_mismatch, "[einsum] out_sharding P('x') for float32[2,2], which is not on a mesh",
               CALL(einsum("ij->ji", {x}, {.out_sharding = P{"x"}})));
}

// ---- a product and a bias in one

// Shardings, communication, values and gradients equal those of matmul(x, w) + b.
TEST(LinearTest, IsTheProductAndTheSum) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  const PartitionSpec specs_x[] = {P{}, P{"a"}, P{none, none, "b"}, P{"a", none, "b"}};
  const PartitionSpec specs_w[] = {P{}, P{none, "b"}, P{"b"}, P{"a"}, P{"a", "b"}};
  const PartitionSpec specs_b[] = {P{}, P{"b"}, P{"a"}};
  const auto results = [&](auto product, const Array& x, const Array& w, const Array& b) {
    CommLedger ledger;
    Array out;
    const auto made = testing::step({x, w, b}, [&](const std::vector<Array>& p) {
      out = stop_gradient(product(p[0], p[1], p[2]));
      return sum(square(product(p[0], p[1], p[2])));
    });
    std::vector<std::string> told{out.type_string()};
    for (const CommRecord& record : ledger.records()) told.push_back(record.kind + std::to_string(record.bytes));
    std::vector<Values> numbers{values(out)};
    for (const Array& gradient : made.gradients)
      numbers.push_back(values(gradient)), told.push_back(gradient.type_string());
    std::sort(told.begin() + 1, told.end());
    return std::pair(told, numbers);
  };
  for (const PartitionSpec& on_x : specs_x)
    for (const PartitionSpec& on_w : specs_w)
      for (const PartitionSpec& on_b : specs_b) {
        SCOPED_TRACE(on_x.to_string() + " " + on_w.to_string() + " " + on_b.to_string());
        const Array x = device_put(numbers({4, 2, 4}), NamedSharding(mesh, on_x)),
                    w = device_put(numbers({4, 6}), NamedSharding(mesh, on_w)),
                    b = device_put(numbers({6}), NamedSharding(mesh, on_b));
        const auto one =
            results([](const Array& x, const Array& w, const Array& b) { return detail::linear(x, w, b); }, x, w, b);
        const auto two =
            results([](const Array& x, const Array& w, const Array& b) { return matmul(x, w) + b; }, x, w, b);
        EXPECT_EQ(one.first, two.first);
        EXPECT_EQ(one.second, two.second);
      }
}

TEST(ProductTest, NothingBroadcastsOverOneOnly) {
  EXPECT_EQ(matmul(zeros({0, 2, 3}), ones({1, 3, 4})).shape(), (Shape{0, 2, 4}));
  EXPECT_EQ(matmul(ones({1, 2, 3}), ones({0, 3, 4})).shape(), (Shape{0, 2, 4}));
  EXPECT_EQ(einsum("...ij,...jk->...ik", {zeros({0, 2, 3}), ones({1, 3, 4})}).shape(), (Shape{0, 2, 4}));
  expect_error(ErrorKind::shape_mismatch, "do not broadcast", [] { matmul(zeros({0, 2, 3}), ones({5, 3, 4})); });
}

}  // namespace
}  // namespace tessera::linear_algebra_test
