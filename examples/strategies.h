// The strategies of train_transformer by name, in the words of its command line.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::examples {

// The values of the flags --mesh, --rules, --shard-state-over, --context-parallelism and --micro-batches.
struct Strategy {
  const char *name, *mesh, *rules, *meaning;
  const char *shard_state_over = "", *context = "";
  int64_t num_micro_batches = 1;
  bool needs_experts = false;
};

// Stands for a search in place of a strategy.
constexpr const char* automatic = "auto";

// Error (UsageError): another name.
const Strategy& strategy_of(const std::string& name);

// Each by name, what it means, and the flags that it stands for.
std::string strategies_usage();

}  // namespace tessera::examples
