// --strategy auto of train_transformer: the library's search, as the options that a user would have given.
#pragma once

#include "examples/train_options.h"
#include "nn/report.h"

namespace tessera::examples {

// Searches the layouts of the step by options.automatic, prints what is found, and leaves the best in `options`: mesh,
// rules, shard_state and borrow_gathers. All processes call it. Errors: those of suggest_layouts, of best() and of
// load_hardware.
void choose_layout(const nn::GradientStep& step, TrainOptions& options);

}  // namespace tessera::examples
