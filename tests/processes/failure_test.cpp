// If a process fails, the others end in time, and each one reports which process failed and where it waited.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "tests/examples/program.h"

namespace tessera::failure_test {
namespace {

using examples::Outcome;

struct HarmCase {
  const char* kind;
  int victim;
  std::string words;  // error message of both survivors
  // TESSERA_TIMEOUT and TESSERA_START_TIMEOUT. Short if the survivors wait for them; otherwise long enough for a
  // machine that stalls for a while or loads a program slowly.
  int timeout = 30, start_timeout = 60;
  friend std::ostream& operator<<(std::ostream& out, const HarmCase& c) { return out << c.kind << ' ' << c.victim; }
};

size_t count_of(const std::string& text, const std::string& words) {
  size_t n = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++n;
  return n;
}

// The path of the same program built for accelerators, if the environment names one.
const char* on_accelerators() { return std::getenv("TESSERA_VICTIM"); }

std::string program_of(const char* variable, const char* otherwise) {
  const char* other = std::getenv(variable);
  return other ? other : otherwise;
}

Outcome run_three(const std::string& program, int timeout, int start_timeout = 60) {
  const char* seconds = std::getenv("TESSERA_VICTIM_TIMEOUT");
  return examples::run_program(
      fmt::format("TESSERA_TIMEOUT={} TESSERA_START_TIMEOUT={} GRACE={} timeout -s KILL 120 bash {} 3 {}",
                  seconds ? seconds : std::to_string(timeout), start_timeout, 2 * timeout, TESSERA_START, program));
}

// On accelerators no connection closes when a process is killed; the survivors notice only that it is silent.
size_t times_named(const Outcome& outcome, const std::string& words) {
  const size_t end = words.find("has ended without");
  const bool may_be_silent = on_accelerators() && end != std::string::npos;
  return count_of(outcome.output, words) +
         (may_be_silent ? count_of(outcome.output, words.substr(0, end) + "has not been heard from for ") : 0);
}

class Harm : public ::testing::TestWithParam<HarmCase> {};

// A survivor that hangs is killed after two minutes, and then its message is missing.
TEST_P(Harm, EndsTheOthersWhoNameIt) {
  const HarmCase& c = GetParam();
  const std::string victim = program_of("TESSERA_VICTIM", TESSERA_VICTIM);
  const Outcome outcome = run_three(fmt::format("{} {} {}", victim, c.kind, c.victim), c.timeout, c.start_timeout);
  EXPECT_GT(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(times_named(outcome, c.words), 2u) << c.words << "\n" << outcome.output;
}

std::string waiting(const std::string& what) { return "mesh axis \"data\": process " + what; }

const std::string without_a_word = "has ended without an error message: it was killed, or it crashed. This is process";

const std::vector<HarmCase> harms{
    {"kill", 1, waiting("1 " + without_a_word)},
    {"kill", 0, waiting("0, which hosts the store of all processes, is gone. This is process")},
    {"vanish", 2, waiting("2 " + without_a_word)},
    {"abort", 2, waiting("2 " + without_a_word)},
    {"kill_with_child", 2, waiting("2 has not been heard from for "), 5},  // its child keeps the connections open
    {"stop", 2, waiting("2 has not been heard from for "), 5},
    {"stop", 0, waiting("0, which hosts the store of all processes, does not answer: it is stopped, or "), 5},
    {"throw", 1, waiting("1 has raised: the disk is full. This is process")},
    {"fail", 0, waiting("0 has ended with exit status 3. This is process")},
    {"exit", 2, waiting("2 has ended its program, while others wait for it. This is process")},
    {"hang", 1, waiting("1 has not reached it within 5.0 s; it has been computing for "), 5},
    {"never", 2, "0, 1; not seen: 2.", 5, 10},
    {"kill_beside", 1, waiting("1 " + without_a_word)},
    {"kill_at_end", 1, "[exit] process 1 " + without_a_word},
    {"stop_at_end", 1, "[exit] process 1 has not been heard from for ", 5}};

const auto name = [](const auto& c) { return fmt::format("{}_{}", c.param.kind, c.param.victim); };

INSTANTIATE_TEST_SUITE_P(All, Harm, ::testing::ValuesIn(harms), name);

// A pause shorter than TESSERA_TIMEOUT is not a failure, even of process 0, whose store does not answer meanwhile.
TEST(Pause, ShorterThanTheTimeoutEndsNothing) {
  if (on_accelerators()) GTEST_SKIP() << "the victims' program is another one";
  for (const int victim : {0, 1}) {
    const Outcome outcome = run_three(fmt::format("{} pause_long {}", TESSERA_VICTIM, victim), 30);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  }
}

// ---- failures while collectives are in flight

struct TrainingCase {
  const char *moment, *kind;
  int victim;
  std::string words;
  int prefetch_groups = 1;
  int timeout = 30;
  friend std::ostream& operator<<(std::ostream& out, const TrainingCase& c) {
    return out << c.moment << ' ' << c.kind << ' ' << c.victim << ' ' << c.prefetch_groups;
  }
};

class HarmInTraining : public ::testing::TestWithParam<TrainingCase> {};

Outcome run_training(const TrainingCase& c) {
  const std::string victim = program_of("TESSERA_TRAINING_VICTIM", TESSERA_TRAINING_VICTIM);
  return run_three(fmt::format("{} {} {} {} {}", victim, c.moment, c.kind, c.victim, c.prefetch_groups), c.timeout);
}

// Each survivor prints, for example, "after 2.6 s, 0 begun, 2 lost" after it has waited for all parameters. On
// accelerators another thread may end the process first; then nothing is printed.
void expect_in_time(const Outcome& outcome, int timeout) {
  size_t said = 0;
  for (size_t at = outcome.output.find("\nafter "); at != std::string::npos;
       at = outcome.output.find("\nafter ", at + 1)) {
    double seconds = 0;
    int begun = -1;
    std::sscanf(outcome.output.c_str() + at, "\nafter %lf s, %d begun", &seconds, &begun);
    EXPECT_LE(seconds, timeout + 5) << outcome.output;
    EXPECT_EQ(begun, 0) << outcome.output;
    ++said;
  }
  EXPECT_TRUE(said == 2 || on_accelerators()) << outcome.output;
}

TEST_P(HarmInTraining, EndsTheOthersWhoNameIt) {
  const Outcome outcome = run_training(GetParam());
  EXPECT_GT(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(times_named(outcome, GetParam().words), 2u) << GetParam().words << "\n" << outcome.output;
  expect_in_time(outcome, GetParam().timeout);
}

// The message does not depend on the number of prefetched groups; 0 is no prefetch.
std::vector<TrainingCase> training_harms() {
  const std::string silent = "has not been heard from for ", raised = "has raised: the disk is full. This is process";
  std::vector<TrainingCase> all{
      {"sums", "kill", 1, waiting("1 " + without_a_word)},  {"update", "kill", 1, waiting("1 " + without_a_word)},
      {"forward", "stop", 1, waiting("1 " + silent), 1, 5}, {"backward", "stop", 2, waiting("2 " + silent), 2, 5},
      {"update", "stop", 1, waiting("1 " + silent), 1, 5},  {"forward", "throw", 2, waiting("2 " + raised), 2},
      {"backward", "throw", 1, waiting("1 " + raised)},     {"sums", "throw", 1, waiting("1 " + raised)},
      {"update", "throw", 0, waiting("0 " + raised)}};
  for (const char* moment : {"forward", "backward"})
    for (const int prefetch : {0, 1, 2}) all.push_back({moment, "kill", 1, waiting("1 " + without_a_word), prefetch});
  return all;
}

const auto training_name = [](const auto& c) {
  return fmt::format("{}_{}_{}_{}_ahead", c.param.moment, c.param.kind, c.param.victim, c.param.prefetch_groups);
};

INSTANTIATE_TEST_SUITE_P(All, HarmInTraining, ::testing::ValuesIn(training_harms()), training_name);

// The process is stopped for less than the timeout, and then continued.
TEST(HarmInTraining, APauseIsNone) {
  for (const char* moment : {"backward", "update"}) {
    const Outcome outcome = run_training({moment, "pause", 1, "", 2, 30});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_EQ(outcome.output, "");
  }
}

TEST(ByMpiexec, AllComeToTheEnd) {
  if (!*TESSERA_MPIEXEC) GTEST_SKIP() << "there is no mpiexec";
  const Outcome outcome = examples::run_program(fmt::format("{} 3 {} none", TESSERA_MPIEXEC, TESSERA_VICTIM));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "");
}

// Each run finds its own processes: its port is derived from its launcher.
TEST(ByMpiexec, TwoRunsAtOnceDoNotMeet) {
  if (!*TESSERA_MPIEXEC) GTEST_SKIP() << "there is no mpiexec";
  const std::string one = fmt::format("{} 2 {} none 0 1000", TESSERA_MPIEXEC, TESSERA_VICTIM);
  const Outcome outcome = examples::run_program(fmt::format("{{ {} & {} && wait $!; }}", one, one));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "");
}

TEST(ByMpiexec, AFailureIsItsStatus) {
  if (!*TESSERA_MPIEXEC) GTEST_SKIP() << "there is no mpiexec";
  EXPECT_GT(examples::run_program(fmt::format("{} 2 {} fail 1", TESSERA_MPIEXEC, TESSERA_VICTIM)).exit_code, 0);
}

Outcome run_by_torchrun(const char* kind) {
  return examples::run_program(
      fmt::format("timeout -s KILL 120 bash {} 2 {} {} 1", TESSERA_START, TESSERA_VICTIM, kind));
}

TEST(Harm, ThereIsNoneWhereThreadsJoinTogether) {
  const Outcome outcome = run_by_torchrun("threads");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "");
}

TEST(Harm, AChildOfForkIsNoneOfTheProcesses) {
  const Outcome outcome = run_by_torchrun("fork");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_TRUE(
      outcome.says("mesh axis \"data\": this is a child of fork(), which is not one of the processes of the run. "
                   "Communicate in the parent, or call exec.\n"))
      << outcome.output;
}

}  // namespace
}  // namespace tessera::failure_test
