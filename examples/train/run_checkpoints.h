// RunCheckpoints: saves a training run and resumes it; StopSignal: ends a run between two steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/data/loader.h>
#include <tessera/nn/checkpoint.h>

namespace tessera::train {

// Records a signal instead of its default action while the object lives. Only one object may exist at a time.
class StopSignal {
 public:
  explicit StopSignal(int signal);
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Returns whether this process or another process of the program received the signal. All processes must call it
  // together.
  bool came_to_any();

 private:
  int signal_;
  void (*before_)(int);
};

struct SaveFlags {
  std::string folder;      // empty: nothing is saved
  int64_t every = -1;      // in steps; -1: a tenth of all
  bool resume = false;     // from the newest checkpoint in the folder
  bool on_signal = false;  // SIGTERM saves and ends the training
};

// Must be equal when a run resumes, because a loader's position is meaningless in other data.
struct RunIdentity {
  int64_t corpus_size = 0, seq = 0;
  uint64_t seed = 0;
  std::string tokens = {};  // a hash of the tokenizer and its options; empty for bytes

  std::string to_json() const;
};

class RunCheckpoints {
 public:
  // Errors: as Checkpointer; invalid_file: the folder has checkpoints, and the run does not resume.
  RunCheckpoints(const SaveFlags& flags, const RunIdentity& run);

  // Restores model, optimizer and loader from the newest checkpoint, with their present meshes and shardings. Returns
  // the number of steps done. If there is no checkpoint or the run does not resume, changes nothing and returns 0.
  // Errors: as nn::restore; a checkpoint of another run (invalid_file).
  template <class Batch>
  int64_t restore(const nn::NamedState& state, data::Loader<Batch>& loader) const {
    const auto [step, place] = restore(state);
    if (place) loader.restore(*place);
    return step;
  }

  // Returns whether to save after this step: because it is time, or because the caller `must`.
  bool is_due(int64_t step, bool must) const { return checkpoints_ && (must || step % flags_.every == 0); }
  // Saves in the background.
  void save(int64_t step, const nn::NamedState& state, const data::LoaderState& loader);

  // Returns whether any process received SIGTERM, if the flags request a check. All processes must call it together.
  bool is_stopped();

  // Waits until all checkpoints are saved.
  void wait();

 private:
  struct Place {
    int64_t step = 0;
    std::optional<data::LoaderState> loader = {};
  };
  Place restore(const nn::NamedState& state) const;

  SaveFlags flags_;
  std::string run_;
  std::optional<nn::Checkpointer> checkpoints_;
  std::optional<StopSignal> stop_;
};

}  // namespace tessera::train
