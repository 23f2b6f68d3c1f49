// Writes an update in place, caches masks, and looks up reported numbers.
#include "optim/transform/update_step.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "optim/transform/internal.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/runtime/graph.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

MaskVector mask_vector(const Mask& mask, const nn::Leaves& params) {
  MaskVector result;
  for (const nn::Leaf& p : params) result.push_back(!p.value->is_absent() && mask(p));
  return result;
}

std::optional<double> value_of_label(const char* verb, const LabeledScalars& numbers, const std::string& label) {
  if (numbers.empty()) return std::nullopt;
  const auto as_first = [&](const auto& n) {
    const double number = n.second.read(verb), first = numbers[0].second.read(verb);
    return number == first || (std::isnan(number) && std::isnan(first));
  };
  if (label.empty() && std::all_of(numbers.begin(), numbers.end(), as_first)) return numbers[0].second.read(verb);
  std::vector<std::string> labels;
  for (const auto& [known, number] : numbers) {
    if (known == label) return number.read(verb);
    labels.push_back(fmt::format("\"{}\"", known));
  }
  fail(ErrorKind::invalid_argument, verb, "\"{}\" given, expected the label of a part that has one ({}).", label,
       fmt::join(labels, ", "));
}

namespace {

auto entry_of(LabeledScalars& numbers, const std::string& label) {
  return std::find_if(numbers.begin(), numbers.end(), [&](const auto& n) { return n.first == label; });
}

// Adds the number and returns true if it is the first of its label.
bool add(LabeledScalars& numbers, const std::string& label, const DeviceScalar& number) {
  const bool first = entry_of(numbers, label) == numbers.end();
  if (first) numbers.emplace_back(label, number);
  return first;
}

void take(LabeledScalars& numbers, const LabeledScalars& newer) {
  for (const auto& [label, number] : newer) {
    add(numbers, label, number);
    entry_of(numbers, label)->second = number.now();
  }
}

}  // namespace

void Metrics::take(const Metrics& newer) {
  detail::take(learning_rates, newer.learning_rates);
  detail::take(norms, newer.norms);
}

void check_captured(const void* model, const void* optimizer) {
  if (!is_recording() || (may_change(model) && may_change(optimizer))) return;
  fail(ErrorKind::invalid_argument, "Optimizer.update",
       "a model is updated inside a captured step that was not given it and its optimizer to change. Pass both, to a "
       "step with parameters Model& and Optimizer&: step(model, optimizer, batch).");
}

void at_each_update(std::function<void()> f) {
  if (HostWork* work = host_work())
    work->after.push_back(std::move(f));
  else
    f();
}

PendingUpdate::PendingUpdate(Arrays params, MaskCache& mask_cache)
    : params(std::move(params)), mask_cache(mask_cache), metrics(std::make_shared<Metrics>()) {
  const auto in_slots = [](const Array* x) { return tessera::detail::lies_in_slots(*x); };
  alone_ = std::make_unique<tessera::detail::ScopedIntraOpThreads>(
      std::any_of(this->params.begin(), this->params.end(), in_slots));
}
PendingUpdate::~PendingUpdate() = default;

void PendingUpdate::add(const nn::Leaves& parameters, const nn::Leaves& updates) {
  auto next = std::make_shared<std::vector<Array>>(sums(parameters, updates));
  writes.push_back([this, next] {
    for (size_t i = 0; i < next->size(); ++i)
      if (!(*next)[i].is_absent()) *params[i] = std::move((*next)[i]);
  });
}

void PendingUpdate::carry_out() {
  at::AutoGradMode off(false);
  for (const auto& prepare : preparations) prepare();
  for (const auto& write : writes) write();
  for (auto& f : commits) at_each_update(std::move(f));
}

UpdateStep UpdateStep::before() const {
  UpdateStep step = *this;
  step.is_last = false;
  return step;
}

UpdateStep UpdateStep::labeled(const std::string& name) const {
  UpdateStep step = *this;
  step.label += label.empty() ? name : "." + name;
  return step;
}

void UpdateStep::commit(std::function<void()> f) const { pending ? pending->commits.push_back(std::move(f)) : f(); }

void UpdateStep::count(int64_t& counted) const {
  commit([&counted] { ++counted; });
}

void UpdateStep::read_counts() const {
  if (gate) gate->read();
}

void UpdateStep::requires_host() const {
  refuse_in_recording("Optimizer.update", "a part of the transform counts or decides on the host");
}

std::shared_ptr<const MaskVectors> UpdateStep::masks(const void* key, const std::function<MaskVectors()>& make) const {
  if (!pending || !caches_masks) return std::make_shared<const MaskVectors>(make());
  std::shared_ptr<const MaskVectors>& known = pending->mask_cache.all[key];
  if (!known) known = std::make_shared<const MaskVectors>(make());
  return known;
}

void UpdateStep::set_to_zero(const Arrays& updates) const {
  check_constant("set_to_zero", updates);
  for (Array* u : updates) *u = in_place() ? Array() : zeros_for(*u);
}

void UpdateStep::report_learning_rate(const std::function<double()>& rate) const {
  if (!pending || !add(pending->metrics->learning_rates, label, rate())) return;
  if (HostWork* work = host_work())
    work->after.push_back([metrics = pending->metrics, entry = pending->metrics->learning_rates.size() - 1, rate] {
      metrics->learning_rates[entry].second = rate();
    });
}
void UpdateStep::report_learning_rate(const DeviceScalar& rate) const {
  if (pending) entry_of(pending->metrics->learning_rates, label)->second = rate;
}
void UpdateStep::report_norm(const DeviceScalar& norm) const {
  if (pending) add(pending->metrics->norms, label, norm);
}

}  // namespace tessera::optim::detail
