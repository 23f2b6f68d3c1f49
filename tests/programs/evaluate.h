// Runs a program in several ways, and compares the results.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/programs/program.h"

namespace tessera::programs {

// The results of one run. The gradient of a leaf without one is an undefined tensor.
struct Outcome {
  std::vector<at::Tensor> values;     // the loss of each step, the results; with `train`, the parameters
  std::vector<at::Tensor> gradients;  // gradients of the last step, by leaf
  std::string error;                  // the kind of the Error that was thrown, and its message; empty: none
  int error_kind = -1;
  std::vector<std::string> types;  // results and gradients: element type, shape and sharding
  std::string ledger;
};

// Perturbations of all values, to detect results that depend on rounding or on kinks.
enum class Noise : uint8_t {
  none,
  rounding,  // changes every computed value by about 1e-13 of itself, except short binary fractions: their sums are
             // exact
  kinks,     // changes every value by about 1e-7, so that none is exactly at a kink of a function
};

// Runs the program with LibTorch's autograd, without a mesh. Throws LibTorch's exceptions. `step`: by default the last.
Outcome by_libtorch(const Program& program, Noise noise = Noise::none, int step = -1);

enum class Where { unplaced, mesh, abstract_mesh };
using Observer = std::function<void(const Node&, const std::vector<Array>&, const std::vector<Kind>&)>;
// Runs the program with the library. Calls `observe` before each node, with its operands.
Outcome by_tessera(const Program& program, Where where, const Observer& observe = {});

// Returns the largest difference, relative to 1 + the largest expected value; 0 where both are NaN, or the same
// infinity.
double difference(const at::Tensor& got, const at::Tensor& expected);

// Compares the runs of a program. Returns the differences, one per line; "" if there are none.
std::string check(const Program& program, const Observer& observe = {});

// Returns whether LibTorch can run the program and noise does not change the result. check() needs such programs.
bool is_well_conditioned(const Program& program);

}  // namespace tessera::programs
