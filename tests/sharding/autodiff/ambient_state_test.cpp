// Thread-local state is restored after calls that throw, and is separate for each thread.
#include <stdexcept>
#include <thread>

#include "sharding/accounting/communication_event.h"
#include "sharding/accounting/forecast.h"
#include "sharding/array/abstract_tensor.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/caller.h"
#include "sharding/placement/type.h"
#include "sharding/shard_map/shard_map.h"
#include "tests/sharding/step.h"

namespace tessera::ambient_state_test {
namespace {

using namespace tessera::testing;

void expect_nothing_set() {
  EXPECT_EQ(detail::current_tape(), nullptr);
  EXPECT_EQ(detail::differentiated_tape(), nullptr);
  EXPECT_EQ(detail::manual_axes().mesh, nullptr);
  EXPECT_EQ(detail::current_module_path(), nullptr);
  EXPECT_EQ(detail::current_meter(), nullptr);
  EXPECT_EQ(detail::current_interceptor(), nullptr);
  EXPECT_FALSE(detail::is_observed(detail::Events::communication));
}

[[noreturn]] Array fails_inside() {
  const ModulePathScope path("layers.0");
  EXPECT_NE(detail::current_module_path(), nullptr);
  throw std::runtime_error("inside");
}

TEST(AmbientState, IsAsItWasAfterAFailedCall) {
  const Mesh mesh = make_mesh({{"x", 2}});
  const Array w = placed(random_tensor({4}, 1), mesh, P{"x"});
  const auto in_loss = [&] { step({w}, [](const auto&) { return fails_inside(); }); };
  const auto in_backward = [&] { step({w}, [](const auto& p) { return p[0]; }); };  // not a scalar loss
  const auto in_shard_map = [&] { shard_map([](const Array&) { return fails_inside(); }, mesh, P{"x"}, P{"x"})(w); };
  const auto in_forecast = [&] {
    const Forecast forecast;
    EXPECT_NE(detail::current_meter(), nullptr);
    fails_inside();
  };
  for (const std::function<void()>& call :
       std::initializer_list<std::function<void()>>{in_loss, in_backward, in_shard_map, in_forecast}) {
    EXPECT_ANY_THROW(call());
    expect_nothing_set();
  }
}

TEST(AmbientState, BelongsToItsThread) {
  const Forecast forecast;
  const ModulePathScope path("layers.0");
  const CommLedger ledger;
  std::thread(expect_nothing_set).join();
  EXPECT_NE(detail::current_meter(), nullptr);
}

}  // namespace
}  // namespace tessera::ambient_state_test
