// Saves the loader's position and the run's identity together with the arrays.
#include "examples/train/run_checkpoints.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <csignal>

#include <tessera/sharding/runtime.h>

namespace tessera::train {
namespace {

volatile std::sig_atomic_t came = 0;

void note(int) { came = 1; }

}  // namespace

StopSignal::StopSignal(int signal) : signal_(signal) {
  came = 0;
  before_ = std::signal(signal, note);
}

StopSignal::~StopSignal() { std::signal(signal_, before_); }

bool StopSignal::came_to_any() { return any_process(came); }

std::string RunIdentity::to_json() const {
  const std::string mark =
      tokens.empty() ? "" : fmt::format(R"(,"tokens":{})", boost::json::serialize(boost::json::value(tokens)));
  return fmt::format(R"({{"corpus_bytes":{},"seq":{},"seed":{}{}}})", corpus_size, seq, seed, mark);
}

RunCheckpoints::RunCheckpoints(const SaveFlags& flags, const RunIdentity& run) : flags_(flags), run_(run.to_json()) {
  if (flags.folder.empty()) return;
  if (flags.on_signal) stop_.emplace(SIGTERM);
  const auto steps = nn::checkpoint_steps(flags.folder);
  if (!steps.empty() && !flags.resume)
    fail(ErrorKind::invalid_file, "save",
         fmt::format("{}: it has a checkpoint of step {}. Give --resume to continue from it, or another folder.",
                     flags.folder, steps.back()));
  checkpoints_.emplace(flags.folder, nn::CheckpointOptions{.keep = {.latest = 2}});
}

RunCheckpoints::Place RunCheckpoints::restore(const nn::NamedState& state) const {
  if (!flags_.resume || nn::checkpoint_steps(flags_.folder).empty()) return {};
  const auto newest = nn::find_checkpoint(flags_.folder);
  auto extra = nn::read_state(newest).extra;
  const std::string saved = extra["run"];
  if (saved != run_ || !extra.contains("loader"))
    fail(ErrorKind::invalid_file, "restore",
         fmt::format("{}: it is of the run {}, this one is {}. Give the same --data, --seq and --seed.",
                     newest.string(), saved.empty() ? "\"\"" : saved, run_));
  const nn::Restored restored = nn::restore(newest, state);
  return {restored.step, data::LoaderState::from_json(extra.at("loader"))};
}

void RunCheckpoints::save(int64_t step, const nn::NamedState& state, const data::LoaderState& loader) {
  checkpoints_->save(step, state, {.extra = {{"loader", loader.to_json()}, {"run", run_}}, .metrics = {}});
}

bool RunCheckpoints::is_stopped() { return stop_ && stop_->came_to_any(); }

void RunCheckpoints::wait() {
  if (checkpoints_) checkpoints_->wait();
}

}  // namespace tessera::train
