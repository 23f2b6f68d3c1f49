// Parses the values of flags; throws UsageError for values that cannot be parsed completely.
#include "examples/flag_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <optional>

#include "examples/train_options.h"

namespace tessera::examples {
namespace {

template <class T>
std::optional<T> number_in(const std::string& text) {
  T value{};
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

void refuse(const std::string& flag, const std::string& message) {
  throw UsageError(fmt::format("[command line] {}: {}", flag, message));
}

int64_t whole_number(const std::string& flag, const std::string& text, int64_t least) {
  const auto value = number_in<int64_t>(text);
  constexpr int64_t most = 1'000'000'000'000;
  if (!value || *value < least || *value > most)
    refuse(flag, fmt::format("\"{}\" given, expected a whole number from {} to {}.", text, least, most));
  return *value;
}

// Parses 4GB, 512MiB, 1000000.
int64_t bytes_of(const std::string& flag, const std::string& text) {
  constexpr std::pair<const char*, double> units[] = {{"KB", 1e3},           {"MB", 1e6},     {"GB", 1e9},
                                                      {"TB", 1e12},          {"KiB", 1024.0}, {"MiB", 1048576.0},
                                                      {"GiB", 1073741824.0}, {"", 1}};
  const auto unit =
      std::find_if(std::begin(units), std::end(units), [&](const auto& u) { return text.ends_with(u.first); });
  const auto value = number_in<double>(text.substr(0, text.size() - std::string(unit->first).size()));
  if (!value || !(*value * unit->second >= 1 && *value * unit->second < 1e18))
    refuse(flag, fmt::format("\"{}\" given, expected bytes, as in 4GB, 512MiB or 1000000.", text));
  return static_cast<int64_t>(*value * unit->second);
}

double positive_number(const std::string& flag, const std::string& text) {
  const auto value = number_in<double>(text);
  if (!value || !std::isfinite(*value) || *value <= 0)
    refuse(flag, fmt::format("\"{}\" given, expected a number above 0, as in 0.001 or 1e-3.", text));
  return *value;
}

double temperature_of(const std::string& text) {
  const auto value = number_in<double>(text);
  if (!value || !std::isfinite(*value) || *value < 0)
    refuse("--temperature", fmt::format("\"{}\" given, expected a number from 0 (no chance) up, as in 0.8.", text));
  return *value;
}

double share_of(const std::string& text) {
  const auto value = number_in<double>(text);
  if (!value || !(*value > 0 && *value <= 1))
    refuse("--top-p", fmt::format("\"{}\" given, expected a number above 0 and up to 1, as in 0.9.", text));
  return *value;
}

void refuse_name(const std::string& flag, const std::string& name, const std::vector<std::string>& known) {
  refuse(flag, fmt::format("\"{}\" given, expected one of {}.", name, fmt::join(known, ", ")));
}

std::string model_name(const std::string& name) {
  const std::vector<std::string> known = {"gpt", "llama", "mixtral"};
  if (std::find(known.begin(), known.end(), name) == known.end()) refuse_name("--model", name, known);
  return name;
}

ContextParallelism context_parallelism(const std::string& name) {
  const std::pair<const char*, ContextParallelism> known[] = {{"automatic", ContextParallelism::automatic},
                                                              {"exchange", ContextParallelism::exchange},
                                                              {"gather", ContextParallelism::gather},
                                                              {"ring", ContextParallelism::ring}};
  std::vector<std::string> names;
  for (const auto& [word, how] : known) {
    if (name == word) return how;
    names.emplace_back(word);
  }
  refuse_name("--context-parallelism", name, names);
}

nn::PipelineSchedule schedule_of(const std::string& name) {
  std::vector<std::string> known;
  for (const nn::PipelineSchedule schedule : {nn::PipelineSchedule::gpipe, nn::PipelineSchedule::one_f_one_b}) {
    if (name == nn::name_of(schedule)) return schedule;
    known.emplace_back(nn::name_of(schedule));
  }
  refuse_name("--schedule", name, known);
}

DType precision_of(const std::string& name) {
  const std::vector<std::string> known = {"float32", "bfloat16"};
  if (std::find(known.begin(), known.end(), name) == known.end()) refuse_name("--precision", name, known);
  return *dtype_of(name);
}

std::vector<std::string> split_at(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// ---- strategies

namespace {

constexpr Strategy strategies[] = {
    {"dp", "data=8", "", "data parallel: each device has a replica of the model, and its rows of the batch"},
    {.name = "zero1",
     .mesh = "data=8",
     .rules = "",
     .meaning = "data parallel, and each device keeps an eighth of the optimizer's state",
     .shard_state_over = "data"},
    {"tp", "model=8", "vocab=model,heads=model,kv_heads=model,mlp=model",
     "tensor parallel: each device has its heads, its hidden units"},
    {"fsdp", "data=8", "embed=data", "fully sharded: data parallel, and each device keeps an eighth of every matrix"},
    {"hsdp", "replica=2,data=4", "batch=replica+data,embed=data",
     "hybrid: fully sharded along data, data parallel between the two groups"},
    {"2d", "data=4,model=2", "vocab=model,heads=model,kv_heads=model,mlp=model",
     "tensor parallel along model, data parallel along data"},
    {"sp", "data=4,seq=2", "seq=seq,stream_seq=seq",
     "sequence parallel: each device has half of each sequence, exchanged for heads in attention"},
    {.name = "cp",
     .mesh = "data=4,seq=2",
     .rules = "seq=seq,stream_seq=seq",
     .meaning = "context parallel: the same, with keys and values passed around a ring",
     .context = "ring"},
    {.name = "pp",
     .mesh = "pipe=2,data=4",
     .rules = "layers=pipe",
     .meaning = "pipeline parallel: half of the layers on each of two stages, data parallel within a stage",
     .num_micro_batches = 4},
    {.name = "ep",
     .mesh = "data=8",
     .rules = "experts=data",
     .meaning = "expert parallel, of mixtral: data parallel, and each device has its experts",
     .needs_experts = true}};

std::string flag_unless_empty(const char* flag, const char* value) {
  return *value ? fmt::format(" {} {}", flag, value) : "";
}

}  // namespace

const Strategy& strategy_of(const std::string& name) {
  std::vector<std::string> known;
  for (const Strategy& strategy : strategies) {
    if (name == strategy.name) return strategy;
    known.push_back(strategy.name);
  }
  known.push_back(automatic);
  refuse_name("--strategy", name, known);
}

std::string strategies_usage() {
  std::string text;
  for (const Strategy& s : strategies)
    text +=
        fmt::format("  {:<22}{}\n  {:<22}--mesh {}{}{}{}{}\n", s.name, s.meaning, "", s.mesh,
                    flag_unless_empty("--rules", s.rules), flag_unless_empty("--shard-state-over", s.shard_state_over),
                    flag_unless_empty("--context-parallelism", s.context),
                    s.num_micro_batches > 1 ? fmt::format(" --micro-batches {}", s.num_micro_batches) : "");
  return text + fmt::format("  {:<22}the fastest that the library finds for --devices and --memory\n", automatic);
}

}  // namespace tessera::examples
