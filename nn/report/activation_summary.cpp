// Runs a step on abstract arrays, observes its modules, and makes the table.
#include "nn/report/activation_summary.h"

#include <algorithm>
#include <map>
#include <set>

#include "nn/report/dataflow.h"
#include "nn/report/whole_activations.h"
#include "sharding/accounting/communication_event.h"
#include "sharding/accounting/operation_event.h"
#include "sharding/array/abstract_tensor.h"
#include "sharding/array/tape_state.h"
#include "sharding/autodiff/weights/prefetch_schedule.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/redistribution/device_put.h"

namespace tessera::nn::detail {

namespace {

using tessera::detail::Meter;
using tessera::detail::OperationArrays;
using tessera::detail::OperationCall;

// Counts per computing module, and records the memory in use at the end of a forward pass.
class ModuleMeter : public Meter, public std::enable_shared_from_this<ModuleMeter> {
 public:
  std::shared_ptr<Meter> part() override {
    std::weak_ptr<Meter>& known = parts_[path_in(tessera::detail::current_module_path())];
    std::shared_ptr<Meter> part = known.lock();
    if (part) return part;
    known = part = std::make_shared<Meter>();
    part->outer = shared_from_this();
    return part;
  }
  void end_forward() override {
    Meter::end_forward();
    if (live.most() < most_) return;
    most_ = live.most();
    saved_.clear();
    for (const auto& [module, part] : parts_)
      if (const auto counted = part.lock(); counted && counted->live.most() != 0) saved_[module] = counted->live.most();
  }
  // Bytes at the end of the forward pass that kept the most, if there are several.
  const std::map<std::string, int64_t>& saved() const { return saved_; }

 private:
  std::map<std::string, std::weak_ptr<Meter>> parts_;  // each lives as long as the arrays that it counts
  std::map<std::string, int64_t> saved_;
  int64_t most_ = 0;
};

// Costs of one module without its inner modules.
struct ModuleCosts {
  int64_t saved = 0;
  double forward_flops = 0, backward_flops = 0;
};

class StepTrace : tessera::detail::Observer {
 public:
  explicit StepTrace(const TraceSubject& subject)
      : Observer(tessera::detail::Events::operations | tessera::detail::Events::communication),
        subject_(subject),
        meter_(std::make_shared<ModuleMeter>()),
        current_(tessera::detail::current_meter(), meter_) {
    meter_->outer = outer_;
    for (const Array& x : subject.arguments) flow_.begin(x);
  }

  void computed(const OperationCall& call, const OperationArrays& arrays) override {
    ModuleCosts& own = costs_[path_in(call.module)];
    (call.recomputed ? own.backward_flops : own.forward_flops) += flops_since();
    if (call.recomputed) return;
    flow_.computed(call, arrays);
    whole_.add(call, arrays, flow_);
  }
  void differentiated(const OperationCall& call, const tessera::detail::BackwardCall&) override {
    costs_[path_in(call.module)].backward_flops += flops_since();
  }
  void moved(const ArrayImpl& from, const Array& to) override {
    whole_.place(from, flow_);
    flow_.moved(from, to);
  }
  void communicated(const tessera::detail::Communication& communication) override {
    records_.push_back(tessera::detail::record_of(communication));
    records_.back().backward |= tessera::detail::differentiated_tape() != nullptr;  // true also during recomputation
  }
  void returned(const std::vector<Array>& arrays) {
    for (const Array& x : arrays) flow_.returned(x);
  }

  ActivationTable table() {
    for (const auto& [module, bytes] : meter_->saved()) costs_[module].saved = bytes;
    costs_[""].backward_flops += flops_since();
    ends_ = flow_.ends();
    std::vector<ActivationRow> rows;
    for (const auto& [path, type] : modules_in_order()) rows.push_back(row_of(path, type));
    return ActivationTable(std::move(rows), whole_.all());
  }

 private:
  using Modules = std::vector<std::pair<std::string, std::string>>;

  double flops_since() {
    const double now = meter_->flops.most();
    return now - std::exchange(flops_, now);
  }

  // Returns the tree's modules with costs, and the paths of other scopes, each after the last module of the same
  // parent.
  Modules modules_in_order() const {
    std::set<std::string> taking_part{""};
    for (const auto& [module, costs] : costs_)
      for (std::string& around : modules_around(module)) taking_part.insert(std::move(around));
    Modules modules;
    for (const auto& [path, type] : subject_.modules)
      if (taking_part.contains(path)) modules.emplace_back(path, type);
    if (modules.empty() || !modules[0].first.empty()) modules.emplace(modules.begin());
    for (const auto& [path, costs] : costs_) insert_scope(modules, path);
    return modules;
  }
  static void insert_scope(Modules& modules, const std::string& path) {
    const auto is_path = [&](const auto& module) { return module.first == path; };
    if (std::any_of(modules.begin(), modules.end(), is_path)) return;
    for (const std::string& around : modules_around(path)) {
      const auto related = std::find_if(modules.rbegin(), modules.rend(),
                                        [&](const auto& module) { return is_below(module.first, around); });
      if (related == modules.rend()) continue;
      modules.insert(related.base(), {path, ""});
      return;
    }
  }

  ModuleArray activation(size_t number) const {
    const tessera::detail::Type* type = flow_.value(number).type;
    return {type->to_string(), type->bytes};
  }

  ActivationRow row_of(const std::string& path, const std::string& type) const {
    ActivationRow row{.path = path, .module = type};
    if (const auto ends = ends_.find(path); ends != ends_.end()) {
      for (size_t i : ends->second.inputs) row.inputs.push_back(activation(i));
      for (size_t i : ends->second.outputs) row.outputs.push_back(activation(i));
    }
    for (const auto& [module, costs] : costs_) {
      if (!is_below(module, path)) continue;
      row.saved_bytes += costs.saved;
      row.forward_flops += costs.forward_flops;
      row.backward_flops += costs.backward_flops;
    }
    row.traffic = traffic_in(path);
    return row;
  }

  std::vector<ModuleTraffic> traffic_in(const std::string& path) const {
    std::map<std::pair<bool, std::string>, ModuleTraffic> sums;
    for (const CommRecord& r : records_) {
      if (!is_below(common_module(r.path), path)) continue;
      ModuleTraffic& sum = sums[{r.backward, r.kind}];
      sum.kind = r.kind, sum.backward = r.backward;
      sum.num_collectives += 1, sum.bytes += r.bytes;
    }
    std::vector<ModuleTraffic> traffic;
    for (auto& [key, sum] : sums) traffic.push_back(std::move(sum));
    return traffic;
  }

  const TraceSubject& subject_;
  std::shared_ptr<Meter> outer_ = tessera::detail::current_meter();
  std::shared_ptr<ModuleMeter> meter_;
  tessera::detail::ScopedValue<std::shared_ptr<Meter>> current_;
  std::vector<CommRecord> records_;
  ModuleDataflow flow_;
  std::map<std::string, ModuleDataflow::Ends> ends_;
  std::map<std::string, ModuleCosts> costs_;  // by path
  WholeActivations whole_;
  double flops_ = 0;
};

}  // namespace

void stamp_paths(const Leaves& model) {
  const auto is_stamped = [](const Leaf& leaf) { return !leaf.value->is_absent() && !leaf.value->path().empty(); };
  if (std::any_of(model.begin(), model.end(), is_stamped)) return;
  for (const Leaf& leaf : model)
    if (!leaf.value->is_absent() && !leaf.path.empty())
      *leaf.value = place_parameter(*leaf.value, leaf.value->sharding(), leaf.path);
}

Array loss_of(const std::vector<Array>& returned) {
  Array loss;
  for (const Array& x : returned) {
    if (x.is_absent() || !is_floating(x.dtype())) continue;
    const Array part = x.ndim() == 0 ? x : sum(x);
    loss = loss.is_absent() ? part : loss + part;
  }
  if (loss.is_absent())
    fail(ErrorKind::no_gradient, "activation_summary",
         "the program returns no floating array, expected one to differentiate. Return the loss, or what the model "
         "computes.");
  return loss;
}

ActivationTable traced(const TraceSubject& subject, const std::function<void(const OnReturn&)>& program) {
  return tessera::detail::run_knowing_gathers([&] {
    StepTrace trace(subject);
    program([&](const std::vector<Array>& returned) { trace.returned(returned); });
    return trace.table();
  });
}

}  // namespace tessera::nn::detail
