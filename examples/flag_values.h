// Parses values of flags: numbers, bytes, names, lists and strategies.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/nn/models.h>
#include <tessera/nn/transformations.h>

namespace tessera::examples {

// Throws UsageError "[command line] --steps: message".
[[noreturn]] void refuse(const std::string& flag, const std::string& message);
[[noreturn]] void refuse_name(const std::string& flag, const std::string& name, const std::vector<std::string>& known);

// Throw UsageError if the text has another form.
int64_t whole_number(const std::string& flag, const std::string& text, int64_t least);
int64_t bytes_of(const std::string& flag, const std::string& text);  // 4GB, 512MiB, 1000000
double positive_number(const std::string& flag, const std::string& text);
double temperature_of(const std::string& text);
double share_of(const std::string& text);
std::string model_name(const std::string& name);
ContextParallelism context_parallelism(const std::string& name);
nn::PipelineSchedule schedule_of(const std::string& name);
DType precision_of(const std::string& name);

// Splits "a,b" at ',' into a and b.
std::vector<std::string> split_at(const std::string& text, char separator);

// A named strategy: the values of --mesh, --rules, --shard-state-over, --context-parallelism and --micro-batches.
struct Strategy {
  const char *name, *mesh, *rules, *meaning;
  const char *shard_state_over = "", *context = "";
  int64_t num_micro_batches = 1;
  bool needs_experts = false;
};

// The name that requests a search for a strategy.
constexpr const char* automatic = "auto";

// Throws UsageError for an unknown name.
const Strategy& strategy_of(const std::string& name);

// Returns each strategy by name, with its meaning and its flags, for --help.
std::string strategies_usage();

}  // namespace tessera::examples
