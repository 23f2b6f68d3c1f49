// Tests that features which need a dispatcher fallback report an Error if another library has registered one.
#include <gtest/gtest.h>
#include <torch/library.h>

#include <functional>
#include <vector>

#include "sharding/array/host_sync.h"
#include "sharding/autodiff/remat.h"
#include "sharding/autodiff/tape.h"
#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"
#include "tests/sharding/expect_error.h"

TORCH_LIBRARY_IMPL(_, Fake, library) { library.fallback(torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

namespace tessera {
namespace {

using testing::expect_error;

// The gradient of sum(f(x)) for an x of ones on four devices.
Array gradient(const std::function<Array(const Array&)>& f) {
  Tape tape({device_put(ones({8}), NamedSharding(make_mesh({{"data", 4}}), P{"data"}))});
  return tape.gradients(sum(f(tape.shadows()[0])))[0];
}

TEST(RivalFallback, DoesNotAffectMeshesAndGradients) {
  EXPECT_EQ(gradient([](const Array& x) { return x * x; }).to_host<float>(), std::vector<float>(8, 2));
}

// Every call throws the error, not only the first.
TEST(RivalFallback, IsAnErrorOfTheFeatureThatNeedsTheKey) {
  const Mesh abstract = make_mesh({{"data", 4}}, {.abstract = true});
  const auto run = [](const std::vector<Array>& x) { return std::vector<Array>{x[0] * x[0]}; };
  for (int i = 0; i < 2; ++i) {
    expect_error(ErrorKind::other, {"[DetectSync] ", "dispatch key TESTING_ONLY_GenericMode", "expected none"},
                 [] { const detail::HostSyncObserver observer; });
    expect_error(ErrorKind::other, {"[abstract mesh] ", "dispatch key Fake", "expected none"},
                 [&] { device_put(ones({8}), NamedSharding(abstract, P{"data"})); });
    expect_error(ErrorKind::other, {"[remat] ", "dispatch key Fake", "expected none"},
                 [&] { gradient([&](const Array& x) { return remat(run, {x}, RematPolicy::dots_saveable)[0]; }); });
  }
  EXPECT_FALSE(detail::is_observed(detail::Events::host_syncs));
}

}  // namespace
}  // namespace tessera
