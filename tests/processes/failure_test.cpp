// A process that comes to harm ends the others in time, and each says which one it was and where they waited.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "tests/examples/program.h"

namespace tessera {
namespace {

using examples::Outcome;

struct HarmCase {
  const char* kind;
  int victim;
  std::string words;  // of the error that both survivors raise
  // TESSERA_TIMEOUT and TESSERA_START_TIMEOUT: short where the others wait them out, and else so long that a machine
  // which stands still for a while, or loads a program slowly, changes nothing.
  int timeout = 30, start_timeout = 60;
  const char* launcher = "mpiexec";  // or torchrun: its variables alone
  friend std::ostream& operator<<(std::ostream& out, const HarmCase& c) { return out << c.kind << ' ' << c.victim; }
};

size_t count_of(const std::string& text, const std::string& words) {
  size_t n = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++n;
  return n;
}

class Harm : public ::testing::TestWithParam<HarmCase> {};

Outcome run_victim(const HarmCase& c) {
  const char* other = std::getenv("TESSERA_VICTIM");  // the same on accelerators
  const char* launcher = c.launcher == std::string("mpiexec") ? TESSERA_MPIEXEC : "bash " TESSERA_START;
  return examples::run_program(
      fmt::format("TESSERA_TIMEOUT={} TESSERA_START_TIMEOUT={} timeout -s KILL 120 {} 3 {} {} {}", c.timeout,
                  c.start_timeout, launcher, other ? other : TESSERA_VICTIM, c.kind, c.victim));
}

// Whoever hangs is ended after two minutes, and the words are not all there. MPICH's launcher now and then sees a dead
// process's connection close before it sees its end, and kills the others before they can speak, whatever it was told:
// such a run is made again.
TEST_P(Harm, EndsTheOthersWhoNameIt) {
  const HarmCase& c = GetParam();
  if (c.launcher == std::string("mpiexec") && !*TESSERA_MPIEXEC) GTEST_SKIP() << "built without MPI";
  Outcome outcome = run_victim(c);
  for (int again = 0;
       again < 20 && count_of(outcome.output, c.words) < 2 && count_of(outcome.output, "YOUR APPLICATION TERMINATED");
       ++again)
    outcome = run_victim(c);
  EXPECT_GT(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(count_of(outcome.output, c.words), 2u) << c.words << "\n" << outcome.output;
}

std::string waiting(const std::string& what) { return "mesh axis \"data\": process " + what; }

const std::vector<HarmCase> harms{
    {"kill", 1, waiting("1 has ended without a word: it was killed, or it crashed. This is process")},
    {"kill", 0, waiting("0 has ended without a word: it was killed, or it crashed. This is process")},
    {"vanish", 2, waiting("2 has ended without a word: it was killed, or it crashed. This is process")},
    {"abort", 2, waiting("2 has ended without a word: it was killed, or it crashed. This is process")},
    {"kill_with_child", 2, waiting("2 has ended without a word: it was killed, or it crashed. This is process")},
    {"stop", 2, waiting("2 has not been heard from for "), 5},
    {"stop", 0, waiting("0 has not been heard from for "), 5},
    {"throw", 1, waiting("1 has raised: the disk is full. This is process")},
    {"fail", 0, waiting("0 has ended with exit status 3. This is process")},
    {"exit", 2, waiting("2 has ended its program, while others wait for it here. This is process")},
    {"hang", 1, waiting("1 has not come to it within 5.0 s; it is computing. This is process"), 5},
    {"never", 2, "0, 1; not seen: 2.", 5, 10},
    {"kill_beside", 1, waiting("1 has ended without a word: it was killed, or it crashed. This is process")},
    {"kill_at_end", 1, "[exit] process 1 has ended without a word: it was killed, or it crashed."},
    {"stop_at_end", 1, "[exit] process 1 has not been heard from for 4.", 5}};

std::vector<HarmCase> started_by(const char* launcher) {
  std::vector<HarmCase> cases = harms;
  for (HarmCase& c : cases) c.launcher = launcher;
  return cases;
}

const auto name = [](const auto& c) { return fmt::format("{}_{}", c.param.kind, c.param.victim); };

INSTANTIATE_TEST_SUITE_P(ByMpiexec, Harm, ::testing::ValuesIn(started_by("mpiexec")), name);
INSTANTIATE_TEST_SUITE_P(ByTorchrun, Harm, ::testing::ValuesIn(started_by("torchrun")), name);

TEST(Harm, ThereIsNoneWhereAllComeToTheEnd) {
  if (!*TESSERA_MPIEXEC) GTEST_SKIP() << "built without MPI";
  const Outcome outcome = examples::run_program(fmt::format("{} 3 {} none", TESSERA_MPIEXEC, TESSERA_VICTIM));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "");
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
      outcome.says("mesh axis \"data\": this is a child of fork(), which is none of the processes. Communicate "
                   "in the parent, or call exec.\n"))
      << outcome.output;
}

TEST(Launch, ThatMpiDoesNotKnowOfIsAnError) {
  if (!*TESSERA_MPIEXEC) GTEST_SKIP() << "built without MPI";
  const Outcome outcome =
      examples::run_program(fmt::format("SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_NTASKS=2 {} none", TESSERA_VICTIM));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(outcome.output.starts_with("[initialize] Slurm says that this is process 1 of 2, but for "))
      << outcome.output;
  EXPECT_TRUE(outcome.says(
      " it is process 0 of 1. Start it by the launcher of the MPI that the library was built with (mpiexec -n 2 "
      "<program>, or srun), or by torchrun's variables.\n"))
      << outcome.output;
}

}  // namespace
}  // namespace tessera
