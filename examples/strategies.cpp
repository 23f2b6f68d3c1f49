// The table of strategies, and how --help shows it.
#include "examples/strategies.h"

#include <fmt/format.h>

#include <vector>

#include "examples/flag_values.h"

namespace tessera::examples {
namespace {

constexpr Strategy strategies[] = {
    {"dp", "data=8", "", "data parallel: each device has the whole model, and its rows of the batch"},
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
     .meaning = "context parallel: the same, with keys and values that go round in a ring",
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
