// Tests that the comparison of random programs detects wrong functions: each test replaces the function of one case.
#include <gtest/gtest.h>

#include "sharding/runtime/processes.h"
#include "tests/programs/draw.h"
#include "tests/programs/evaluate.h"
#include "tests/programs/print.h"

namespace tessera::programs {
namespace {

using testing::random_tensor;

int case_of(const std::string& name) {
  for (size_t i = 0; i < cases().size(); ++i)
    if (cases()[i].function.name == name) return static_cast<int>(i);
  ADD_FAILURE() << "no case " << name;
  return 0;
}

Leaf parameter(const Shape& shape, std::optional<PartitionSpec> spec, uint64_t seed = 1) {
  return {.role = Leaf::parameter, .value = random_tensor(shape, seed), .spec = std::move(spec)};
}

Program program_of(std::vector<Leaf> leaves, std::vector<Node> nodes, std::vector<MeshAxis> axes = {{"a", 2}}) {
  Program program{.axes = std::move(axes), .leaves = std::move(leaves), .weights = {7}};
  program.body.arguments = static_cast<int>(program.leaves.size());
  program.body.nodes = std::move(nodes);
  program.body.results = {program.body.arguments + static_cast<int>(program.body.nodes.size()) - 1};
  return program;
}

// Replaces the function of a validator case while the object exists.
class Planted {
 public:
  Planted(int which, std::function<Array(const std::vector<Array>&)> ours)
      : one_(const_cast<Case&>(cases()[which])), before_(one_.function.ours) {
    one_.function.ours = std::move(ours);
  }
  ~Planted() { one_.function.ours = before_; }

 private:
  Case& one_;
  std::function<Array(const std::vector<Array>&)> before_;
};

bool is_padded(const Array& x) { return x.is_committed() && testing::pads(x.sharding().spec()); }
bool is_partial(const Array& x) { return x.is_committed() && !x.sharding().spec().unreduced_axes().empty(); }

TEST(ProgramsOracle, FindsAValueThatIsWrongOnPaddedDimensions) {
  const int sine = case_of("sin");
  const Program program =
      program_of({parameter({5}, P{{"a", Uneven::pad}})}, {{.kind = Kind::call, .operands = {0}, .which = sine}});
  EXPECT_EQ(check(program), "");
  const Planted fault(sine, [](const auto& x) { return is_padded(x[0]) ? sin(x[0]) * (1 + 1e-6) : sin(x[0]); });
  EXPECT_NE(check(program).find("mesh: value"), std::string::npos);
}

TEST(ProgramsOracle, FindsAPartialSumThatIsTakenForAValue) {
  const int negated = case_of("scale");
  const Program program = program_of({parameter({4}, P{{"a"}})},
                                     {{.kind = Kind::constrain, .operands = {0}, .spec = P{none}.unreduced({"a"})},
                                      {.kind = Kind::call, .operands = {1}, .which = negated}});
  EXPECT_EQ(check(program), "");
  const Planted fault(negated, [](const auto& x) { return is_partial(x[0]) ? -2 * x[0] : -x[0]; });
  EXPECT_NE(check(program).find("mesh: gradient"), std::string::npos);
}

TEST(ProgramsOracle, FindsDropoutThatDependsOnTheSharding) {
  const int dropped = case_of("dropout");
  const Program program =
      program_of({parameter({4, 8}, P{{"a"}})}, {{.kind = Kind::call, .operands = {0}, .which = dropped}});
  EXPECT_EQ(check(program), "");
  const Planted fault(dropped, [](const auto& x) { return dropout(Key(x[0].is_committed() ? 6 : 5), x[0], 0.3); });
  EXPECT_NE(check(program), "");
}

TEST(ProgramsOracle, FindsAWrongSecondDerivative) {
  const int sine = case_of("sin");
  Node gradient{.kind = Kind::gradient, .operands = {0}};
  gradient.body = {.arguments = 1, .nodes = {{.kind = Kind::call, .operands = {0}, .which = sine}}, .results = {1}};
  const Program program = program_of({parameter({4, 8}, P{{"a"}})}, {gradient});
  EXPECT_EQ(check(program), "");
  // A function with the value and first derivative of sin, but no second derivative.
  const Planted fault(sine, [](const auto& x) {
    const Array at = stop_gradient(x[0]);
    return sin(at) + (x[0] - at) * cos(at);
  });
  EXPECT_NE(check(program).find("LibTorch"), std::string::npos);
}

TEST(ProgramsOracle, FindsAnErrorThatOnlyOneWayThrows) {
  const int sine = case_of("sin");
  const Program program =
      program_of({parameter({4}, P{{"a"}})}, {{.kind = Kind::call, .operands = {0}, .which = sine}});
  const Planted fault(sine, [](const auto& x) { return x[0].is_committed() ? reshape(x[0], {3}) : sin(x[0]); });
  EXPECT_NE(check(program).find("without a mesh: no error"), std::string::npos);
}

TEST(ProgramsOracle, FindsResultsThatDifferFromRunToRun) {
  const int sine = case_of("sin");
  const Program program =
      program_of({parameter({4}, P{{"a"}})}, {{.kind = Kind::call, .operands = {0}, .which = sine}});
  int calls = 0;
  const Planted fault(sine, [&](const auto& x) { return sin(x[0]) * (1 + 1e-14 * ++calls); });
  EXPECT_NE(check(program).find("a second run has other bits"), std::string::npos);
}

TEST(ProgramsOracle, TheSameSeedDrawsTheSameProgram) {
  for (uint64_t seed = 0; seed < 20; ++seed) EXPECT_EQ(as_cpp(draw(seed)), as_cpp(draw(seed)));
}

TEST(ProgramsOracle, AFailingProgramIsMadeSmaller) {
  const int sine = case_of("sin");
  const Planted fault(sine, [](const auto& x) { return x[0].is_committed() ? sin(x[0]) * 1.5 : sin(x[0]); });
  const auto fails = [](const Program& p) { return is_well_conditioned(p) && !check(p).empty(); };
  for (uint64_t seed = 0;; ++seed) {
    const Program program = draw(seed);
    if (count_of_nodes(program) < 6 || !fails(program)) continue;
    EXPECT_LE(count_of_nodes(minimized(program, fails)), 3) << as_cpp(program);
    break;
  }
}

}  // namespace
}  // namespace tessera::programs
