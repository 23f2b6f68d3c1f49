// Runs distributed_arrays and compares the printed numbers with JAX's tutorial of the same title.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/examples/program.h"

namespace tessera::examples::distributed_arrays_test {
namespace {

// The numbers after "name: float32[32@x]", with or without brackets, up to the next word.
std::vector<double> numbers_of(const std::string& output, const std::string& name) {
  const size_t at = output.find("\n" + name + ": ");
  if (at == std::string::npos) return {};
  const size_t begin = output.find(']', at) + 1;
  std::vector<double> numbers;
  for (const char* p = output.c_str() + begin; *p && !std::isalpha(static_cast<unsigned char>(*p));) {
    char* end = nullptr;
    const double value = std::strtod(p, &end);
    if (end == p) {
      ++p;
    } else {
      numbers.push_back(value);
      p = end;
    }
  }
  return numbers;
}

struct Line {
  const char* name;
  std::vector<double> numbers;  // as the document prints them
  double tolerance = 5e-7;
};

const std::vector<double> waves{1.,        2.682942,    2.818595,    1.28224,     -0.513605,   -0.9178486,  0.44116896,
                                2.3139732, 2.9787164,   1.824237,    -0.08804226, -0.99998045, -0.07314599, 1.8403342,
                                2.9812148, 2.3005757,   0.42419332,  -0.92279506, -0.50197446, 1.2997544,   2.8258905,
                                2.6733112, 0.98229736,  -0.69244075, -0.81115675, 0.7352965,   2.525117,    2.912752,
                                1.5418116, -0.32726777, -0.97606325, 0.19192469};
const std::vector<double> sums{48, 52, 56, 60, 64, 68, 72, 76};
// The document's output for the first two variants. Its third number is 4.7e-7 from exact arithmetic, 0.59891958.
const std::vector<double> activations{0.02138912, 0.893112, 0.59892005, 0.97742504};

const Line lines[] = {{"2 sin(x) + 1", waves},
                      {"sum over dim 0", sums},
                      {"fully sharded", sums},
                      {"by shard_map", waves},
                      {"a sum of each shard", {6, 22, 38, 54, 70, 86, 102, 118}},
                      {"their sum", {496}},
                      {"layer", activations, 5e-7},
                      {"layer of sharded inputs", activations, 5e-7},
                      {"layer_auto", activations, 5e-7},
                      {"layer_sharded", activations, 5e-7}};

TEST(DistributedArrays, PrintsTheNumbersOfItsDocument) {
  const Outcome outcome = run_program(TESSERA_DISTRIBUTED_ARRAYS);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const Line& line : lines) {
    const std::vector<double> got = numbers_of(outcome.output, line.name);
    ASSERT_EQ(got.size(), line.numbers.size()) << line.name << "\n" << outcome.output;
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], line.numbers[i], line.tolerance) << line.name << " " << i;
  }
}

TEST(DistributedArrays, ShowsTheBlocksOfEachDevice) {
  const Outcome outcome = run_program(TESSERA_DISTRIBUTED_ARRAYS);
  for (const char* words :
       {"SingleDeviceSharding(device=0)", "NamedSharding(mesh=Mesh('x': 2, 'y': 4), spec=P('x', 'y'))",
        "shardings match: true", "global shape: (32)", "device local shape: (4)", "CPU 0,6", "CPU 3,5"})
    EXPECT_TRUE(outcome.says(words)) << words << "\n" << outcome.output;
}

}  // namespace
}  // namespace tessera::examples::distributed_arrays_test
