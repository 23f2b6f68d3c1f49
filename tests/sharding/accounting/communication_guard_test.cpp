// forbid_implicit_communication and CommBudget: what they permit, their errors, and no communication after an error.
#include "sharding/accounting/communication_guard.h"

#include "tests/sharding/expect_error.h"
#include "tests/sharding/law.h"

namespace tessera::communication_guard_test {
namespace {

using namespace tessera::testing;

TEST(Guard, NamesLineOperationOperandReasonAndWhatToDo) {
  const Array x = lying({8, 8}, P{"data"});
  CommLedger ledger;
  {
    const auto guard = forbid_implicit_communication();
    const uint32_t line = __LINE__ + 1;
    const auto clash = [&] { matmul(x, x * 1.0); };
    expect_error(
        ErrorKind::forbidden,
        fmt::format(
            "[matmul] communication_guard_test.cpp:{}: all_gather of float32[8@data,8] to float32[8,8], 256 bytes over "
            "data, which was not requested and is forbidden in this scope. Reason: lhs float32[8@data,8] and rhs "
            "float32[8@data,8] disagree",
            line),
        clash);
    expect_error(ErrorKind::forbidden, "Move it with with_sharding_constraint or device_put",
                 [&] { exp(sum(x, {0})); });
  }
  EXPECT_EQ(ledger.count(), 0);
  EXPECT_EQ(exp(sum(x, {0})).to_host<float>()[0], std::exp(8.0f));
  EXPECT_EQ(ledger.count("all_reduce", "data"), 1);
}

TEST(Guard, AdvisesForGradients) {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  const Array w = place_parameter(ones({8, 8}), NamedSharding(mesh, P{}), "w"), x = lying({8, 8}, P{"data"});
  Tape tape({w});
  const Array loss = with_sharding_constraint(mean(square(matmul(x, tape.shadows()[0]))), P{});
  const auto guard = forbid_implicit_communication();
  expect_error(ErrorKind::forbidden,
               "all_reduce of 1 float32 gradient to the parameters' shardings, 256 bytes over data",
               [&] { tape.gradients(loss); });
}

TEST(Guard, FindsTheLineOfAnIndexAfterOnesThatAreLeftOut) {
  const Array x = lying({4, 8}, P{none, "data"});
  const auto guard = forbid_implicit_communication();
  const uint32_t line = __LINE__ + 1;
  const auto cut = [&] { x.index({{}, range(1, {})}); };
  expect_error(ErrorKind::forbidden, fmt::format("communication_guard_test.cpp:{}: ", line), cut);
}

TEST(Guard, SeesTheFirstUseOfAFormThatIsKept) {
  const Array x = lying({8, 8}, P{"data"}),
              w = place_parameter(ones({8, 8}), NamedSharding(make_mesh({{"data", 4}, {"model", 2}}), P{"data"}), "w");
  CommLedger ledger;
  sort(x, 0);
  EXPECT_EQ(ledger.count("all_to_all"), 1);
  {
    const auto guard = forbid_implicit_communication();
    EXPECT_NO_THROW(sort(x, 0));
  }
  EXPECT_EQ(ledger.count(), 1);
  sort(w, 0);
  const auto guard = forbid_implicit_communication();
  expect_error(ErrorKind::forbidden, "all_to_all", [&] { sort(w, 0); });
}

TEST(Guard, WhatIsAskedForPasses) {
  const Array x = lying({8, 8}, P{"data"});
  const auto guard = forbid_implicit_communication();
  CommLedger ledger;
  const Array y = device_put(with_sharding_constraint(x, P{none, "data"}), x.sharding());
  EXPECT_EQ(redistribute(y, NamedSharding(make_mesh({{"data", 4}, {"model", 2}}), P{})).to_host<float>()[0], 1);
  EXPECT_EQ(ledger.count(), 3);
  EXPECT_EQ(sum(x).item<float>(), 64);              // reads a value
  EXPECT_EQ((x + x).to_host<float>().size(), 64u);  // communicates nothing
}

TEST(Guard, WhatIsAskedForPassesOnItsWayBackToo) {
  const Array x = lying({8, 8}, P{"data"});
  const auto guard = forbid_implicit_communication();
  CommLedger ledger;
  Tape tape({x});
  const Array y = with_sharding_constraint(tape.shadows()[0], P{none, "data"});
  const Array gradient = tape.gradients(sum(with_sharding_constraint(sum(y * y), P{})))[0];
  EXPECT_EQ(gradient.to_host<float>()[0], 2);
  EXPECT_EQ(ledger.count("all_to_all"), 2);
}

TEST(Guard, AllowsAxesAndTheBackwardPass) {
  const Array x = lying({8, 8}, P{"data"}), w = lying({8, 8}, P{none, "model"});
  const auto gradient = [&](const Array& weight) {
    Tape tape({weight});
    const Array loss = mean(square(matmul(x, tape.shadows()[0])));
    tape.gradients(loss);
    return tessera::detail::finalize_result(loss);
  };
  const auto guarded = [&](CommunicationGuardOptions allowed, const Array& weight) {
    const auto guard = forbid_implicit_communication(std::move(allowed));
    gradient(weight);
  };
  expect_error(ErrorKind::forbidden, "in the backward pass", [&] { guarded({}, w); });
  expect_error(ErrorKind::forbidden, "over data", [&] { guarded({.mesh_axes = {"model"}}, w); });
  expect_error(ErrorKind::forbidden, "The scope allows \"modle\", which is not an axis of this mesh.",
               [&] { guarded({.mesh_axes = {"modle"}}, w); });
  EXPECT_NO_THROW(guarded({.backward = true}, w));
  EXPECT_NO_THROW(guarded({.mesh_axes = {"data", "model"}}, w));
  expect_error(ErrorKind::forbidden, "all_gather", [&] { guarded({.backward = true}, lying({8, 8}, P{"data"})); });
}

TEST(Guard, AnErrorInTheBackwardPassKeepsItsText) {
  const Array x = lying({8, 8}, P{"data"}), w = lying({8, 8}, P{"data"});
  const auto guard = forbid_implicit_communication({.mesh_axes = {}, .backward = false});
  const auto relaxed = [&](const Array& shadow) {
    const auto inner = allow_implicit_communication();
    return mean(square(matmul(x, shadow)));
  };
  Tape tape({w});
  const Array loss = relaxed(tape.shadows()[0]);
  CommLedger ledger;
  expect_error(ErrorKind::forbidden, "[matmul] communication_guard_test.cpp:", [&] { tape.gradients(loss); });
  EXPECT_EQ(ledger.count(), 0);
}

TEST(Guard, TheInnermostScopeCounts) {
  const Array x = lying({8, 8}, P{"data"});
  const auto gather = [&] { return softmax(sum(x, {0})); };
  const auto outer = forbid_implicit_communication();
  expect_error(ErrorKind::forbidden, "softmax", gather);
  {
    const auto inner = allow_implicit_communication();
    EXPECT_NO_THROW(gather());
    const auto innermost = forbid_implicit_communication({.mesh_axes = {"model"}});
    expect_error(ErrorKind::forbidden, "softmax", gather);
  }
  expect_error(ErrorKind::forbidden, "softmax", gather);
}

TEST(Guard, NothingMovesIfALaterStepIsForbidden) {
  const Array x = lying({8, 8}, P{"data", "model"});
  CommLedger ledger;
  const auto guard = forbid_implicit_communication({.mesh_axes = {"data"}});
  expect_error(ErrorKind::forbidden, "over model", [&] { matmul(x, softmax(lying({8, 8}, P{"data", "model"}), 1)); });
  EXPECT_EQ(ledger.bytes("all_gather", "model"), 0);
}

TEST(Budget, WarnsOnceAndNamesTheLargestContributors) {
  const Array x = lying({8, 8}, P{"data"});
  std::vector<std::string> said;
  CommBudget budget(300, {.report = [&](const std::string& text) { said.push_back(text); }});
  exp(sum(x, {0}));
  EXPECT_EQ(budget.bytes(), 32);
  EXPECT_TRUE(said.empty());
  const uint32_t line = __LINE__ + 1;
  for (int i = 0; i < 3; ++i) with_sharding_constraint(x * 1.0, P{});
  EXPECT_EQ(budget.bytes(), 32 + 3 * 256);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_EQ(said[0],
            fmt::format(
                "[CommBudget] 544 bytes a device, 300 allowed: 512 at communication_guard_test.cpp:{} (all_gather over "
                "data for with_sharding_constraint), 32 at communication_guard_test.cpp:{} (all_reduce over data for "
                "exp)",
                line, line - 4));
}

TEST(Budget, ThrowsBeforeTheCollectiveThatWouldBeTooMuch) {
  const Array x = lying({8, 8}, P{"data"});
  CommLedger ledger;
  CommBudget outer(300, {.throw_on_exceed = true});
  {
    CommBudget inner(1000, {.throw_on_exceed = true});
    with_sharding_constraint(x * 1.0, P{});
    expect_error(ErrorKind::forbidden, "[CommBudget] 512 bytes a device, 300 allowed: 256 at",
                 [&] { with_sharding_constraint(x * 1.0, P{}); });
    EXPECT_EQ(inner.bytes(), 256);
  }
  EXPECT_EQ(outer.bytes(), 256);
  EXPECT_EQ(ledger.bytes(), 256);
  expect_error(ErrorKind::invalid_argument, "-1 bytes given", [] { CommBudget(-1); });
}

}  // namespace
}  // namespace tessera::communication_guard_test
