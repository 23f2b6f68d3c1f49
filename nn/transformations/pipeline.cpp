// Computes the order of a stage's passes, and finds the stage of this process.
#include "nn/transformations/pipeline.h"

#include <algorithm>

#include "sharding/array/abstract_tensor.h"
#include "sharding/array/array_impl.h"
#include "sharding/redistribution/stages.h"

namespace tessera::nn {

std::string_view name_of(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::gpipe ? "gpipe" : "one_f_one_b";
}

namespace detail {

std::vector<ScheduledPass> passes_of(const PipelineOptions& options, int64_t stage, int64_t stages) {
  const int64_t n = options.num_micro_batches;
  const int64_t ahead = options.schedule == PipelineSchedule::gpipe ? n : std::min(n, stages - stage);
  std::vector<ScheduledPass> passes;
  for (int64_t i = 0; i < ahead; ++i) passes.push_back({false, i});
  for (int64_t i = 0; i < n; ++i) {
    passes.push_back({true, i});
    if (i + ahead < n) passes.push_back({false, i + ahead});
  }
  return passes;
}

ForwardScope::ForwardScope(const PipelineOptions& options)
    : forward_only_(tessera::detail::goes_forward_only(),
                    options.schedule == PipelineSchedule::one_f_one_b && options.num_micro_batches > 1) {}

// Counts stages by processes: stages within one process run in the process's own order.
std::vector<ScheduledPass> passes_of(const PipelineOptions& options, const Leaves& model) {
  if (const auto& meter = tessera::detail::current_meter()) meter->num_micro_batches = options.num_micro_batches;
  for (const Leaf& leaf : model) {
    const auto* mesh = leaf.value->is_committed() ? leaf.value->impl()->type->mesh : nullptr;
    if (!mesh || !mesh->parent) continue;
    const int64_t size = mesh->parent->axes[mesh->cut_axis].size;
    if (mesh->parent->abstract) return passes_of(options, 0, size);
    const int64_t each = mesh->parent->extent[mesh->cut_axis];
    return passes_of(options, mesh->parent->first[mesh->cut_axis] / each, size / each);
  }
  return passes_of(options, 0, 1);
}

}  // namespace detail
}  // namespace tessera::nn
