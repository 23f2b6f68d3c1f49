// Observers of operations: their events, forward and backward, on one device and on several.
#include "sharding/accounting/operation_event.h"

#include <gtest/gtest.h>

#include <map>

#include "sharding/autodiff/remat.h"
#include "sharding/autodiff/tape.h"
#include "sharding/base/caller.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/law.h"

namespace tessera::operation_event_test {
namespace {

using namespace tessera::testing;

// Counts events by operation.
struct Listener : detail::Observer {
  Listener() : Observer(detail::Events::operations) {}
  std::vector<detail::OperationCall> calls;
  std::vector<std::string> order;
  std::map<std::string, int> parts;  // parts of the backward pass

  void computed(const detail::OperationCall& call, const detail::OperationArrays& arrays) override {
    calls.push_back(call);
    order.push_back(call.operation);
    ASSERT_EQ(arrays.given.size(), call.given.size());
    ASSERT_EQ(arrays.read.size(), call.read.size());
    for (const Array& x : arrays.results) EXPECT_FALSE(x.impl()->local.empty());
    EXPECT_LE(call.began, call.ended);
  }
  void differentiated(const detail::OperationCall& call, const detail::BackwardCall& part) override {
    parts[call.operation]++;
    EXPECT_FALSE(part.incoming.empty());
    EXPECT_LE(part.began, part.ended);
  }
};

Mesh mesh_of(int64_t devices) { return make_mesh({{"data", devices}}); }

Array placed(const Mesh& mesh, const PartitionSpec& spec) {
  return device_put(full({4, 4}, 0.5), NamedSharding(mesh, spec));
}

// Runs `loss` under a tape, and its backward pass.
void differentiate(const std::function<Array(const Array&)>& loss, const Array& parameter) {
  Tape tape({parameter});
  tape.gradients(loss(tape.shadows()[0]));
}

class OperationEvents : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Devices, OperationEvents, ::testing::Values(1, 2, 4));

TEST_P(OperationEvents, NameTheOperationItsTypesItsModuleAndItsLine) {
  const Mesh mesh = mesh_of(GetParam());
  const Array x = placed(mesh, P{"data"}), w = placed(mesh, P{"data"});
  const Listener listener;
  const ModulePathScope scope("layers.2");
  const Array y = matmul(x, w);
  ASSERT_EQ(listener.calls.size(), 1u);
  const detail::OperationCall& call = listener.calls[0];
  EXPECT_STREQ(call.operation, "matmul");
  EXPECT_EQ(*call.module, "layers.2");
  EXPECT_EQ(call.given[1]->to_string(), w.type_string());
  EXPECT_EQ(call.results[0]->to_string(), y.type_string());
  const std::source_location& where = call.where;
  EXPECT_NE(std::string(where.file_name()).find("operation_event_test.cpp"), std::string::npos);
  EXPECT_EQ(call.read[1] != call.given[1], GetParam() > 1);
}

TEST_P(OperationEvents, OfTheBackwardPassNameTheForwardCall) {
  const Mesh mesh = mesh_of(GetParam());
  const Array x = placed(mesh, P{"data"});
  const Listener listener;
  differentiate([&](const Array& w) { return sum(tanh(matmul(x, w))); }, placed(mesh, P{}));
  EXPECT_EQ(listener.parts.count("matmul") + listener.parts.count("tanh") + listener.parts.count("sum"), 3u);
}

TEST_P(OperationEvents, RecomputationIsMarked) {
  const Mesh mesh = mesh_of(GetParam());
  const Listener listener;
  const auto block = [](const std::vector<Array>& w) { return std::vector<Array>{tanh(w[0]) * w[0]}; };
  differentiate([&](const Array& w) { return sum(remat(block, {w})[0]); }, placed(mesh, P{}));
  int first = 0, again = 0;
  for (const detail::OperationCall& call : listener.calls)
    if (std::string(call.operation) == "tanh") (call.recomputed ? again : first)++;
  EXPECT_EQ(first, 1);
  EXPECT_EQ(again, 1);
}

// Computes how matmul would read x, and the sharding of its result, if the columns of x were sharded.
struct Asker : detail::Observer {
  Asker() : Observer(detail::Events::operations) {}
  std::vector<std::string> otherwise, moves;

  void computed(const detail::OperationCall&, const detail::OperationArrays& arrays) override {
    if (!arrays.plans) return;
    const Array other = placed(Mesh(arrays.given[0]->type->mesh), P{none, "data"});
    const detail::OtherPlans::Plan plan = arrays.plans->with(0, other.impl()->type);
    otherwise = {plan.read->to_string(), plan.result->to_string()};
  }
  void moved(const detail::ArrayImpl& from, const Array& to) override {
    moves.push_back(from.type->to_string() + " -> " + to.type_string());
  }
};

TEST(OperationEventScope, ReportsOtherPlansAndExplicitResharding) {
  const Mesh mesh = mesh_of(2);
  const Array x = placed(mesh, P{"data"}), w = placed(mesh, P{});
  Asker asker;
  matmul(x, w);
  EXPECT_EQ(asker.otherwise, (std::vector<std::string>{"float32[4,4@data]", "float32[4,4]{U:data}"}));
  asker.moves.clear();
  with_sharding_constraint(x, P{none, "data"});
  EXPECT_EQ(asker.moves, std::vector<std::string>{"float32[4@data,4] -> float32[4,4@data]"});
}

TEST(OperationEventScope, EndsWithTheObserverAndReportsNothingOfWhatFails) {
  const Array x = full({2, 3}, 1.0);
  {
    const Listener listener;
    expect_error(ErrorKind::shape_mismatch, "[matmul]", [&] { matmul(x, x); });
    EXPECT_TRUE(listener.calls.empty());
    EXPECT_TRUE(detail::are_operations_observed());
  }
  EXPECT_FALSE(detail::are_operations_observed());
}

}  // namespace
}  // namespace tessera::operation_event_test
