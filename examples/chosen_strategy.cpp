// Loads or measures the hardware's speeds, and turns the result of the search into command-line options.
#include "examples/chosen_strategy.h"

#include <filesystem>
#include <iostream>

#include <tessera/sharding/runtime.h>

#include "examples/transformer.h"

namespace tessera::examples {
namespace {

nn::Hardware hardware_of(const TrainOptions& options) {
  const std::filesystem::path file = options.automatic.hardware;
  if (file.empty()) return {};
  // Either all processes measure or none does.
  if (!any_process(!exists(file))) return nn::load_hardware(file);
  const Mesh mesh = make_mesh({{"data", options.automatic.devices}});
  const nn::Hardware hardware = nn::measure_hardware(mesh, {.dtype = options.step.precision});
  nn::save_hardware(file, hardware);
  return hardware;
}

}  // namespace

void choose_strategy(const nn::PipelineStep& step, TrainOptions& options) {
  const AutoOptions& automatic = options.automatic;
  const auto found = nn::suggest_strategies(step, automatic.devices, hardware_of(options), automatic.memory,
                                            {.num_processes = process_count()});
  const nn::SuggestedStrategy& best = found.best();
  std::cout << found << std::endl;
  options.mesh = best.mesh;
  options.rules = with_all_names(best.rules);
  options.placement = "strategy auto, " + best.name;
  options.step.shard_state_over = best.gradients.shard_gradients_over;
  options.step.reshard_after_forward = best.gradients.reshard_after_forward;
  options.step.take(best.pipeline);
}

}  // namespace tessera::examples
