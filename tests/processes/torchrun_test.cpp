// Processes started with only torchrun's variables: they connect through a store of process 0 or of torchrun's agent.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "sharding/base/error.h"
#include "tests/examples/program.h"

namespace tessera::torchrun_test {
namespace {

using examples::Outcome;
using examples::run_program;

// Starts n processes with these variables; each is killed after two minutes.
Outcome start(int n, const std::string& variables, const std::string& arguments) {
  return run_program(fmt::format("env {} timeout -s KILL 120 bash {} {} {} {}", variables, TESSERA_START, n,
                                 TESSERA_VICTIM, arguments));
}

// Starts a single process.
Outcome start_one(const std::string& variables) {
  return run_program(fmt::format("{} timeout -s KILL 120 {} none", variables, TESSERA_VICTIM));
}

void expect_good(const Outcome& outcome) {
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.output, "");
}

// A store like torchrun's agent opens, at a port chosen by the system.
struct Agent {
  c10d::TCPStore server{"127.0.0.1", {.port = 0, .isServer = true, .waitWorkers = false}};
  c10d::Store& store = server;
  int port() const { return server.getPort(); }
  std::string variables(int attempt) const {
    return fmt::format("MASTER_PORT={} TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RESTART_COUNT={}", port(),
                       attempt);
  }
};

TEST(Torchrun, VariablesAloneAreEnough) {
  for (const int n : {2, 4, 7}) {
    SCOPED_TRACE(n);
    expect_good(start(n, "", "none"));
  }
}

TEST(Torchrun, ItsAgentKeepsTheStore) {
  const Agent agent;
  expect_good(start(3, agent.variables(0), "none"));
  expect_good(start(3, agent.variables(0), "none"));  // the first run leaves nothing
}

TEST(Torchrun, AFailedAttemptLeavesNothingForTheNext) {
  const Agent agent;
  const Outcome failed = start(3, agent.variables(0) + " TESSERA_START_TIMEOUT=5", "never 1");
  EXPECT_GT(failed.exit_code, 0);
  expect_good(start(3, agent.variables(1), "none"));
}

TEST(Torchrun, AnAgentThatIsGoneIsNamed) {
  const Outcome outcome = start_one(
      "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=9 TORCHELASTIC_USE_AGENT_STORE=True "
      "TESSERA_START_TIMEOUT=2");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.output,
            "[initialize] process 0 of 2: not all have arrived within 2 s. No process listens at 127.0.0.1:9 "
            "(MASTER_ADDR:MASTER_PORT), where torchrun's agent should. Raise TESSERA_START_TIMEOUT if they need "
            "longer.\n");
}

TEST(Torchrun, ProcessZeroThatNeverComesIsNamed) {
  const Outcome outcome = start_one("RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=9 TESSERA_TIMEOUT=2");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.output,
            "[initialize] process 1 of 2: not all have arrived within 2 s. No process listens at 127.0.0.1:9 "
            "(MASTER_ADDR:MASTER_PORT), where process 0 should; not seen: 0. Raise TESSERA_START_TIMEOUT if they need "
            "longer.\n");
}

TEST(Torchrun, APortThatIsTakenIsAnError) {
  const Agent other;
  for (const char* host : {"127.0.0.1", "localhost", "$(hostname)"}) {
    const Outcome outcome =
        start_one(fmt::format("RANK=0 WORLD_SIZE=2 MASTER_ADDR={} MASTER_PORT={}", host, other.port()));
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_TRUE(outcome.says("[initialize] process 0 of 2 cannot open the store at ")) << outcome.output;
    EXPECT_TRUE(outcome.says(fmt::format(":{} (MASTER_ADDR:MASTER_PORT): ", other.port()))) << outcome.output;
    EXPECT_TRUE(outcome.says("ddress already in use")) << outcome.output;
    EXPECT_TRUE(outcome.says(" Give a port that is free on the machine of process 0, and that machine's name.\n"))
        << outcome.output;
  }
}

TEST(Torchrun, TwoWithOneRankAreAnError) {
  const Agent agent;
  const std::string one = fmt::format("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 TESSERA_START_TIMEOUT=10 {} {} none",
                                      agent.variables(0), TESSERA_VICTIM);
  const Outcome outcome = run_program(fmt::format("{{ {} & {}; wait; }}", one, one));
  EXPECT_TRUE(outcome.says(fmt::format(
      "[initialize] another process has already joined 127.0.0.1:{} as process 0. Give each its own RANK, and "
      "each run its own MASTER_PORT.\n",
      agent.port())))
      << outcome.output;
  EXPECT_TRUE(outcome.says(fmt::format("Seen at 127.0.0.1:{}: 0; not seen: 1.", agent.port()))) << outcome.output;
}

TEST(Torchrun, DifferentCountsAreAnError) {
  const Agent agent;
  agent.store.set("tessera/0/1/count", "3");  // as a process does that expects three
  const Outcome outcome = start(2, agent.variables(0), "none");
  EXPECT_EQ(outcome.exit_code, 1);
  for (const int process : {0, 1})
    EXPECT_TRUE(
        outcome.says(fmt::format("[initialize] process {} expects 2 processes, others expect 3. Give all the same "
                                 "WORLD_SIZE.\n",
                                 process)))
        << outcome.output;
}

TEST(Torchrun, DifferentSettingsAreAnError) {
  const Outcome outcome = run_program(fmt::format(
      "timeout -s KILL 120 bash {} 2 bash -c 'TESSERA_CHECK=$RANK exec {} none'", TESSERA_START, TESSERA_VICTIM));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(
      outcome.says("[initialize] process 0 has TESSERA_CHECK=0, process 1 has TESSERA_CHECK=1. All processes "
                   "must run the same program with the same arguments.\n"))
      << outcome.output;
}

TEST(Torchrun, WrongOrMissingVariablesAreReported) {
  const std::pair<const char*, const char*> cases[]{
      {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost",
       "[initialize] torchrun sets RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; here is RANK=1, WORLD_SIZE=2, "
       "MASTER_ADDR=localhost, and MASTER_PORT is missing. Start the program with its launcher, set what is missing, "
       "or unset the rest.\n"},
      {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=http",
       "[initialize] MASTER_PORT=\"http\", expected a number from 1 to 65535. Set it to a port that is free on the "
       "machine of process 0.\n"},
      {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=70000",
       "[initialize] MASTER_PORT=\"70000\", expected a number from 1 to 65535. Set it to a port that is free on the "
       "machine of process 0.\n"},
      {"RANK=2 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500",
       "[initialize] torchrun's RANK=2 and WORLD_SIZE=2, expected a count from 1 to 1048576 and an index below it. "
       "Start "
       "the program with its launcher, or unset both.\n"},
      {"RANK=0 WORLD_SIZE=2000000000 MASTER_ADDR=localhost MASTER_PORT=29500",
       "[initialize] torchrun's RANK=0 and WORLD_SIZE=2000000000, expected a count from 1 to 1048576 and an index "
       "below "
       "it. Start the program with its launcher, or unset both.\n"},
  };
  for (const auto& [variables, message] : cases) {
    SCOPED_TRACE(variables);
    const Outcome outcome = start_one(variables);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.output, message);
  }
}

TEST(Torchrun, ATimeoutIsATime) {
  for (const char* variable : {"TESSERA_TIMEOUT", "TESSERA_START_TIMEOUT"})
    for (const char* text : {"0", "-1", "inf", "nan", "1e18", "5s"}) {
      const Outcome outcome =
          start_one(fmt::format("RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 {}={}", variable, text));
      EXPECT_EQ(outcome.exit_code, 1);
      EXPECT_EQ(outcome.output,
                fmt::format("[initialize] {}=\"{}\", expected seconds from 0.1 to 1e8. Unset it for 60 s.\n", variable,
                            text));
    }
}

TEST(Torchrun, NothingIsThereAtOnce) {
  const Outcome outcome = start(2, "TESSERA_TIMEOUT=30", "at_once");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(outcome.says("[initialize] start_timeout = 0 ms, expected 0.1 to 1e8 seconds. Leave it out for 30 s.\n"))
      << outcome.output;
}

TEST(Torchrun, ALateProcessIsWaitedForLongerThanALostOne) {
  const Agent agent;
  const std::string each = fmt::format(
      "WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 TESSERA_TIMEOUT=3 TESSERA_START_TIMEOUT=60 {} timeout -s KILL 120 {} none",
      agent.variables(0), TESSERA_VICTIM);
  expect_good(run_program(fmt::format("{{ RANK=0 {} & sleep 5; RANK=1 {} && wait $!; }}", each, each)));
}

TEST(Torchrun, ExplicitArgumentsGoWithItsAddress) {
  const Agent agent;
  const std::string one = fmt::format("MASTER_ADDR=127.0.0.1 {} {} explicit", agent.variables(0), TESSERA_VICTIM);
  expect_good(run_program(fmt::format("{{ {} 0 & {} 1 && wait $!; }}", one, one)));
  const Outcome outcome = run_program(fmt::format("{} explicit 1", TESSERA_VICTIM));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.output,
            "[initialize] this is process 1 of 2, and the address of process 0 is not given. Give `address`, or set "
            "MASTER_ADDR "
            "and MASTER_PORT.\n");
}

}  // namespace
}  // namespace tessera::torchrun_test
