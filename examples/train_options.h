// The command line of train_transformer: what it may say, and what that stands for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/metrics.h"
#include "examples/transformer.h"
#include "sharding/error.h"
#include "sharding/layout.h"
#include "sharding/mesh.h"

namespace tessera::examples {

struct TrainOptions {
  bool help = false;
  std::vector<std::string> data;  // files and folders
  MetricsFiles metrics;
  std::vector<MeshAxis> mesh;
  Rules rules;            // names every logical axis of the model
  std::string placement;  // where these two come from: "strategy 2d: ..."

  GptConfig model = {.vocab = 256, .embed = 128, .heads = 8, .layers = 4, .seq = 128, .mlp = 512};
  int64_t steps = 500;
  int64_t batch = 32;           // windows in a global batch
  double learning_rate = 2e-3;  // at its peak
  int64_t warmup = -1;          // steps; -1: a tenth of all, at most 100
  uint64_t seed = 0;            // of the parameters and of the order of the data
};

// What is wrong with a command line; the program ends with 2.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& message) : Error(ErrorKind::bad_argument, message) {}
};

// Errors: UsageError "[command line] --steps: given, expected" for unknown flags, missing values, what is no number or
// out of range, a strategy together with a mesh or rules, a rule for a name that the model does not have or to an axis
// that the mesh does not have; Error for a mesh that cannot be read.
TrainOptions parse_options(const std::vector<std::string>& arguments);

// All flags with their defaults.
std::string usage();

// batch=data,heads=model and so on; the replicated names are left out.
std::string to_flag(const Rules& rules);

}  // namespace tessera::examples
