// Explains why value_and_grad ran out of memory, by repeating the call with arrays without data.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <future>
#include <map>
#include <numeric>

#include "nn/placement/filter_shard.h"
#include "nn/placement/memory_errors.h"
#include "nn/placement/table.h"
#include "nn/report/activation_summary.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/eval_shape.h"
#include "nn/transformations/gradient_call.h"
#include "sharding/array/abstract_tensor.h"
#include "sharding/array/out_of_memory.h"
#include "sharding/autodiff/weights/prefetch_schedule.h"
#include "sharding/base/table.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn::detail {

namespace {

using tessera::detail::FailedAllocation;
using tessera::detail::Meter;
using tessera::detail::ScopedValue;
using tessera::detail::with_commas;

// Measures the peak of a call. `fitted`: the peak before it first grew by the allocation that failed in the real call.
// The device had at least these bytes.
struct PeakMeter : Meter {
  FailedAllocation failed = {};
  std::optional<int64_t> fitted = {};

  void add(int64_t bytes, int stage) override {
    const int64_t before = peak;
    Meter::add(bytes, stage);
    if (!fitted && peak > before && failed.bytes > 0 && FailedAllocation::now(bytes) == failed) fitted = before;
  }
  // Ignores what was allocated so far and is free again: the copies that replace the arrays of the call.
  void begin() { peak = live.most(), fitted.reset(); }
};

struct Peak {
  int64_t bytes = 0;
  std::optional<int64_t> fitted = {};
};

Peak peak_of(const std::function<void()>& run, const FailedAllocation& failed = {}) {
  return tessera::detail::run_knowing_gathers([&] {
    const auto meter = std::make_shared<PeakMeter>();
    meter->failed = failed;
    const ScopedValue<std::shared_ptr<Meter>> current(tessera::detail::current_meter(), meter);
    const ScopedValue<int> stage(tessera::detail::metered_stage(), -1);
    run();
    return Peak{meter->peak, meter->fitted};
  });
}

void begin_peak() {
  if (auto* meter = dynamic_cast<PeakMeter*>(tessera::detail::current_meter().get())) meter->begin();
}

std::vector<Array*> arrays_of(const Leaves& model, const std::vector<Leaves>& arguments) {
  std::vector<Array*> all;
  for (const Leaf& leaf : model) all.push_back(leaf.value);
  for (const Leaves& argument : arguments)
    for (const Leaf& leaf : argument) all.push_back(leaf.value);
  return all;
}

void replace_by_abstract(const Leaves& model, const std::vector<Leaves>& arguments) {
  make_abstract(arrays_of(model, arguments));
  stamp_paths(model);
}

// A change of the program, and the call's peak with it.
struct Change {
  std::string text;
  int64_t bytes;
};

class Advisor {
 public:
  Advisor(const GradientCall& call, const FailedAllocation& failed)
      : call_(call), peak_(peak_of([&] { repeat(replace_by_abstract, call.options); }, failed)) {
    limit_ = peak_.fitted.value_or(peak_.bytes - std::max<int64_t>(failed.bytes, 1));
  }

  // Returns the sections about activations and changes.
  std::string text() {
    const ActivationTable activations = this->activations();
    add_zero();
    add_micro_batches();
    add_fsdp();
    add_remat(activations);
    return "Activations:\n" + activations.to_text({.depth = 2, .fold = true}) + changes();
  }

 private:
  std::vector<Array> repeat(const GradientCall::Replace& replace, const GradientOptions& options) const {
    return call_.repeat(
        [&](const Leaves& model, const std::vector<Leaves>& arguments) {
          replace(model, arguments);
          begin_peak();
        },
        options);
  }

  ActivationTable activations() const {
    std::vector<Array> abstract;
    for (const Array* x : arrays_of(call_.model, call_.arguments)) abstract.push_back(*x);
    std::vector<Array*> pointers;
    for (Array& x : abstract) pointers.push_back(&x);
    make_abstract(pointers);
    const TraceSubject subject{
        .arguments = {abstract.begin() + static_cast<int64_t>(call_.model.size()), abstract.end()}};
    return traced(subject, [&](const OnReturn&) {
      call_.repeat(
          [&](const Leaves& model, const std::vector<Leaves>& arguments) {
            auto next = abstract.begin();
            for (Array* x : arrays_of(model, arguments)) *x = *next++;
            stamp_paths(model);
          },
          call_.options);
    });
  }

  // Adds the change if the call runs with it and takes less.
  bool add(const std::string& text, const std::function<void()>& run) {
    try {
      const int64_t bytes = peak_of(run).bytes;
      if (bytes < peak_.bytes) changes_.push_back({text, bytes});
      return bytes <= limit_;
    } catch (const Error&) {  // for example, rows that the number of micro-batches does not divide
      return false;
    }
  }

  void add_zero() {
    const std::vector<std::string> axes = replicated_axes(placement_table(call_.model));
    if (axes.empty() || !call_.options.shard_gradients_over.empty() || !call_.options.reduce) return;
    GradientOptions options = call_.options;
    options.shard_gradients_over = axes;
    add(fmt::format(
            "{{.shard_gradients_over = {{\"{0}\"}}}}, with {{.shard_state_over = {{\"{0}\"}}}} of the Optimizer",
            fmt::join(axes, "\", \"")),
        [&] { repeat(replace_by_abstract, options); });
  }

  // Runs two micro-batches as accumulate_gradients does; more do not take more memory.
  void run_micro_batches(int64_t n) const {
    GradientOptions options = call_.options;
    options.reduce = false, options.shard_gradients_over.clear();
    std::vector<Array> params, batch, sums;  // the complete batch stays in memory
    const auto part = [&](int64_t i) {
      return repeat(
          [&](const Leaves& model, const std::vector<Leaves>& arguments) {
            replace_by_abstract(model, arguments);
            params = values_of(arrays_of(model, {})), batch = values_of(arrays_of({}, arguments));
            int64_t blocks = 1;
            for (const Leaves& argument : arguments) blocks = std::lcm(blocks, blocks_of_rows({argument}));
            for (const Leaves& argument : arguments) check_rows({argument}, blocks, n, "value_and_grad");
            for (const Leaves& argument : arguments) take_micro_batch(argument, blocks, i, n);
          },
          options);
    };
    sums = part(0);
    PartSums all{.losses = {zeros({}), zeros({})}, .weights = {}, .gradients = leaves_of(sums)};
    std::vector<Array> more = part(1);
    detail::add(all.gradients, leaves_of(more));
    more.clear();
    all.finish(leaves_of(params), call_.options);
  }

  // Returns the model's leaves with these values.
  Leaves leaves_of(std::vector<Array>& values) const {
    Leaves leaves = call_.model;
    for (size_t i = 0; i < leaves.size(); ++i) leaves[i].value = &values[i];
    return leaves;
  }

  // Adds the smallest number of micro-batches that fits, or the largest that divides the rows.
  void add_micro_batches() {
    constexpr int64_t most = 64;
    if (arrays_of({}, call_.arguments).empty()) return;
    for (int64_t n = 2; n <= most; n *= 2) {
      const size_t before = changes_.size();
      const bool fits = add(call_.options.reduce ? fmt::format("nn::accumulate_gradients(loss, {})", n)
                                                 : fmt::format("{} times as many micro-batches", n),
                            [&] { run_micro_batches(n); });
      if (changes_.size() == before) return;
      if (n > 2) changes_.erase(changes_.end() - 2);
      if (fits) return;
    }
  }

  void add_fsdp() {
    for (const std::string& axis : replicated_axes(placement_table(call_.model))) {
      const auto replace = [&](const Leaves& model, const std::vector<Leaves>& arguments) {
        replace_by_abstract(model, arguments);
        for (const Leaf& leaf : model) {
          if (leaf.value->is_absent()) continue;
          const auto rules = mesh_rules_of(*leaf.value);
          const MeshRules fully =
              fsdp(leaf.value->sharding().mesh(), axis, {.rules = rules ? rules->rules() : Rules{}});
          *leaf.value = place_parameter(zeros(leaf.value->shape(), leaf.value->dtype()), fully,
                                        resolve(leaf, fully).spec, leaf.path);
        }
      };
      add(fmt::format("nn::fsdp(mesh, \"{}\", {{.rules = your rules}})", axis),
          [&] { repeat(replace, call_.options); });
    }
  }

  // Estimates remat of the elements of a vector of modules: it keeps their inputs, and everything of one of them.
  void add_remat(const ActivationTable& activations) {
    struct Blocks {
      int64_t saved = 0, inputs = 0, largest = 0;
    };
    std::map<std::string, Blocks> vectors;
    for (const ActivationRow& row : activations.rows()) {
      const size_t dot = row.path.rfind('.');
      if (dot == std::string::npos || row.path.find_first_not_of("0123456789", dot + 1) != std::string::npos) continue;
      Blocks& blocks = vectors[row.path.substr(0, dot)];
      blocks.saved += row.saved_bytes;
      blocks.largest = std::max(blocks.largest, row.saved_bytes);
      for (const ModuleArray& input : row.inputs) blocks.inputs += input.bytes_per_device;
    }
    for (const auto& [path, blocks] : vectors)
      if (const int64_t less = blocks.saved - blocks.inputs - blocks.largest; less > 0)
        changes_.push_back({fmt::format("x = nn::remat({0}[i])(x) for each element of {0}", path), peak_.bytes - less});
  }

  std::string changes() const {
    constexpr size_t shown = 3;
    std::vector<Change> fit;
    for (const Change& change : changes_)
      if (change.bytes <= limit_ && fit.size() < shown) fit.push_back(change);
    std::string text = fmt::format("The call needs {} bytes on each device at its peak", with_commas(peak_.bytes));
    if (peak_.fitted) text += fmt::format(", and had at least {}", with_commas(*peak_.fitted));
    if (changes_.empty()) return text + ". No change of the call takes less. Use more devices.\n";
    text += fit.empty()    ? ". No single change fits. Combine several:\n"
            : peak_.fitted ? ". Changes that fit, the cheapest first:\n"
                           : ". Changes that take less, the cheapest first:\n";
    tessera::detail::Table table({"  change", "peak, bytes"}, "<,");
    for (const Change& change : fit.empty() ? changes_ : fit) table.add({"  " + change.text, change.bytes});
    return text + table.to_text();
  }

  const GradientCall& call_;
  Peak peak_;
  int64_t limit_ = 0;                 // the largest peak of a change that fits
  std::vector<Change> changes_ = {};  // the cheapest first
};

FailedAllocation failed_allocation() try { throw; } catch (const std::exception& error) {
  return tessera::detail::failed_allocation(error).value_or(FailedAllocation());
}

// A new thread has no observers, tapes and scopes of this thread, which the repeated calls would otherwise reach.
std::string advice(const GradientCall& call, const FailedAllocation& failed) try {
  return std::async(std::launch::async, [&] { return Advisor(call, failed).text(); }).get();
} catch (const std::exception& error) {
  return fmt::format("No forecast: {}\n", error.what());
}

}  // namespace

void rethrow_explained(const GradientCall& call) {
  const FailedAllocation failed = failed_allocation();
  rethrow_with_sections("value_and_grad", call.model, [&] {
    Leaves batch;
    for (const Leaves& argument : call.arguments) batch.insert(batch.end(), argument.begin(), argument.end());
    const std::string held = largest_arrays("Model", placement_table(call.model)) +
                             largest_arrays("Arguments of the loss", placement_table(batch));
    if (!call.repeat) return held + "For forecasts, pass a loss function that captures nothing.\n";
    return held + advice(call, failed);
  });
}

}  // namespace tessera::nn::detail
