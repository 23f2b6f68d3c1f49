// Saving and going on, with the loader's place and the run's identity beside the arrays.
#include "examples/run_checkpoints.h"

#include <fmt/format.h>

namespace tessera::examples {

std::string RunIdentity::to_json() const {
  return fmt::format(R"({{"corpus_bytes":{},"seq":{},"seed":{}}})", corpus_bytes, seq, seed);
}

RunCheckpoints::RunCheckpoints(const SaveFlags& flags, const RunIdentity& run) : flags_(flags), run_(run.to_json()) {
  if (flags.folder.empty()) return;
  const auto steps = nn::checkpoint_steps(flags.folder);
  if (!steps.empty() && !flags.resume)
    fail(ErrorKind::bad_file, "save",
         fmt::format("{}: it has a checkpoint of step {}. Give --resume to go on from it, or another folder.",
                     flags.folder, steps.back()));
  checkpoints_.emplace(flags.folder, nn::CheckpointOptions{.keep = {.latest = 2}});
}

int64_t RunCheckpoints::restore(const nn::NamedState& state, Loader& loader) const {
  if (!flags_.resume || nn::checkpoint_steps(flags_.folder).empty()) return 0;
  const auto newest = nn::find_checkpoint(flags_.folder);
  auto extra = nn::read_state(newest).extra;
  const std::string saved = extra["run"];
  if (saved != run_ || !extra.contains("loader"))
    fail(ErrorKind::bad_file, "restore",
         fmt::format("{}: it is of the run {}, this one is {}. Give the same --data, --seq and --seed.",
                     newest.string(), saved, run_));
  const nn::Restored restored = nn::restore(newest, state);
  loader.restore(data::LoaderState::from_json(extra.at("loader")));
  return restored.step;
}

void RunCheckpoints::save(int64_t step, bool is_last, const nn::NamedState& state, const Loader& loader) {
  if (!checkpoints_ || (step % flags_.every && !is_last)) return;
  checkpoints_->save(step, state, {.extra = {{"loader", loader.state().to_json()}, {"run", run_}}, .metrics = {}});
}

void RunCheckpoints::wait() {
  if (checkpoints_) checkpoints_->wait();
}

}  // namespace tessera::examples
