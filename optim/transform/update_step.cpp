// What an update in place remembers until it writes, and what it tells.
#include "optim/transform/update_step.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "optim/transform/internal.h"
#include "optim/transform/selection.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/runtime/graph.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

std::vector<bool> taken(const Mask& mask, const nn::Leaves& params) {
  std::vector<bool> result;
  for (const nn::Leaf& p : params) result.push_back(!p.value->is_absent() && mask(p));
  return result;
}

Answers::Answers() = default;
Answers::Answers(const Answers&) {}
Answers& Answers::operator=(const Answers&) {
  all.clear();
  return *this;
}
Answers::~Answers() = default;

std::optional<double> number_of(const char* verb, const LabelledNumbers& numbers, const std::string& label) {
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

auto entry_of(LabelledNumbers& numbers, const std::string& label) {
  return std::find_if(numbers.begin(), numbers.end(), [&](const auto& n) { return n.first == label; });
}

// Whether it is the first of its label.
bool add(LabelledNumbers& numbers, const std::string& label, const LateNumber& number) {
  const bool first = entry_of(numbers, label) == numbers.end();
  if (first) numbers.emplace_back(label, number);
  return first;
}

void take(LabelledNumbers& numbers, const LabelledNumbers& newer) {
  for (const auto& [label, number] : newer) {
    add(numbers, label, number);
    entry_of(numbers, label)->second = number.now();
  }
}

}  // namespace

void Told::take(const Told& newer) {
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

PendingUpdate::PendingUpdate(Arrays params, Answers& answers)
    : params(std::move(params)), answers(answers), told(std::make_shared<Told>()) {
  const auto in_slots = [](const Array* x) { return tessera::detail::lies_in_slots(*x); };
  alone_ = std::make_unique<tessera::detail::ScopedIntraOpThreads>(
      std::any_of(this->params.begin(), this->params.end(), in_slots));
}
PendingUpdate::~PendingUpdate() = default;

void PendingUpdate::write(std::unique_ptr<Write> write) { writes.push_back(std::move(write)); }
void PendingUpdate::write(std::function<void()> f) {
  struct Call : Write {
    std::function<void()> f;
    void operator()() override { f(); }
  };
  auto call = std::make_unique<Call>();
  call->f = std::move(f);
  write(std::move(call));
}

void PendingUpdate::add(const nn::Leaves& parameters, const nn::Leaves& updates) {
  auto next = std::make_shared<std::vector<Array>>(sums(parameters, updates));
  write([this, next] {
    for (size_t i = 0; i < next->size(); ++i)
      if (!(*next)[i].is_absent()) *params[i] = std::move((*next)[i]);
  });
}

void PendingUpdate::carry_out() {
  at::AutoGradMode off(false);
  for (const auto& prepare : preparations) prepare();
  for (const auto& write : writes) (*write)();
  for (auto& f : at_each) at_each_update(std::move(f));
}

UpdateStep::UpdateStep(const ExtraArgs& extra, PendingUpdate* pending) : extra(extra), pending_(pending) {}
UpdateStep::~UpdateStep() = default;

UpdateStep UpdateStep::before() const {
  UpdateStep step = *this;
  step.last_ = false;
  return step;
}

UpdateStep UpdateStep::made_anew() const {
  UpdateStep step = *this;
  step.remembers_ = false;
  return step;
}

UpdateStep UpdateStep::labelled(const std::string& name) const {
  UpdateStep step = *this;
  step.label_ += label_.empty() ? name : "." + name;
  return step;
}

void UpdateStep::write(std::function<void()> f) const {
  if (pending_) decides();
  pending_ ? pending_->write(std::move(f)) : f();
}

void UpdateStep::at_each(std::function<void()> f) const { pending_ ? pending_->at_each.push_back(std::move(f)) : f(); }

void UpdateStep::count(int64_t& counted) const {
  at_each([&counted] { ++counted; });
}

void UpdateStep::decides() const {
  refuse_in_recording("Optimizer.update", "a part of the transform counts or decides on the host");
}

UpdateStep UpdateStep::selected(std::shared_ptr<Selection> selection) const {
  UpdateStep step = *this;
  step.selection_ = std::move(selection);
  return step;
}

void UpdateStep::read_counts() const {
  if (selection_) selection_->read();
}

void UpdateStep::select(const Arrays& next, const Arrays& before) const { selection_->select(next, before); }

LateNumber UpdateStep::selected(const LateNumber& next, const LateNumber& before) const {
  if (!selection_) return next;
  const Array& applies = selection_->applies();
  return LateNumber(where(applies, next.array(applies), before.array(applies)));
}

std::shared_ptr<const Taken> UpdateStep::asked(const void* whom, const std::function<Taken()>& ask) const {
  if (!pending_ || !remembers_) return std::make_shared<const Taken>(ask());
  std::shared_ptr<const Taken>& known = pending_->answers.all[whom];
  if (!known) known = std::make_shared<const Taken>(ask());
  return known;
}

void UpdateStep::set_to_zero(const Arrays& updates) const {
  check_constant("set_to_zero", updates);
  for (Array* u : updates) *u = in_place() ? Array() : zeros_for(*u);
}

void UpdateStep::tell_learning_rate(const std::function<double()>& rate) const {
  if (!pending_ || !add(pending_->told->learning_rates, label_, rate())) return;
  if (HostWork* work = host_work())
    work->after.push_back([told = pending_->told, entry = pending_->told->learning_rates.size() - 1, rate] {
      told->learning_rates[entry].second = rate();
    });
}
void UpdateStep::tell_learning_rate(const LateNumber& rate) const {
  if (pending_) entry_of(pending_->told->learning_rates, label_)->second = rate;
}
void UpdateStep::tell_norm(const LateNumber& norm) const {
  if (pending_) add(pending_->told->norms, label_, norm);
}

}  // namespace tessera::optim::detail
