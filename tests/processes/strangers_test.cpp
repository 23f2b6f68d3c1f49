// Programs outside a run cannot end it by writing to its store, and a run on loopback is unreachable for them.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tests/examples/program.h"

namespace tessera::strangers_test {
namespace {

using examples::Outcome;
using examples::run_program;
using namespace std::chrono_literals;

int port() { return 20000 + ::getpid() % 12000; }

Outcome start(int n, const std::string& variables, const std::string& arguments) {
  return run_program(fmt::format("env MASTER_PORT={} {} timeout -s KILL 120 bash {} {} {} {}", port(), variables,
                                 TESSERA_START, n, TESSERA_VICTIM, arguments));
}

// Starts process `rank` of two.
Outcome start_one(int rank, const std::string& variables) {
  return run_program(
      fmt::format("RANK={} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={} {} timeout -s KILL 120 {} none", rank,
                  port(), variables, TESSERA_VICTIM));
}

// Waits for the store of a run, and writes to it as its processes would without a token.
void interfere() {
  c10d::TCPStore client("127.0.0.1", {.port = static_cast<uint16_t>(port())});
  c10d::Store& store = client;
  store.wait({"tessera/0/started"});
  for (const char* key : {"loss", "absent"}) store.set(fmt::format("tessera/0/1/{}", key), "\x1b]0;a stranger\a");
  store.set("tessera/0/1/beat/1", "7");
}

// Starts two processes. One is stopped for some seconds, so that the other one reads the store for its state.
Outcome run_with_a_stranger(const std::string& variables) {
  auto run = std::async(std::launch::async, [&] { return start(2, variables, "pause_long 1"); });
  interfere();
  return run.get();
}

TEST(Strangers, WithoutTheTokenDoNotEndARun) {
  const Outcome outcome = run_with_a_stranger("TESSERA_RUN_TOKEN=a-secret");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.output, "");
}

TEST(Strangers, DoNotControlTheTerminal) {
  const Outcome outcome = run_with_a_stranger("TESSERA_TIMEOUT=60");  // without a token
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(outcome.says("\\u001b]0;a stranger\\u0007")) << outcome.output;
  EXPECT_EQ(outcome.output.find_first_of("\x1b\a"), std::string::npos) << outcome.output;
}

TEST(Strangers, AnotherTokenIsAnErrorLongBeforeTheTimeout) {
  auto first = std::async(std::launch::async,
                          [] { return start_one(0, "TESSERA_RUN_TOKEN=a-secret TESSERA_START_TIMEOUT=15"); });
  for (const char* token : {"TESSERA_RUN_TOKEN=another", "TORCHELASTIC_RUN_ID=another", ""}) {
    const auto begin = std::chrono::steady_clock::now();
    const Outcome other = start_one(1, fmt::format("TESSERA_START_TIMEOUT=100 {}", token));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 50s);
    EXPECT_EQ(other.exit_code, 1);
    EXPECT_EQ(
        other.output,
        fmt::format("[initialize] process 1 of 2: process 0 at 127.0.0.1:{} (MASTER_ADDR:MASTER_PORT) has another "
                    "run token, which is TESSERA_RUN_TOKEN, else the launcher's job. Set the same "
                    "TESSERA_RUN_TOKEN for all processes of a run, and give each run its own MASTER_PORT.\n",
                    port()));
  }
  const Outcome outcome = first.get();
  EXPECT_TRUE(outcome.says(fmt::format("Seen at 127.0.0.1:{}: 0; not seen: 1.", port()))) << outcome.output;
  EXPECT_FALSE(outcome.says("a-secret")) << outcome.output;
}

// No key that a stranger can list contains the token.
TEST(Strangers, RunsOfTwoTokensShareAnAgentsStore) {
  c10d::TCPStore agent("127.0.0.1", {.port = 0, .isServer = true, .waitWorkers = false});
  const std::string variables =
      fmt::format("MASTER_PORT={} TORCHELASTIC_USE_AGENT_STORE=True TESSERA_RUN_TOKEN=", agent.getPort());
  auto one = std::async(std::launch::async, [&] { return start(2, variables + "a-secret", "none"); });
  const Outcome other = start(2, variables + "another-secret", "none");
  for (const Outcome& outcome : {one.get(), other}) {
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_EQ(outcome.output, "");
  }
  for (const std::string& key : agent.listKeys()) EXPECT_EQ(key.find("secret"), std::string::npos) << key;
}

TEST(Strangers, AnAgentsStoreWithoutProcessZeroIsReportedAsAnotherToken) {
  c10d::TCPStore agent("127.0.0.1", {.port = 0, .isServer = true, .waitWorkers = false});
  const Outcome outcome = start_one(
      1, fmt::format("MASTER_PORT={} TORCHELASTIC_USE_AGENT_STORE=True TESSERA_START_TIMEOUT=2", agent.getPort()));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(outcome.says("1; not seen: 0. Check that it has the same TESSERA_RUN_TOKEN. Raise ")) << outcome.output;
}

using Addresses = std::multiset<std::string>;

// The addresses, without ports, on which the store and each process's Gloo listen.
Addresses listeners(const std::string& host) {
  const Outcome outcome = start(2, "MASTER_ADDR=" + host, "listen");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  std::istringstream lines(outcome.output);
  Addresses addresses;
  for (std::string line; std::getline(lines, line);) addresses.insert(line.substr(0, line.find(':')));
  return addresses;
}

TEST(Strangers, DoNotReachARunOnLoopback) {
  const std::string four = "0100007F", six = "00000000000000000000000001000000";
  EXPECT_EQ(listeners("127.0.0.1"), (Addresses{four, four, four}));
  const Addresses local = listeners("localhost");
  EXPECT_EQ(local.count(four) + local.count(six), 3u);
  if (run_program("grep -q 00000000000000000000000000000001 /proc/net/if_inet6").exit_code != 0) return;
  EXPECT_EQ(listeners("::1"), (Addresses{six, six, six}));
}

TEST(Strangers, ReachOnlyTheStoreAtOtherAddresses) {
  const Outcome own = run_program("{ hostname -I | grep -o '^[0-9]*\\.[0-9.]*' | tr -d '\\n'; }");
  if (own.exit_code != 0 || own.output.empty()) GTEST_SKIP() << "this machine has no address of a network";
  const Addresses addresses = listeners(own.output);
  EXPECT_EQ(addresses.size(), 3u);
  EXPECT_EQ(addresses.count(std::string(32, '0')) + addresses.count("00000000"), 1u);
}

}  // namespace
}  // namespace tessera::strangers_test
