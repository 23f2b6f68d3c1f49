// Runs one forward and backward pass for a list of parameters, and records its communication.
#pragma once

#include <map>

#include "tests/sharding/law.h"

namespace tessera::testing {

using Model = std::function<Array(const std::vector<Array>&)>;

struct Step {
  std::vector<Array> gradients;
  at::Tensor loss;
  std::string communication;  // "kind axes bytes" of each collective, sorted; "<" marks the backward pass
};

inline std::string summary(const CommLedger& ledger) {
  std::map<std::string, int> lines;
  for (const CommRecord& r : ledger.records())
    ++lines[fmt::format("{}{} {} {}", r.backward ? "<" : "", r.kind, r.mesh_axes, r.bytes)];
  std::vector<std::string> parts;
  for (const auto& [line, n] : lines) parts.push_back(n == 1 ? line : fmt::format("{} x{}", line, n));
  return fmt::format("{}", fmt::join(parts, "; "));
}

inline Step step(const std::vector<Array>& parameters, const Model& model, const GradientOptions& options = {}) {
  CommLedger ledger;
  Step result;
  {
    Tape tape(parameters, options);
    const Array loss = model(tape.shadows());
    result.gradients = tape.gradients(loss);
    result.loss = to_tensor(tessera::detail::finalize_result(loss));
  }
  result.communication = summary(ledger);
  return result;
}

// Returns the weights of two blocks x + gelu(x up + bias) down, with 8 features in x and 16 in the middle.
inline std::vector<Array> block_weights(Mesh mesh, const PartitionSpec& up, const PartitionSpec& bias,
                                        const PartitionSpec& down) {
  std::vector<Array> w;
  for (int i = 0; i < 2; ++i) {
    w.push_back(placed(random_tensor({8, 16}, 10 + i), mesh, up));
    w.push_back(placed(random_tensor({16}, 20 + i), mesh, bias));
    w.push_back(placed(random_tensor({16, 8}, 30 + i), mesh, down));
  }
  return w;
}

// Returns whether losses and gradients are bitwise equal.
inline bool are_equal(const Step& a, const Step& b) {
  bool equal = at::equal(a.loss, b.loss) && a.gradients.size() == b.gradients.size();
  for (size_t i = 0; equal && i < a.gradients.size(); ++i)
    equal = at::equal(to_tensor(a.gradients[i]), to_tensor(b.gradients[i]));
  return equal;
}

// Returns the largest difference between losses and gradients.
inline double difference(const Step& a, const Step& b) {
  double most = difference(a.loss, b.loss);
  for (size_t i = 0; i < a.gradients.size(); ++i)
    most = std::max(most, difference(to_tensor(a.gradients[i]), to_tensor(b.gradients[i])));
  return most;
}

}  // namespace tessera::testing
