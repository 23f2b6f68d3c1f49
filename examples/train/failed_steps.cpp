// Keeps a failed step as a checkpoint of state and batch, with the command line and the error message.
#include "examples/train/failed_steps.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <string_view>

#include <tessera/sharding/runtime.h>

namespace tessera::train {
namespace {

// Flags that a kept step may have under former names.
const std::map<std::string_view, const char*> renamed_flags = {{"--captured", "--graphed-step"},
                                                               {"--keep-gathers", "--no-reshard-after-forward"},
                                                               {"--prefetch", "--prefetch-groups"},
                                                               {"--shard-state", "--shard-state-over"}};

}  // namespace

void check_finite(int64_t step, const char* what, double value) {
  if (std::isfinite(value)) return;
  throw NotFinite(fmt::format(
      "[train] step {}: the {} is {}, expected a finite number. Lower --lr or raise --warmup; TESSERA_CHECK_FINITE=1 "
      "finds the operation.",
      step, what, std::abs(value)));
}

void check_step(int64_t step, double loss, double grad_norm) {
  check_finite(step, "loss", loss);
  check_finite(step, "norm of the gradient", grad_norm);
}

FailedSteps::FailedSteps(std::string folder, std::vector<std::string> arguments)
    : folder_(std::move(folder)), arguments_(std::move(arguments)) {
  if (!keeps()) return;
  for (std::filesystem::path above = folder_; !above.empty(); above = above.parent_path()) {
    if (std::filesystem::exists(above) && !std::filesystem::is_directory(above))
      fail(ErrorKind::invalid_file, "keep_failed_step",
           fmt::format("{}: {} is not a folder. Give another.", folder_, above.string()));
    if (above == above.parent_path()) break;
  }
  if (const auto steps = nn::checkpoint_steps(folder_); !steps.empty())
    fail(
        ErrorKind::invalid_file, "keep_failed_step",
        fmt::format("{}: step {} is kept there. Run it with --replay, or give another folder.", folder_, steps.back()));
}

void FailedSteps::watch(int64_t number, const std::function<nn::NamedState()>& state,
                        const std::function<void()>& step) const {
  try {
    step();
  } catch (const Error& error) {
    const bool fails_everywhere = process_count() == 1 || dynamic_cast<const NotFinite*>(&error);
    if (!keeps() || !fails_everywhere) throw;
    throw Error(error.kind(), fmt::format("{} {}", error.what(), keep(number, state(), error.what())));
  }
}

std::string FailedSteps::keep(int64_t number, const nn::NamedState& state, const std::string& error) const try {
  const boost::json::array arguments(arguments_.begin(), arguments_.end());
  nn::save(folder_, number, state,
           {.extra = {{"error", boost::json::serialize(boost::json::value(error))},
                      {"arguments", boost::json::serialize(arguments)}}});
  return fmt::format("The step is kept: --replay {}", folder_);
} catch (const Error& refusal) {
  return fmt::format("The step could not be kept: {}", refusal.what());
}

KeptStep read_kept_step(const std::string& folder) {
  const auto path = nn::find_checkpoint(folder, "replay");
  const nn::SavedState saved = nn::read_state(path);
  if (!saved.extra.contains("arguments") || !saved.extra.contains("error"))
    fail(ErrorKind::invalid_file, "replay",
         fmt::format("{}: it is a checkpoint, but not of a failed step. Give a folder of --keep-failed-step.", folder));
  KeptStep kept{.number = nn::read_manifest(path).step,
                .error = boost::json::parse(saved.extra.at("error")).as_string().c_str()};
  const boost::json::value arguments = boost::json::parse(saved.extra.at("arguments"));
  for (const boost::json::value& argument : arguments.as_array()) {
    const auto renamed = renamed_flags.find(std::string_view(argument.as_string()));
    kept.arguments.emplace_back(renamed == renamed_flags.end() ? argument.as_string() : renamed->second);
  }
  return kept;
}

}  // namespace tessera::train
