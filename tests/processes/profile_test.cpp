// A profile of several processes: one report on all of them, on one clock, with each process's waits for others.
#include "nn/report/profile.h"

#include <chrono>
#include <thread>

#include "sharding/redistribution/redistribute.h"
#include "tests/processes/ways.h"

namespace tessera::profile_test {
namespace {

using namespace tessera::testing;
using nn::ProfileBy;

TEST(ProfileOfProcesses, HasAllOfThemOnOneClock) {
  const Mesh mesh = make_mesh({{"data", process_count()}});
  const Array x = placed(random_tensor({process_count() * 2, 8}, 1), mesh, P{"data"});
  constexpr std::chrono::milliseconds pause{20};
  nn::Profile profile;
  reshard(x * 1.0, P{});  // all processes begin together
  profile.begin_step();
  for (int i = 0; i < 3; ++i) {
    if (process_index() == 0) std::this_thread::sleep_for(pause);  // the others wait for it
    reshard(x * 1.0, P{});
    profile.step();
  }
  const nn::ProfileReport report = profile.gather();
  ASSERT_EQ(std::ssize(report.processes()), process_count());
  EXPECT_EQ(report.residual_seconds(), 0);
  int64_t first = INT64_MAX, last = 0;  // the end of the first step, by the clock of process 0
  for (int p = 0; p < process_count(); ++p) {
    const nn::detail::ProcessProfile& one = report.processes()[static_cast<size_t>(p)];
    EXPECT_EQ(one.process, p);
    // All processes of this test are on one machine, and so have one clock.
    EXPECT_LE(std::abs(one.clock_ahead), one.clock_error);
    const int64_t end = one.steps[0].slices[0].end - one.clock_ahead;
    first = std::min(first, end), last = std::max(last, end);
    const nn::ProfileReport alone({one}, {});
    for (const nn::ProfileRow& row : alone.by(ProfileBy::part))
      if (row.name == "collectives" && p > 0) {
        EXPECT_GT(row.seconds, 0) << p;
      }
  }
  EXPECT_LT(last - first, std::chrono::nanoseconds(std::chrono::seconds(5)).count());  // not from each own start
  const std::string trace = report.chrome_trace();
  for (int p = 0; p < process_count(); ++p)
    EXPECT_NE(trace.find("\"process " + std::to_string(p) + "\""), std::string::npos);
}

}  // namespace
}  // namespace tessera::profile_test
