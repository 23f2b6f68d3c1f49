// The cache of plans, the ledger's table, and the value semantics of arrays.
#include <sstream>

#include "sharding/propagation/run.h"
#include "tests/sharding/law.h"

namespace tessera::plan_test {
namespace {

using namespace tessera::testing;

const Array made_at_file_scope = sum(matmul(full({2, 3}, 2), full({3, 2}, 1)) + 1.0);

TEST(Operation, IsReadyBeforeMain) { EXPECT_EQ(made_at_file_scope.item<float>(), 28); }

TEST(PlanCache, AHitGivesWhatAMissGave) {
  const Mesh mesh = make_mesh({{"a", 2}});
  const auto left = [&] { return placed(random_tensor({4, 4}, 1), mesh, P{"a"}); };
  const auto right = [&] { return placed(random_tensor({4, 4}, 2), mesh, P{none, "a"}); };
  detail::clear_plans();
  EXPECT_EQ(detail::plan_count(), 0u);
  CommLedger first;
  const Array miss = matmul(left(), right());
  const std::string communication = ledger_text(first);
  EXPECT_EQ(detail::plan_count(), 1u);
  CommLedger second;
  const Array hit = matmul(left(), right());
  EXPECT_EQ(detail::plan_count(), 1u);
  EXPECT_EQ(hit.impl()->type, miss.impl()->type);
  EXPECT_TRUE(at::equal(to_tensor(hit), to_tensor(miss)));
  EXPECT_EQ(ledger_text(second), communication);
  const Array x = left();
  sum(x, {0}), sum(x, {1}), sum(x, {1}, true), sum(x, {1});
  EXPECT_EQ(detail::plan_count(), 4u);
  0.5 * x, 0.25 * x;  // a scalar's value does not change the plan
  EXPECT_EQ(detail::plan_count(), 5u);
}

TEST(PlanCache, IsBounded) {
  const Array x = from_tensor(at::zeros({400}, at::kFloat));
  detail::clear_plans();
  size_t most = 0, plans = 0;
  for (int64_t stop = 1; stop < 400; ++stop)
    for (int64_t start = 0; start < stop; ++start, ++plans) {
      slice_in_dim(x, start, stop, 0);
      most = std::max(most, detail::plan_count());
    }
  EXPECT_GT(plans, detail::max_plans);
  EXPECT_LE(most, detail::max_plans);
  detail::clear_plans();
}

TEST(LedgerTest, PrintsATable) {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const Array x = placed(random_tensor({8, 4}, 1), mesh, P{"data"});
  CommLedger outer;
  EXPECT_EQ(outer.to_text(), "no communication\n");
  to_tensor(x);  // reading needs no plan
  EXPECT_EQ(outer.count(), 0);
  redistribute(x, NamedSharding(mesh, P{}));
  {
    CommLedger inner;
    tanh(sum(x));
    EXPECT_EQ(inner.count("all_reduce", "data"), 1);
    EXPECT_EQ(inner.bytes(), 8);
    EXPECT_EQ(inner.records()[0].operation, "tanh");
    EXPECT_EQ(inner.records()[0].operand, "float64[]{U:data}");
    EXPECT_EQ(inner.records()[0].result, "float64[]");
    EXPECT_EQ(std::string(inner.records()[0].where.file_name()).ends_with("plan_test.cpp"), true);
  }
  EXPECT_EQ(outer.count(), 2);
  EXPECT_EQ(outer.to_text(),
            "collective     mesh axes      devices  count  bytes/device  pass      caused by\n"
            "all_gather     data                 4      1           256  forward   redistribute\n"
            "all_reduce     data                 4      1             8  forward   tanh\n"
            "total                                      2           264\n");
  outer.clear();
  EXPECT_EQ(outer.count(), 0);
}

TEST(ArrayTest, IntegersStayExactAndScalarsAreWeak) {
  const Array big = array<int32_t>({16777217, -3});
  EXPECT_EQ((big + 1).to_host<int32_t>(), (std::vector<int32_t>{16777218, -2}));
  EXPECT_EQ((big * 2).to_host<int32_t>(), (std::vector<int32_t>{33554434, -6}));
  EXPECT_EQ((big - 1).dtype(), int32);
  EXPECT_EQ((big - 1.0).dtype(), float32);
  EXPECT_EQ((big * 0.5).dtype(), float32);
  EXPECT_EQ((array<double>({1}) * 0.5).dtype(), float64);
  EXPECT_EQ((astype(array<float>({1}), bfloat16) + 0.5).dtype(), bfloat16);
  EXPECT_EQ(sum(array<uint8_t>({200, 100})).item<int32_t>(), 300);
  EXPECT_EQ(sum(array<bool>({true, true})).item<int32_t>(), 2);
  EXPECT_EQ(sum(array<int64_t>({1, 2})).dtype(), int64);
  EXPECT_EQ((array<int32_t>({7}) / array<int32_t>({2})).item<float>(), 3.5f);
}

TEST(ArrayTest, APartialSumOfIntegersIsReducedBeforeACastOrLookup) {
  const Mesh mesh = make_mesh({{"a", 2}});
  const Array pending = sum(placed(at::tensor({0.5, 0.75, 0.5, 0.75}, at::kDouble), mesh, P{"a"}));
  EXPECT_EQ(astype(pending, int32).item<int32_t>(), 2);
  const Array ids = sum(placed(at::tensor({1, 1, 1, 0}, at::kInt).reshape({4, 1}), mesh, P{"a"}), {0});
  ASSERT_EQ(ids.type_string(), "int32[1]{U:a}");
  const Array table = placed(random_tensor({4, 2}, 1), mesh, {});
  EXPECT_TRUE(at::equal(to_tensor(embedding(table, ids)), to_tensor(table).narrow(0, 3, 1)));
}

TEST(ArrayTest, PrintsItsTypeAndValues) {
  const auto text = [](const Array& x) {
    std::ostringstream out;
    out << x;
    return out.str();
  };
  const Mesh mesh = make_mesh({{"a", 2}});
  EXPECT_EQ(text(placed(at::tensor({1.0, 2.5}, at::kDouble), mesh, P{"a"})), "float64[2@a] [1. , 2.5]");
  EXPECT_EQ(text(array<int32_t>(std::vector<int32_t>{1, 2, 3, 4}, {2, 2})), "int32[2,2]\n[[1, 2],\n [3, 4]]");
  EXPECT_EQ(text(zeros({2})), "float32[2] [0., 0.]");
  EXPECT_EQ(text(Array()), "absent");
}

TEST(ArrayTest, ShardsListEveryDevice) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}}, {.devices = {3, 2, 1, 0}});
  const auto shards = placed(random_tensor({4}, 1), mesh, P{"b"}).addressable_shards();
  ASSERT_EQ(shards.size(), 4u);
  EXPECT_EQ(shards[1].device, 2);
  EXPECT_EQ(shards[1].index, (IndexRanges{{2, 4}}));
  EXPECT_EQ(shards[1].replica_id, 0);
  EXPECT_EQ(shards[3].replica_id, 1);
}

}  // namespace
}  // namespace tessera::plan_test
