// FailedSteps: keeps a step that failed, with its batch and the state before it, so that it can be run again alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tessera/nn/checkpoint.h>
#include <tessera/sharding/base.h>

namespace tessera::train {

// A loss, or a norm of gradients, that is not finite: the same on all processes.
class NotFinite : public Error {
 public:
  explicit NotFinite(const std::string& message) : Error(ErrorKind::not_finite, message) {}
};
// Error (NotFinite) unless the value is finite; `what` is its name.
void check_finite(int64_t step, const char* what, double value);
void check_step(int64_t step, double loss, double grad_norm);

class FailedSteps {
 public:
  // `arguments` is the command line of the run. An empty folder: nothing is kept. Error (invalid_file): a step is kept
  // there already.
  FailedSteps(std::string folder, std::vector<std::string> arguments);

  bool keeps() const { return !folder_.empty(); }

  // Runs `step`. If that throws an Error, saves `state()` as a checkpoint, with the arguments and the words of the
  // error, and throws the error with the name of the checkpoint behind it. `step` leaves the state as it was if it
  // fails. Of several processes all keep a step together, so only a NotFinite: what else fails may fail on one alone.
  void watch(int64_t number, const std::function<nn::NamedState()>& state, const std::function<void()>& step) const;

 private:
  // Returns words that say where it is, or why not.
  std::string keep(int64_t number, const nn::NamedState& state, const std::string& error) const;

  std::string folder_;
  std::vector<std::string> arguments_;
};

// What stands beside the arrays of a kept step.
struct KeptStep {
  int64_t number = 0;
  std::string error = {};
  std::vector<std::string> arguments = {};
};
// Errors (invalid_file): no step is kept there.
KeptStep read_kept_step(const std::string& folder);

}  // namespace tessera::train
