// Lookups and scatters: numpy's values, shardings of results, communication, and errors.
#include "sharding/operations/index/indexing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sharding/accounting/ledger.h"
#include "sharding/autodiff/tape.h"
#include "sharding/operations.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/expect_error.h"

namespace tessera::indexing_test {
namespace {

using testing::expect_error;

Array placed(const Array& x, Mesh mesh, const PartitionSpec& spec) { return device_put(x, NamedSharding(mesh, spec)); }

Mesh two_by_two() { return make_mesh({{"a", 2}, {"b", 2}}); }

Array counting(Shape shape) {
  std::vector<float> values;
  for (int64_t i = 0; i < ones(shape).size(); ++i) values.push_back(static_cast<float>(i));
  return array<float>(values, shape);
}

TEST(IndexingTest, IdsBelowZeroCountFromTheEnd) {
  EXPECT_EQ(take(counting({3, 2}), array<int32_t>({-1, 0}), 0).to_host<float>(), (std::vector<float>{4, 5, 0, 1}));
  EXPECT_EQ(take(counting({3, 2}), array<int32_t>({-1, 1})).to_host<float>(), (std::vector<float>{5, 1}));
  EXPECT_EQ(take_along_axis(counting({2, 2}), array<int32_t>(std::vector<int32_t>{-1, -2}, {2, 1})).to_host<float>(),
            (std::vector<float>{1, 2}));
}

TEST(IndexingTest, OneHotOfWhatIsNoClassIsZero) {
  EXPECT_EQ(one_hot(array<int32_t>({1, -1, 3}), 3, int32).to_host<int32_t>(),
            (std::vector<int32_t>{0, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(one_hot(array<uint8_t>({255}), 300, boolean).shape(), (Shape{1, 300}));
}

TEST(IndexingTest, TheLastOfRepeatedIdsIsSet) {
  const Array set = scatter_set(zeros({3}), array<int32_t>({2, 0, 2}), array<float>({1, 2, 3}));
  EXPECT_EQ(set.to_host<float>(), (std::vector<float>{2, 0, 3}));
  EXPECT_EQ(scatter_set(zeros({2, 2}), 1, array<float>({7, 8})).to_host<float>(), (std::vector<float>{0, 0, 7, 8}));
}

TEST(IndexingTest, InfinityInAnotherBlockStaysThere) {
  const Array x = placed(array<float>({1, 2, INFINITY, NAN}), two_by_two(), P{"a"});
  EXPECT_EQ(take(x, array<int32_t>({0, 1}), 0).to_host<float>(), (std::vector<float>{1, 2}));
  const Array table = placed(reshape(array<float>({1, 2, INFINITY, NAN}), {4, 1}), two_by_two(), P{"a"});
  EXPECT_EQ(embedding(table, array<int32_t>({0, 1})).to_host<float>(), (std::vector<float>{1, 2}));
}

std::vector<bool> signs(const Array& x) {
  std::vector<bool> negative;
  for (const float value : gather(astype(x, float32)).to_host<float>()) negative.push_back(std::signbit(value));
  return negative;
}

TEST(IndexingTest, ZerosKeepTheirSign) {
  const Mesh mesh = two_by_two();
  const Array ids = array<int32_t>({0, 1, 2, 3}), updates = astype(array<float>({-0., 0, 0, -0.}, {4, 1}), float32);
  const std::vector<bool> given{true, false, true, true}, added{true, false, false, true};
  for (const DType dtype : {float16, float32, float64})
    for (const PartitionSpec& spec : {P{}, P{"a"}, P{{"b", "a"}}, P{}.unreduced({"a"}), P{"b"}.unreduced({"a"})})
      for (const PartitionSpec& of_ids : {P{}, P{"a"}, P{"b"}}) {
        const Array x = placed(astype(array<float>({-0., 0, -0., -1}, {4, 1}), dtype), mesh, spec);
        const Array at = placed(ids, mesh, of_ids);
        SCOPED_TRACE(x.type_string() + " " + at.type_string());
        EXPECT_EQ(signs(x), given);
        EXPECT_EQ(std::signbit(astype(x, float32).to_host<float>()[0]), true);  // reduces a partial sum
        EXPECT_EQ(signs(take(x, at, 0)), given);
        EXPECT_EQ(signs(x.index({at})), given);
        EXPECT_EQ(signs(take_along_axis(x, reshape(at, {4, 1}), 0)), given);
        EXPECT_EQ(signs(embedding(x, at)), given);
        EXPECT_EQ(signs(scatter_add(x, at, placed(updates, mesh, of_ids))), added);
      }
}

// ---- placements

TEST(IndexingTest, ALookupInAShardedDimIsAPartialSumAndGathersNothing) {
  CommLedger ledger;
  const Array x = placed(counting({8, 4}), two_by_two(), P{"a", "b"});
  const Array ids = array<int32_t>({1, 7, -8});
  EXPECT_EQ(take(x, ids, 0).type_string(), "float32[3,4@b]{U:a}");
  EXPECT_EQ(take(x, ids, 0, {.out_sharding = P{none, "b"}}).type_string(), "float32[3,4@b]");
  EXPECT_EQ(take_along_axis(x, array<int32_t>(std::vector<int32_t>(8, 3), {8, 1}), 1).type_string(),
            "float32[8@a,1]{U:b}");
  EXPECT_EQ(ledger.count(), 1);
  EXPECT_EQ(ledger.count("all_reduce", "a"), 1);
}

TEST(IndexingTest, ShardedIdsGiveAShardedResult) {
  CommLedger ledger;
  const Array ids = placed(array<int32_t>({1, 7, 0, 2}), two_by_two(), P{"b"});
  EXPECT_EQ(take(counting({8, 4}), ids, 0).type_string(), "float32[4@b,4]");
  EXPECT_EQ(one_hot(ids, 8).type_string(), "float32[4@b,8]");
  EXPECT_EQ(ledger.count(), 0);
}

TEST(IndexingTest, ScatteredUpdatesStayWhereTheyAreAndTheTargetCountsOnce) {
  const Array ids = placed(array<int32_t>({1, 1, 0, 3}), two_by_two(), P{"a"});
  const Array x = placed(counting({4, 2}), two_by_two(), P{none, "b"});
  CommLedger ledger;
  const Array added = scatter_add(x, ids, placed(ones({4, 2}), two_by_two(), P{"a"}));
  EXPECT_EQ(added.type_string(), "float32[4,2@b]{U:a}");
  EXPECT_EQ(ledger.count(), 0);
  EXPECT_EQ(added.to_host<float>(), (std::vector<float>{1, 2, 4, 5, 4, 5, 7, 8}));
}

TEST(IndexingTest, ScatterIntoAShardedDimMovesNothing) {
  CommLedger ledger;
  const Array x = placed(counting({4, 2}), two_by_two(), P{"a", "b"}), ids = array<int32_t>({-1, 0});
  EXPECT_EQ(scatter_add(x, ids, ones({2})).type_string(), "float32[4@a,2@b]");
  EXPECT_EQ(scatter_set(x, ids, zeros({2, 1})).to_host<float>(), (std::vector<float>{0, 0, 2, 3, 4, 5, 0, 0}));
  EXPECT_EQ(bincount(array<int32_t>({3, 0}), 4).dtype(), int32);
  EXPECT_EQ(ledger.count(), 0);
}

// The target's gradient is the cotangent itself, for any sharding of the updates.
TEST(IndexingTest, TheTargetOfAPartialScatterSendsItsGradientOnce) {
  const Mesh mesh = two_by_two();
  Tape tape({placed(counting({4, 2}), mesh, P{})});
  const Array ids = placed(array<int32_t>({1, 1, 0, 3}), mesh, P{"a"});
  CommLedger ledger;
  const Array loss = sum(scatter_add(tape.shadows()[0], ids, placed(ones({4, 2}), mesh, P{"a"})) * 3.0);
  EXPECT_EQ(tape.gradients(loss)[0].to_host<float>(), std::vector<float>(8, 3));
  for (const CommRecord& record : ledger.records()) EXPECT_FALSE(record.backward) << record.result;
}

TEST(IndexingTest, TheTargetOfAPartialScatterMayBeReduced) {
  const Mesh mesh = two_by_two();
  const Array ids = placed(array<int32_t>({1, 1, 0, 3}), mesh, P{"a"});
  Tape tape({placed(counting({4, 2}), mesh, P{})});
  const Array x = reshard(tape.shadows()[0], P{}.reduced({"a"}));
  const Array y = scatter_add(x, ids, placed(ones({4, 2}), mesh, P{"a"}));
  EXPECT_EQ(y.type_string(), "float32[4,2]{U:a}");
  EXPECT_EQ(tessera::detail::finalize_result(y).to_host<float>(), (std::vector<float>{1, 2, 4, 5, 4, 5, 7, 8}));
  EXPECT_EQ(tape.gradients(sum(y * 3.0))[0].to_host<float>(), std::vector<float>(8, 3));
}

// ---- errors

TEST(IndexingTest, WrongUseIsRefused) {
  const Array x = counting({4, 2}), ids = array<int32_t>({0, 4});
  expect_error(ErrorKind::invalid_argument, "[take] indices from 0 to 4 given, expected -4 to 3",
               [=] { take(x, ids, 0); });
  expect_error(ErrorKind::invalid_argument, "expected -2 to 1", [=] { take(x, ids, -1); });
  expect_error(ErrorKind::invalid_argument, "[take] dim 2 of float32[4,2]", [=] { take(x, ids, 2); });
  expect_error(ErrorKind::dtype_mismatch, "[take] ids are float32[4,2], expected integers", [=] { take(x, x, 0); });
  expect_error(ErrorKind::invalid_argument, "[embedding] indices from -1 to -1 given, expected 0 to 3",
               [=] { embedding(x, array<int32_t>({-1})); });
  expect_error(ErrorKind::shape_mismatch, "[take_along_axis] given float32[4,2] and ids int32[2]",
               [=] { take_along_axis(x, ids, 0); });
  expect_error(ErrorKind::shape_mismatch, "[take_along_axis]", [=] {
    take_along_axis(x, array<int32_t>(std::vector<int32_t>(3, 0), {3, 1}), 1);
  });
  expect_error(ErrorKind::invalid_argument, "[scatter_add] indices from 0 to 4 given, expected -4 to 3",
               [=] { scatter_add(x, ids, ones({2, 2})); });
  expect_error(ErrorKind::shape_mismatch, "[scatter_set]", [=] { scatter_set(x, ids, ones({3, 2})); });
  expect_error(ErrorKind::dtype_mismatch, "[scatter_add] updates float32[2,2] of int32[4,2], expected integers", [=] {
    scatter_add(astype(x, int32), ids, ones({2, 2}));
  });
  expect_error(ErrorKind::invalid_argument, "[one_hot] -1 classes given", [=] { one_hot(ids, -1); });
}

// ---- x[i], x.index({...}), x.at({...})

TEST(IndexingTest, OneEntryNeedsNoBraces) {
  const Array x = counting({4, 3});
  EXPECT_EQ(x[1].to_host<float>(), (std::vector<float>{3, 4, 5}));
  EXPECT_EQ(x[-1][2].item<float>(), 11);
  EXPECT_EQ(x[range(1, {}, 2)].to_host<float>(), (std::vector<float>{3, 4, 5, 9, 10, 11}));
  NamedArray ids{"batch"};
  ids = array<int32_t>({2, 0});
  EXPECT_EQ(x[ids].to_host<float>(), (std::vector<float>{6, 7, 8, 0, 1, 2}));
  EXPECT_EQ(x.index({0, ids}).to_host<float>(), (std::vector<float>{2, 0}));
  EXPECT_TRUE(x.index({}).is_same(x));
  expect_error(ErrorKind::invalid_argument, "[index] index 4 of dim 0", [&] { x[4]; });
  expect_error(ErrorKind::invalid_argument, "[index] 3 entries", [&] { x.index({0, 0, {}}); });
}

static_assert(!std::is_copy_constructible_v<ArrayUpdate>);

TEST(IndexingTest, AtUpdatesAsTheOperationsDo) {
  const Array x = counting({4, 4}), ids = array<int32_t>({2, 0, 2, 1}), row = array<float>({-1, -2, -3, -4});
  const Mesh mesh = two_by_two();
  for (const PartitionSpec& spec : {P{}, P{"a"}, P{none, "b"}, P{{"a", "b"}}}) {
    const Array on = placed(x, mesh, spec);
    SCOPED_TRACE(on.type_string());
    const auto expect_same = [&](const Array& given, const Array& expected) {
      EXPECT_EQ(given.type_string(), expected.type_string());
      EXPECT_EQ(gather(given).to_host<float>(), gather(expected).to_host<float>());
    };
    expect_same(on.at({-1}).set(row), scatter_set(on, -1, row));
    expect_same(on.at({ellipsis, 1}).set(ones({}, int32)), scatter_set(on, 1, ones({}), 1));
    expect_same(on.at({ids}).set(row), scatter_set(on, ids, row));
    expect_same(on.at({ids, range(4)}).add(row), scatter_add(on, ids, row));
    expect_same(on.at({{}, ids}).add(row), scatter_add(on, ids, row, 1));
    expect_same(on.at({2}).add(row), scatter_add(on, array<int32_t>({2}), row));
    expect_same(on.at({}).set(x * 2.0), dynamic_update_slice(on, x * 2.0, {0, 0}));
    expect_same(on.at({range(-3, -1), range(1, {})}).set(zeros({2, 3})),
                dynamic_update_slice(on, zeros({2, 3}), {1, 1}));
    expect_same(on.at({3, range(2)}).set(zeros({2})), dynamic_update_slice(on, zeros({1, 2}), {3, 0}));
    expect_same(on.at({1, 2}).set(zeros({})), dynamic_update_slice(on, zeros({1, 1}), {1, 2}));
    expect_same(on.at({range(4, 4)}).set(zeros({0, 4})), on);
  }
  EXPECT_EQ(x.at({1}).add(row)[1].to_host<float>(), (std::vector<float>{3, 3, 3, 3}));
  EXPECT_EQ(x[1].to_host<float>(), (std::vector<float>{4, 5, 6, 7}));  // x does not change
}

TEST(IndexingTest, AtHasAGradient) {
  const Array x = counting({3, 2});
  Tape tape({x, ones({2})});
  const Array &a = tape.shadows()[0], &b = tape.shadows()[1];
  const std::vector<Array> g = tape.gradients(sum(a.at({1}).set(b) * x));
  EXPECT_EQ(g[0].to_host<float>(), (std::vector<float>{0, 1, 0, 0, 4, 5}));
  EXPECT_EQ(g[1].to_host<float>(), (std::vector<float>{2, 3}));
}

TEST(IndexingTest, AtTakesNumbers) {
  const Array x = counting({2, 3});
  EXPECT_EQ(x.at({0}).set(7).to_host<float>(), (std::vector<float>{7, 7, 7, 3, 4, 5}));
  EXPECT_EQ(x.at({{}, 1}).add(0.5).to_host<float>(), (std::vector<float>{0, 1.5, 2, 3, 4.5, 5}));
  EXPECT_EQ(x.at({1, range(2)}).set(9).to_host<float>(), (std::vector<float>{0, 1, 2, 9, 9, 5}));
  EXPECT_EQ(array<int32_t>({1, 2}).at({1}).set(5).to_host<int32_t>(), (std::vector<int32_t>{1, 5}));
}

// A sum of bool is "or", and integers wrap. Partial sums are therefore reduced before a cast.
TEST(IndexingTest, PartialSumsOfIntegersAreReducedBeforeACast) {
  const NamedSharding halves(make_mesh({{"a", 2}}), P{"a"});
  const Array ids = array<int32_t>({0, 0});
  const Array any = zeros({1}, boolean).at({ids}).add(device_put(ones({2}, boolean), halves));
  for (const Array& x : {astype(any, float32), any + 0.0, any * 1.0, astype(sum(any), float32)})
    EXPECT_EQ(x.to_host<float>(), std::vector<float>{1}) << x.type_string();
  EXPECT_EQ(mean(any).item<float>(), 1);
  const Array large = array<int32_t>({2'000'000'000, 2'000'000'000});
  EXPECT_EQ(astype(sum(device_put(large, halves)), float32).item<float>(), astype(sum(large), float32).item<float>());
}

TEST(IndexingTest, OtherUpdatesAreErrors) {
  const Array x = counting({4, 3}), ids = array<int32_t>({2, 0}), v = zeros({2, 3});
  constexpr auto argument = ErrorKind::invalid_argument;
  const std::string set = "[at] set of float32[4,3] at", expected = "expected integers and ranges of step 1";
  expect_error(argument, {set, expected}, [&] { return x.at({newaxis, 0}).set(v); });
  expect_error(argument, {set, expected}, [&] { return x.at({range(0, 4, 2)}).set(v); });
  expect_error(argument, {set, expected}, [&] { return x.at({ids, 0}).set(v); });
  expect_error(argument, {set, expected}, [&] { return x.at({ids, range(1)}).set(v); });
  for (const Index& entry : {Index(range(2)), Index(newaxis), Index(ellipsis)})
    expect_error(argument, {"[at] add to float32[4,3] given", "expected one integer", "x.at({...}).set("},
                 [&] { return x.at({entry}).add(v); });
  expect_error(argument, "[at] add to", [&] { return x.at({0, 0}).add(v); });
  expect_error(argument, "[at] add to", [&] { return x.at({}).add(v); });
  expect_error(argument, "[at] two arrays of indices", [&] { return x.at({ids, ids}).set(v); });
  expect_error(argument, "[at] index -5 of dim 0 of float32[4,3]", [&] { return x.at({-5}).set(v); });
  expect_error(argument, "[at] 3 entries and 0 ellipses", [&] { return x.at({0, 0, 0}).add(v); });
  expect_error(ErrorKind::missing_array, "[at]", [&] { return Array().at({0}).set(v); });
  expect_error(ErrorKind::shape_mismatch, "[at] set of float32[4,3] to float32[2,3], expected the shape (3, 3)",
               [&] { return x.at({range(3)}).set(v); });
  expect_error(ErrorKind::dtype_mismatch, "[dynamic_update_slice]",
               [&] { return x.at({range(2)}).set(zeros({2, 3}, int32)); });
  expect_error(ErrorKind::dtype_mismatch, "[scatter_set] updates float32[2,3] of int32[4,3]",
               [&] { return astype(x, int32).at({ids}).set(v); });
}

// ---- steps

TEST(IndexingTest, AnArrayOfIdsIsAnIndex) {
  const Array x = reshape(arange(24), {2, 3, 4}), ids = array<int32_t>({2, 0});
  const Array on = device_put(x, NamedSharding(make_mesh({{"a", 2}}), P{"a"}));
  for (const Array& y : {x, on}) {
    EXPECT_EQ(gather(y.index({{}, ids})).to_host<int32_t>(), take(x, ids, 1).to_host<int32_t>());
    EXPECT_EQ(gather(y.index({1, ids, range(2)})).to_host<int32_t>(), (std::vector<int32_t>{20, 21, 12, 13}));
    EXPECT_EQ(y.index({newaxis, ellipsis, reshape(ids, {1, 2})}).shape(), (Shape{1, 2, 3, 1, 2}));
  }
  const Array wide = reshape(arange(48), {2, 3, 4, 2});
  const Array wide_on = device_put(wide, NamedSharding(make_mesh({{"a", 2}}), P{none, none, "a"}));
  for (const Array& y : {wide, wide_on}) {  // numpy's result shape if a slice separates integers and arrays
    const Array apart = y.index({1, {}, ids});
    EXPECT_EQ(apart.shape(), (Shape{2, 3, 2}));
    EXPECT_EQ(apart.to_host<int32_t>(), (std::vector<int32_t>{28, 29, 36, 37, 44, 45, 24, 25, 32, 33, 40, 41}));
    EXPECT_EQ(y.index({{}, 0, {}, array<int32_t>({1, 0, 1}, {3, 1})}).shape(), (Shape{3, 1, 2, 4}));
    EXPECT_EQ(y.index({ids % 2, newaxis, 0}).shape(), (Shape{2, 1, 4, 2}));
    EXPECT_EQ(y.index({{}, 0, ids}).shape(), (Shape{2, 2, 2}));
    EXPECT_EQ(y.index({0, ellipsis, ids % 2}).shape(), (Shape{2, 3, 4}));
  }
  expect_error(ErrorKind::invalid_argument, "[index] two arrays of indices", [&] { x.index({ids, ids}); });
  expect_error(ErrorKind::dtype_mismatch, "[take] ids are bool[2], expected integers", [&] { x.index({ids > 1}); });
}

TEST(IndexingTest, ARangeOfOneNumberBeginsAtZero) {
  const Array x = arange(8);
  EXPECT_EQ(x.index({range(3)}).to_host<int32_t>(), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(x.index({range(-6)}).to_host<int32_t>(), (std::vector<int32_t>{0, 1}));
}

TEST(IndexingTest, AStepPastTheDimTakesOneElement) {
  const Mesh mesh = make_mesh({{"a", 2}});
  const Array x = arange(8);
  for (const Array& on : {x, device_put(x, NamedSharding(mesh, P{"a"}))})
    for (const int64_t step : {int64_t{8}, int64_t{9}, INT64_MAX}) {
      EXPECT_EQ(on.index({range(0, 8, step)}).to_host<int32_t>(), (std::vector<int32_t>{0})) << step;
      EXPECT_EQ(on.index({range(3, {}, step)}).to_host<int32_t>(), (std::vector<int32_t>{3})) << step;
      EXPECT_EQ(on.index({range(7, {}, -step)}).to_host<int32_t>(), (std::vector<int32_t>{7})) << step;
      EXPECT_EQ(on.index({range(5, {}, -step - 1)}).to_host<int32_t>(), (std::vector<int32_t>{5})) << step;
      EXPECT_EQ(on.index({range(5, 5, step)}).size(), 0) << step;
      EXPECT_EQ(slice(on, {2}, {8}, {step}).to_host<int32_t>(), (std::vector<int32_t>{2})) << step;
    }
}

}  // namespace
}  // namespace tessera::indexing_test
