// Runs a program in several ways, and compares what they give.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/programs/program.h"

namespace tessera::programs {

// What a program gives. A leaf without a gradient has an undefined tensor.
struct Outcome {
  std::vector<at::Tensor> values;     // the loss of each step, the results, then of `train` the parameters
  std::vector<at::Tensor> gradients;  // of the last step, by leaf
  std::string error;                  // the kind of the Error that was thrown, and its message; empty: none
  int error_kind = -1;
  std::vector<std::string> types;  // of results and gradients: element type, shape and sharding
  std::string ledger;
};

// Changes of values that show on what a result depends.
enum class Noise : uint8_t {
  none,
  rounding,  // every computed value by about 1e-13 of itself, if it is not a short binary fraction: sums of those are
             // exact
  kinks,     // every value by about 1e-7, so that none is where a function has a kink
};

// By LibTorch's autograd, which knows no mesh. Throws what LibTorch throws.
// `step`: by default the last.
Outcome by_libtorch(const Program& program, Noise noise = Noise::none, int step = -1);

enum class Where { unplaced, mesh, abstract_mesh };
using Observer = std::function<void(const Node&, const std::vector<Array>&, const std::vector<Kind>&)>;
// By the library. `observe` is called before each node with its operands.
Outcome by_tessera(const Program& program, Where where, const Observer& observe = {});

// The largest difference, relative to 1 + the largest expected value; 0 where both are NaN, or the same infinity.
double difference(const at::Tensor& got, const at::Tensor& expected);

// What is wrong with a program; empty: nothing. Each line is one fault.
std::string check(const Program& program, const Observer& observe = {});

// Whether LibTorch computes it, and to the same result with noise: what check() needs of a program.
bool is_well_conditioned(const Program& program);

}  // namespace tessera::programs
