// FailedSteps: keeps a failed step, with its batch and the state before it, so that you can run it again alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <tessera/nn/checkpoint.h>
#include <tessera/sharding/base.h>

namespace tessera::train {

// Thrown for a loss or a gradient norm that is not finite. All processes throw it together.
class NotFinite : public Error {
 public:
  explicit NotFinite(const std::string& message) : Error(ErrorKind::not_finite, message) {}
};
// Throws NotFinite unless the value is finite; `what` is its name.
void check_finite(int64_t step, const char* what, double value);
void check_step(int64_t step, double loss, double grad_norm);

class FailedSteps {
 public:
  // `arguments` is the command line of the run. If `folder` is empty, nothing is kept. Error (invalid_file): the folder
  // already has a kept step.
  FailedSteps(std::string folder, std::vector<std::string> arguments);

  bool keeps() const { return !folder_.empty(); }

  // Runs `step`, which must leave the state unchanged if it fails. If it throws an Error, saves `state()` as a
  // checkpoint with the arguments and the message, and throws the Error with the checkpoint's name appended. Several
  // processes keep a step together, so only for NotFinite: other errors may occur on one alone.
  void watch(int64_t number, const std::function<nn::NamedState()>& state, const std::function<void()>& step) const;

 private:
  // Returns a sentence with the checkpoint's name, or with the reason why there is none.
  std::string keep(int64_t number, const nn::NamedState& state, const std::string& error) const;

  std::string folder_;
  std::vector<std::string> arguments_;
};

// The number and the error message of a kept step, which are saved with its arrays.
struct KeptStep {
  int64_t number = 0;
  std::string error = {};
  std::vector<std::string> arguments = {};
};
// Reads a kept step. Error (invalid_file): the folder has none.
KeptStep read_kept_step(const std::string& folder);

}  // namespace tessera::train
