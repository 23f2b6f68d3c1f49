// A process that comes to harm ends the others in time, and each says which one it was and where they waited.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "tests/examples/program.h"

namespace tessera {
namespace {

using examples::Outcome;

struct HarmCase {
  const char* kind;
  int victim;
  std::string words;  // of the error that both survivors raise
  friend std::ostream& operator<<(std::ostream& out, const HarmCase& c) { return out << c.kind << ' ' << c.victim; }
};

size_t count_of(const std::string& text, const std::string& words) {
  size_t n = 0;
  for (size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++n;
  return n;
}

class Harm : public ::testing::TestWithParam<HarmCase> {};

Outcome run_victim(const HarmCase& c) {
  return examples::run_program(fmt::format("TESSERA_TIMEOUT=5 timeout -s KILL 60 {} 3 {} {} {}", TESSERA_MPIEXEC,
                                           TESSERA_VICTIM, c.kind, c.victim));
}

// With a timeout of 5 s; whoever hangs is ended after 60 s, and the words are not all there. MPICH's launcher now and
// then sees a dead process's connection close before it sees its end, and kills the others before they can speak,
// whatever it was told: such a run is made again.
TEST_P(Harm, EndsTheOthersWhoNameIt) {
  const HarmCase& c = GetParam();
  Outcome outcome = run_victim(c);
  for (int again = 0; again < 4 && count_of(outcome.output, c.words) < 2 &&
                      count_of(outcome.output, "YOUR APPLICATION TERMINATED");
       ++again)
    outcome = run_victim(c);
  EXPECT_GT(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(count_of(outcome.output, c.words), 2u) << c.words << "\n" << outcome.output;
}

std::string waiting(const std::string& what) { return "mesh axis \"data\": process " + what; }

INSTANTIATE_TEST_SUITE_P(
    All, Harm,
    ::testing::Values(
        HarmCase{"kill", 1, waiting("1 has ended without a word: it was killed, or it crashed. This is process")},
        HarmCase{"kill", 0, waiting("0 has ended without a word: it was killed, or it crashed. This is process")},
        HarmCase{"vanish", 2, waiting("2 has ended without a word: it was killed, or it crashed. This is process")},
        HarmCase{"abort", 2, waiting("2 has ended without a word: it was killed, or it crashed. This is process")},
        HarmCase{"stop", 2, waiting("2 has not been heard from for ")},
        HarmCase{"stop", 0, waiting("0 has not been heard from for ")},
        HarmCase{"throw", 1, waiting("1 has raised: the disk is full. This is process")},
        HarmCase{"fail", 0, waiting("0 has ended with exit status 3. This is process")},
        HarmCase{"exit", 2, waiting("2 has ended its program, while others wait for it here. This is process")},
        HarmCase{"hang", 1, waiting("1 has not come to it within 5.0 s; it is computing. This is process")},
        HarmCase{"never", 2, "of 3: not all have arrived within 5 s. Seen on this host: 0, 1; not seen: 2."},
        HarmCase{"kill_at_end", 1, "[exit] process 1 has ended without a word: it was killed, or it crashed."},
        HarmCase{"stop_at_end", 1, "[exit] process 1 has not been heard from for 4."}),
    [](const auto& c) { return fmt::format("{}_{}", c.param.kind, c.param.victim); });

TEST(Harm, ThereIsNoneWhereAllComeToTheEnd) {
  const Outcome outcome = examples::run_program(fmt::format("{} 3 {} none", TESSERA_MPIEXEC, TESSERA_VICTIM));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.output, "");
}

TEST(Launch, ThatMpiDoesNotKnowOfIsAnError) {
  const Outcome outcome = examples::run_program(
      fmt::format("RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 {} none", TESSERA_VICTIM));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.output,
            "[initialize] torchrun says that this is process 1 of 2, but no launcher of MPI has started it. CPU "
            "processes are "
            "started by the launcher of the MPI that the library was built with: mpiexec -n 2 <program>, or srun.\n");
}

}  // namespace
}  // namespace tessera
