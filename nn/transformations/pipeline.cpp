// Computes the order of a stage's passes, finds the stages of this process, and runs the passes.
#include "nn/transformations/pipeline.h"

#include <algorithm>

#include "nn/transformations/pass_thread.h"
#include "sharding/array/abstract_tensor.h"
#include "sharding/array/array_impl.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/environment.h"
#include "sharding/base/fail.h"
#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/stages.h"

namespace tessera::nn {

std::string_view name_of(PipelineSchedule schedule) {
  if (schedule == PipelineSchedule::interleaved) return "interleaved";
  return schedule == PipelineSchedule::gpipe ? "gpipe" : "one_f_one_b";
}

namespace detail {

using tessera::detail::VirtualStageWalk;

namespace {

// Returns pass `k` of one direction. The micro-batches pass in groups, one micro-batch per stage: a group passes over
// the first virtual stage of each stage, then over the second one, and so on, and backward in reverse.
ScheduledPass interleaved_pass(int64_t k, bool is_backward, int64_t num_virtual_stages, int64_t stages) {
  const int64_t group = k / (stages * num_virtual_stages), turn = k / stages % num_virtual_stages;
  return {is_backward, group * stages + k % stages, is_backward ? num_virtual_stages - 1 - turn : turn};
}

// Returns the order of Megatron-LM's forward_backward_pipelining_with_interleaving: 2 * (S - 1 - s) + (v - 1) * S
// forward passes, then one forward and one backward pass in turns.
std::vector<ScheduledPass> interleaved_passes(const PipelineOptions& options, int64_t stage, int64_t stages) {
  const int64_t v = options.num_virtual_stages, n = options.num_micro_batches * v;
  const int64_t ahead = std::min(n, 2 * (stages - 1 - stage) + (v - 1) * stages);
  std::vector<ScheduledPass> passes;
  for (int64_t k = 0; k < n + ahead; ++k) {
    if (k < n) passes.push_back(interleaved_pass(k, false, v, stages));
    if (k >= ahead) passes.push_back(interleaved_pass(k - ahead, true, v, stages));
  }
  return passes;
}

}  // namespace

std::vector<ScheduledPass> passes_of(const PipelineOptions& options, int64_t stage, int64_t stages) {
  if (options.schedule == PipelineSchedule::interleaved) return interleaved_passes(options, stage, stages);
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

void check_options(const PipelineOptions& options) {
  check_micro_batches(options.num_micro_batches, "pipeline");
  const int64_t v = options.num_virtual_stages;
  if (v < 1) fail(ErrorKind::invalid_argument, "pipeline", "num_virtual_stages: {} given, expected 1 or more.", v);
  if (v > 1 && options.schedule != PipelineSchedule::interleaved)
    fail(ErrorKind::invalid_argument, "pipeline",
         "num_virtual_stages: {} given, but {} has no virtual stages. Use PipelineSchedule::interleaved.", v,
         name_of(options.schedule));
}

ForwardScope::ForwardScope(const PipelineOptions& options)
    : forward_only_(tessera::detail::goes_forward_only(),
                    options.schedule == PipelineSchedule::one_f_one_b && options.num_micro_batches > 1) {}

namespace {

// Returns the mesh of the first stage among these arrays; null if they are not on stages.
const tessera::detail::MeshImpl* stage_among(const Leaves& model) {
  for (const Leaf& leaf : model)
    if (const auto* mesh = leaf.value->is_committed() ? leaf.value->impl()->type->mesh : nullptr; mesh && mesh->parent)
      return mesh;
  return nullptr;
}

// Compares the replicas of arrays on all stages. The passes cannot, because stages compute different micro-batches.
void check_replicas(const Leaves& model) {
  for (const Leaf& leaf : model)
    if (leaf.value->is_committed())
      tessera::detail::check_replicas_across_processes(
          leaf.value->impl()->type, tessera::detail::materialized(*leaf.value, "pipeline").local,
          {.operation = "pipeline", .path = tessera::detail::as_text(leaf.path)});
}

// Keeps idle threads for the next step, with their caches.
std::vector<std::unique_ptr<PassThread>>& idle_threads() {
  thread_local std::vector<std::unique_ptr<PassThread>> idle;
  return idle;
}

std::unique_ptr<PassThread> take_thread() {
  if (idle_threads().empty()) return std::make_unique<PassThread>();
  std::unique_ptr<PassThread> taken = std::move(idle_threads().back());
  idle_threads().pop_back();
  return taken;
}

}  // namespace

struct PassRunner::MicroBatch {
  VirtualStageWalk walk;
  SuspensionHooks hooks;
  std::unique_ptr<PassThread> thread;  // null if the passes of this process are never suspended

  MicroBatch(const VirtualStageWalk::Stages& stages, std::unique_ptr<PassThread> in)
      : walk(stages, [this] { suspend(); }), thread(std::move(in)) {}
  void suspend() {
    if (!thread) return;
    if (hooks.before) hooks.before();
    thread->suspend();
    if (hooks.after) hooks.after();
  }
};

namespace {

// Checks what stages in one process permit, and stages in several processes do not.
void check_several_processes() {
  if (tessera::detail::has_stray_messages())
    fail(ErrorKind::inconsistent, "pipeline",
         "an exception ended an earlier step after stages in several processes had exchanged activations, so some of "
         "its messages may still arrive. Restart the processes from a checkpoint.");
  if (tessera::detail::current_tape())
    fail(ErrorKind::no_gradient, "pipeline",
         "is called inside value_and_grad, and its stages are in several processes, which return no second "
         "derivatives. Call it outside.");
}

}  // namespace

// Counts stages by processes: stages within one process run in the process's own order.
PassRunner::PassRunner(const PipelineOptions& options, const Leaves& model) : options_(options) {
  int64_t each = 1;  // stages of a process
  if (const auto* mesh = stage_among(model)) {
    const auto& whole = *mesh->parent;
    num_stages_ = whole.axes[mesh->cut_axis].size;
    if (!whole.abstract) each = whole.extent[mesh->cut_axis], first_ = whole.first[mesh->cut_axis];
    if (each < num_stages_ && !whole.abstract) check_several_processes();
    last_ = first_ + each - 1;
    if (options.schedule == PipelineSchedule::interleaved && options.num_micro_batches % num_stages_)
      fail(ErrorKind::not_divisible, "pipeline",
           "{} micro-batches are not divisible by the {} stages of mesh axis \"{}\", as interleaved expects. Change "
           "one of them.",
           options.num_micro_batches, num_stages_, whole.axes[mesh->cut_axis].name);
  }
  passes_ = passes_of(options, first_ / each, num_stages_ / each);
  micro_batches_.resize(options.num_micro_batches);
  messages_ = tessera::detail::stage_messages();
  if (tessera::detail::checks && options.schedule == PipelineSchedule::interleaved) check_replicas(model);
  if (const auto& meter = tessera::detail::current_meter())
    meter->forward_passes = options.num_micro_batches * options.num_virtual_stages;
}

PassRunner::~PassRunner() = default;

PassRunner::MicroBatch& PassRunner::micro_batch(int64_t i) {
  if (!micro_batches_[i]) {
    const bool has_all = last_ - first_ + 1 == num_stages_;
    micro_batches_[i] =
        std::make_unique<MicroBatch>(VirtualStageWalk::Stages{num_stages_, options_.num_virtual_stages, first_, last_},
                                     has_all || options_.num_virtual_stages == 1 ? nullptr : take_thread());
  }
  return *micro_batches_[i];
}

void PassRunner::run(const ScheduledPass& scheduled, std::function<void(SuspensionHooks&)> pass) try {
  run_pass(scheduled, std::move(pass));
} catch (...) {
  // All processes begin with the same pass, so an exception in it leaves no message.
  const bool is_first = scheduled == passes_.front();
  if (!is_first && tessera::detail::stage_messages() != messages_) tessera::detail::has_stray_messages() = true;
  throw;
}

void PassRunner::run_pass(const ScheduledPass& scheduled, std::function<void(SuspensionHooks&)> pass) {
  SuspensionHooks none;
  if (options_.schedule != PipelineSchedule::interleaved) return pass(none);
  MicroBatch& micro_batch = this->micro_batch(scheduled.micro_batch);
  const int64_t last = options_.num_virtual_stages - 1;
  const auto whole_pass = [&micro_batch, pass = std::move(pass), is_backward = scheduled.is_backward] {
    const tessera::detail::ScopedValue current(tessera::detail::current_walk(), &micro_batch.walk);
    pass(micro_batch.hooks);
    if (!is_backward) micro_batch.walk.end_forward();
  };
  const bool is_first = scheduled.virtual_stage == (scheduled.is_backward ? last : 0);
  PassThread* const thread = micro_batch.thread.get();
  if (is_first) {
    thread ? thread->start(whole_pass) : whole_pass();
  } else if (thread && thread->is_suspended()) {
    thread->resume();
  }
  if (!scheduled.is_backward || scheduled.virtual_stage > 0) return;
  if (thread) idle_threads().push_back(std::move(micro_batch.thread));
  micro_batches_[scheduled.micro_batch] = nullptr;
}

}  // namespace detail
}  // namespace tessera::nn
