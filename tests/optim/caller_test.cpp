// The user's line that an optimizer's communication is attributed to.
#include "sharding/base/caller.h"

#include <set>

#include "nn/layers/linear.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/accounting/ledger.h"
#include "sharding/redistribution/device_put.h"
#include "tests/optim/support.h"

namespace tessera::optim::caller_test {
namespace {

using nn::Linear;

Linear model() {
  const NamedSharding rows(make_mesh({{"data", 4}}), P{"data"});
  Linear linear = Linear::init(Key(0), {"in", 8}, {"out", 8});
  linear.kernel.value = place_parameter(linear.kernel.value, rows, "kernel");
  linear.bias->value = place_parameter(linear.bias->value, NamedSharding(rows.mesh(), P{}), "bias");
  return linear;
}

std::set<uint32_t> lines_of(const CommLedger& ledger) {
  std::set<uint32_t> lines;
  for (const CommRecord& r : ledger.records())
    lines.insert(std::string(r.where.file_name()).ends_with("optim/caller_test.cpp") ? r.where.line() : 0);
  return lines;
}

Array loss_of(const Linear& m, const Array& x) { return mean(square(m(x))); }

TEST(Caller, OfAnUpdateIsTheUpdatesLine) {
  Linear linear = model();
  const Array x = device_put(ones({8, 8}), NamedSharding(make_mesh({{"data", 4}}), P{"data"}));
  for (const bool sharded : {false, true})
    for (const bool fused : {false, true}) {
      SCOPED_TRACE(std::string(sharded ? "sharded state" : "state beside") + (fused ? ", fused" : ""));
      const auto grads = nn::value_and_grad(loss_of, {.reduce = false})(linear, x).second;
      OptimizerOptions options;
      if (sharded) options.shard_state_over = {"data"};
      CommLedger ledger;
      uint32_t line = 0;
      if (fused) {
        auto optimizer = Optimizer(linear, chain(clip_by_global_norm(1.0), adamw({.learning_rate = 0.1})), options);
        ledger.clear();
        line = __LINE__ + 1;
        optimizer.update(linear, grads);
      } else {
        auto optimizer = Optimizer(linear, chain(clip_by_global_norm(1.0), sgd({.learning_rate = 0.1})), options);
        ledger.clear();
        line = __LINE__ + 1;
        optimizer.update(linear, grads);
      }
      EXPECT_GE(ledger.count(), 2);
      EXPECT_EQ(lines_of(ledger), std::set<uint32_t>{line});
    }
}

TEST(Caller, OfTheAlgebraIsTheCall) {
  const Linear linear = model();
  const auto transform = chain(clip_by_global_norm(1.0), scale(-1));
  CommLedger ledger;
  const uint32_t line = __LINE__ + 1;
  const auto [updates, state] = transform.update(linear, transform.init(linear), linear);
  EXPECT_EQ(lines_of(ledger), std::set<uint32_t>{line});
  ledger.clear();
  const uint32_t norm = __LINE__ + 1;
  global_norm(linear);
  EXPECT_EQ(lines_of(ledger), std::set<uint32_t>{norm});
}

}  // namespace
}  // namespace tessera::optim::caller_test
