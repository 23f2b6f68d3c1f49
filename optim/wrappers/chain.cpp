// Checks of chains; in-place updates of parameters by LibTorch's fused kernels for Adam, AdamW and SGD.
#include "optim/wrappers/chain.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <functional>

#include "optim/transform/finite_gate.h"
#include "optim/transform/internal.h"
#include "sharding/array/host_memory.h"
#include "sharding/array/late_checks.h"
#include "sharding/array/ownership.h"
#include "sharding/array/padding.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/host_stream.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/kernels/staging_pool.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/runtime/graph.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

void no_state_of_optional() {
  fail(ErrorKind::invalid_argument, "update",
       "the state has no part for an optional transform (momentum, clipping, ...) that is used now, expected one. Make "
       "a new state with init.");
}

void check_names(const char* verb, const std::string* names, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (names[i].empty())
      fail(ErrorKind::invalid_argument, verb, "an empty name given, expected one for each transform.");
    for (size_t j = 0; j < i; ++j)
      if (names[i] == names[j])
        fail(ErrorKind::invalid_argument, verb, "\"{}\" given twice, expected each name once.", names[i]);
  }
}

namespace {

// Returns the array for writing: itself if it is the only owner of its memory, otherwise a copy that replaces it in the
// tree. While a graph is recorded, the recorder is one more owner of the memory that the step changes.
ArrayImpl& writable(Array& x) {
  const ArrayImpl& a = materialized(x, "Optimizer.update");
  const bool kept = host_work() && a.is_ready() && a.local[0].has_storage() &&
                    host_work()->kept.contains(a.local[0].storage().unsafeGetStorageImpl());
  make_sole_owner(x, kept ? 1 : 0);
  return *x.impl();
}

// as_dtype, as_contiguous and as_type skip the conversion, and so the dispatcher, if there is nothing to do.
at::Tensor as_dtype(const at::Tensor& t, at::ScalarType dtype) { return t.scalar_type() == dtype ? t : t.to(dtype); }
at::Tensor as_contiguous(const at::Tensor& t) { return t.is_contiguous() ? t : t.contiguous(); }
const Type* as_type(const Type* type, DType dtype) { return type->dtype == dtype ? type : with_dtype(type, dtype); }

// Appends the gradient, resharded like the parameter: one contiguous tensor for each of the parameter's tensors.
void add_gradient(const Array& grad, const ArrayImpl& p, at::ScalarType dtype, std::vector<at::Tensor>& out) {
  static const Text reason = tessera::detail::lasting_text("a gradient is resharded like its parameter");
  ArrayImpl& a = materialized(grad, "Optimizer.update");
  if (a.type == p.type && a.slots == p.slots) {
    for (const at::Tensor& t : a.local) out.push_back(as_contiguous(as_dtype(t, dtype)));
    return;
  }
  ArrayPtr g = grad.impl();
  if (p.type->mesh && a.type != p.type)
    g = convert(a, g, as_type(p.type, a.type->dtype),
                {.operation = "Optimizer.update", .where = {}, .reason = reason, .path = {}});
  for (size_t i = 0; i < p.local.size(); ++i) {
    const size_t at = g->slots == p.slots ? i : project(p.type->mesh, p.slots, static_cast<int>(i), g->slots);
    out.push_back(as_contiguous(as_dtype(in_memory_of(p.type->mesh, g->local[at]), dtype)));
  }
}

// Arguments of one kernel call: parameters of one element type in one memory, either all decayed or none.
struct Group {
  bool decayed;
  at::ScalarType dtype;
  c10::Device device;
  std::vector<at::Tensor> params, grads, first = {}, second = {};
  at::Tensor count = {};  // the number of updates, if the kernel reads it
  bool on_host = false;   // the moments; `next` is the memory of the new ones
  std::vector<at::Tensor> next_first = {}, next_second = {};
  std::shared_ptr<HostStream> stream = {};

  std::array<std::vector<at::Tensor>*, 6> lists() {
    return {&params, &grads, &first, &second, &next_first, &next_second};
  }
  // Returns a group for a part of the tensors, which are not added yet.
  Group part() const { return {decayed, dtype, device, {}, {}, {}, {}, count}; }
};

// Returns the number of elements of each moment in one buffer, or all if they are fewer.
int64_t block_size(const Group& group) {
  int64_t all = 0;
  for (const at::Tensor& t : group.params) all += HostStream::aligned(t.numel());
  const auto bytes = static_cast<int64_t>(at::elementSize(group.dtype)) * (group.second.empty() ? 1 : 2);
  return std::min(all, HostStream::aligned(host_buffer_bytes() / bytes));
}

// Divides the elements of all tensors into blocks of flat views.
std::vector<Group> blocks_of(Group& group) {
  std::vector<Group> blocks;
  int64_t space = 0;
  for (size_t i = 0; i < group.params.size(); ++i)
    for (int64_t n = 0, at = 0; at < group.params[i].numel(); at += n, space -= HostStream::aligned(n)) {
      if (space == 0) blocks.push_back(group.part()), space = block_size(group);
      n = std::min(group.params[i].numel() - at, space);
      for (size_t l = 0; l < group.lists().size(); ++l)
        if (const auto& list = *group.lists()[l]; !list.empty())
          blocks.back().lists()[l]->push_back(list[i].view(-1).narrow(0, at, n));
    }
  return blocks;
}

// One update by a kernel, in the storage of params and moments. An array whose storage is shared is replaced by a copy.
// A parameter whose gradient is absent is not changed.
class FusedCall {
 public:
  using Kernel = std::function<void(Group&)>;
  using Counter = std::function<at::Tensor(const c10::Device&)>;  // makes Group::count; empty if there is none

  // Collects the gradients first: a gradient that shares memory with its parameter makes the parameter a copy.
  FusedCall(Kernel kernel, Counter counter, const MaskVectors* decays, const Arrays& params, const Arrays& grads,
            std::array<Arrays, 2> moments)
      : kernel_(std::move(kernel)), counter_(std::move(counter)), params_(params), moments_(std::move(moments)) {
    for (size_t i = 0; i < params.size(); ++i) {
      prefetch_next(grads, i);
      const bool decayed = !decays || (*decays)[0][i];
      groups_of_.push_back(grads[i]->is_absent() || params[i]->is_absent() ? none : group_of(decayed, i));
      if (groups_of_[i] == none) continue;
      Group& group = groups_[groups_of_[i]];
      add_gradient(*grads[i], materialized(*params[i], "Optimizer.update"), group.dtype, group.grads);
    }
  }

  void gather() {
    gather(moments_[0], [](Group& group, const at::Tensor& t) { group.first.push_back(t); });
    gather(moments_[1], [](Group& group, const at::Tensor& t) { group.second.push_back(t); });
    gather(params_, [this](Group& group, const at::Tensor& t) {
      group.params.push_back(as_dtype(t, group.dtype));
      if (t.scalar_type() != group.dtype) rounded_.push_back({t, group.params.back()});
    });
    for (Group& g : groups_) {
      if (counter_) g.count = counter_(g.device);
      if (g.on_host)
        g.stream = std::make_shared<HostStream>(g.device, g.dtype, block_size(g) * (g.second.empty() ? 1 : 2));
    }
  }

  void run() {
    for (Group& group : groups_)
      if (!group.params.empty()) run(group);
    for (const Rounded& r : rounded_) r.parameter.copy_(r.exact);
    for (const Padded& p : padded_) clear_padding(p.type, p.slots, p.local);
    for (auto& [x, next] : replaced_) *x = std::move(next);
  }

 private:
  // A parameter in half precision is updated as a float32 copy and rounded once.
  struct Rounded {
    at::Tensor parameter, exact;
  };
  // Local shards with padding: without eps, the kernel divides the zeros of the padding by zero.
  struct Padded {
    const Type* type;
    tessera::detail::AxisSet slots;
    Tensors local;
  };
  static constexpr size_t none = static_cast<size_t>(-1);

  // Calls the kernel. On the CPU it processes one tensor after the other, so threads can process parts of the list.
  void run(Group& group) {
    if (group.on_host) return run_in_blocks(group);
    if (!group.device.is_cpu()) return kernel_(group);
    constexpr int64_t least = 1 << 14;
    std::vector<Group> parts;
    int64_t elements = least, total = 0;
    for (size_t i = 0; i < group.params.size(); ++i) {
      if (elements >= least) parts.push_back(group.part()), elements = 0;
      Group& part = parts.back();
      part.params.push_back(group.params[i]), part.grads.push_back(group.grads[i]);
      if (!group.first.empty()) part.first.push_back(group.first[i]);
      if (!group.second.empty()) part.second.push_back(group.second[i]);
      elements += group.params[i].numel(), total += group.params[i].numel();
    }
    parallel_for(static_cast<int>(parts.size()), nanoseconds_of(0, 4 * total), [&](int i) {
      const at::AutoGradMode off(false);
      kernel_(parts[i]);
    });
  }

  void run_in_blocks(Group& group) {
    for (Group& block : blocks_of(group))
      group.stream->update({&block.first, &block.second}, {&block.next_first, &block.next_second},
                           [&] { kernel_(block); });
    group.stream->finish();
  }

  bool are_on_host(size_t i) const {
    const auto is_on_host = [i](const Arrays& list) { return list.empty() || host_tensors(*list[i]); };
    return !moments_[0].empty() && std::all_of(moments_.begin(), moments_.end(), is_on_host);
  }

  size_t group_of(bool decayed, size_t i) {
    const Array& parameter = *params_[i];
    const bool on_host = are_on_host(i);
    const auto dtype = static_cast<at::ScalarType>(moment_dtype(parameter.dtype()));
    const MeshImpl* mesh = parameter.impl()->type->mesh;
    const c10::Device device = mesh ? mesh->device : c10::Device(c10::kCPU);
    for (size_t g = 0; g < groups_.size(); ++g)
      if (groups_[g].decayed == decayed && groups_[g].dtype == dtype && groups_[g].device == device &&
          groups_[g].on_host == on_host)
        return g;
    Group& made = groups_.emplace_back(Group{decayed, dtype, device, {}, {}});
    made.on_host = on_host;
    for (auto* list : {&made.params, &made.grads, &made.first, &made.second}) list->reserve(params_.size());
    return groups_.size() - 1;
  }

  template <class Add>
  void gather(const Arrays& arrays, Add add) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      prefetch_next(arrays, i);
      if (groups_of_[i] == none) continue;
      Group& group = groups_[groups_of_[i]];
      if (&arrays == &moments_[0] && group.on_host) add_on_host(*arrays[i], group.first, group.next_first);
      if (&arrays == &moments_[1] && group.on_host) add_on_host(*arrays[i], group.second, group.next_second);
      if (&arrays != &params_ && group.on_host) continue;
      const ArrayImpl& a = writable(*arrays[i]);
      if (a.type->padded) padded_.push_back({a.type, a.slots, a.local});
      for (const at::Tensor& t : a.local) add(group, t);
    }
  }

  // Adds moments in host memory. Their padding stays zero, because the gradient's is.
  void add_on_host(Array& x, std::vector<at::Tensor>& moments, std::vector<at::Tensor>& next) {
    HostUpdate update = host_update(x);
    moments.insert(moments.end(), update.from.begin(), update.from.end());
    next.insert(next.end(), update.to.begin(), update.to.end());
    replaced_.emplace_back(&x, std::move(update.next));
  }

  Kernel kernel_;
  Counter counter_;
  Arrays params_;
  std::array<Arrays, 2> moments_;
  std::vector<size_t> groups_of_;
  std::vector<Group> groups_;
  std::vector<Rounded> rounded_;
  std::vector<Padded> padded_;
  std::vector<std::pair<Array*, Array>> replaced_;
};

// Allocates the memory of all calls before any call writes, so that an error leaves everything unchanged.
void add_call(PendingUpdate& pending, FusedCall::Kernel kernel, FusedCall::Counter counter, const MaskVectors* decays,
              const Arrays& updates, std::array<Arrays, 2> moments) {
  at::AutoGradMode off(false);
  const auto call = std::make_shared<FusedCall>(std::move(kernel), std::move(counter), decays, pending.params, updates,
                                                std::move(moments));
  pending.preparations.push_back([call] { call->gather(); });
  pending.writes.push_back([call] { call->run(); });
  for (Array* u : updates) *u = Array();
}

bool is_placed_like(Array& moment, const Array& parameter) {
  if (moment.is_absent()) return false;
  const ArrayImpl& p = materialized(parameter, "Optimizer.update");
  if (p.type->mesh && !moment.is_committed()) moment = device_put(moment, sharding_of(p.type));
  const Tensors* host = host_tensors(moment);
  const ArrayImpl& m = host ? *moment.impl() : materialized(moment, "Optimizer.update");
  return m.type->dtype == moment_dtype(p.type->dtype) && m.type == as_type(p.type, m.type->dtype) &&
         m.slots == p.slots && (host ? *host : m.local).size() == p.local.size();
}

// Returns whether the kernel can compute this step: each moment of a parameter with a gradient has the parameter's
// sharding and the usual element type. Moments that were never placed get their parameter's sharding.
bool are_placed_like(const Arrays& moments, const Arrays& params, const Arrays& grads) {
  if (moments.size() != params.size() || grads.size() != params.size()) return false;
  for (size_t i = 0; i < params.size(); ++i) {
    prefetch_next(moments, i);
    if (!grads[i]->is_absent() && !params[i]->is_absent() && !is_placed_like(*moments[i], *params[i])) return false;
  }
  return true;
}

// Numbers that the kernels read from the accelerator if it decides on the update. Otherwise the tensors are undefined.
struct GateTensors {
  at::Tensor skip;      // 1 if the update is not applied, else 0
  at::Tensor rejected;  // number of rejected updates that the counts include
  at::Tensor rate;      // if it changes
};

// Returns x in the element type that the kernels read.
Array as_number(const Array& x) { return astype(x, float32); }

// Returns the rate of this update. Only the accelerator has the number of updates, so it selects from a table of rates.
Array rate_there(const FiniteGate& gate, const ScalarSource& factor, int64_t count) {
  std::vector<float> rates;
  for (int64_t back = 0; back <= std::min(gate.updates(), count); ++back)
    rates.push_back(static_cast<float>(-factor.at(back)));
  const ArrayImpl& rejected = *gate.rejected().impl();
  const at::Tensor table = at::tensor(rates, at::kFloat);
  Tensors local;
  for (const at::Tensor& t : rejected.local)
    local.push_back(moved_to(table, t.device()).index_select(0, t.reshape({1})).reshape({}));
  return Array(make_array(with_dtype(rejected.type, float32), rejected.slots, std::move(local)));
}

GateTensors decided(const UpdateStep& step, const ScalarSource& factor, int64_t count) {
  const FiniteGate* gate = step.gate;
  if (!gate) return {};
  const at::AutoGradMode off(false);
  const auto here = [](const Array& x) { return materialized(x, "Optimizer.update").local[0]; };
  GateTensors result{here(as_number(logical_not(gate->applies()))), here(as_number(gate->rejected())), {}};
  if (!factor.at) return result;
  const Array rate = rate_there(*gate, factor, count);
  step.report_learning_rate(DeviceScalar(rate));
  result.rate = here(rate);
  return result;
}

// Reads the number of applied updates from the accelerator if it has not been read for many updates. The accelerator
// selects the rate from a table with one entry per update since then.
void read_counts_of_many(const UpdateStep& step, bool changes) {
  constexpr int64_t many = 256;
  if (changes && step.gate && step.gate->updates() >= many) step.read_counts();
}

// Calls kernel(rate). A rate that changes is a tensor while a graph is recorded, and if the accelerator decides. On an
// accelerator a rate that changes is always rounded to float32, because the kernels read such a tensor.
template <class Kernel>
void with_rate(const ScalarSource& factor, const GateTensors& decided, const c10::Device& device, Kernel kernel) {
  if (decided.rate.defined())
    kernel(decided.rate);
  else if (host_work() && factor.at)
    kernel(host_work()->anew([at = factor.at] { return -at(0); }, at::kFloat));
  else
    kernel(factor.at && !device.is_cpu() ? static_cast<float>(-factor.now) : -factor.now);
}

// Returns the number of updates, including this one.
at::Tensor counted_with_this(const int64_t& count, const GateTensors& decided, const c10::Device& device) {
  static auto* kept = new StagingPool;
  const auto number = [&count] { return static_cast<double>(count + 1); };
  if (host_work()) return host_work()->anew(number, at::kFloat);
  if (decided.rejected.defined()) return at::rsub(decided.rejected, number());
  if (device.is_cpu()) return at::scalar_tensor(number());
  return kept->get({}, at::TensorOptions(device).dtype(at::kFloat)).fill_(number());
}

std::optional<at::Tensor> found_inf(const GateTensors& decided) {
  return decided.skip.defined() ? std::optional(decided.skip) : std::nullopt;
}

}  // namespace

bool fuse_adam(const UpdateStep& step, const Arrays& updates, const ScaleByAdam& o, Moments moments,
               const std::optional<FusedDecay>& decay, const FusedRate& rate) {
  PendingUpdate& pending = *step.in_place();
  if (o.eps_root != 0 || o.nesterov || o.mu_dtype || (decay && decay->part.cautious)) return false;
  if (!are_placed_like(moments.mu, pending.params, updates) || !are_placed_like(moments.nu, pending.params, updates))
    return false;
  read_counts_of_many(step, !rate.part.learning_rate.constant());
  if (decay && !decay->part.weight_decay.constant()) step.read_counts();
  check_count("scale_by_adam", moments.count + 1);
  const double weight_decay = decay ? decay->part.value(decay->state.count) : 0;
  const auto factor = rate.part.factor(rate.state, step);
  const GateTensors there = decided(step, factor, rate.state.count);
  step.count(moments.count);
  if (decay) step.count(decay->state.count);
  const auto counter = [there, &count = moments.count](const c10::Device& device) {
    return counted_with_this(count, there, device);
  };
  const auto kernel = [o, factor, there, weight_decay](Group& g) {
    const std::vector<at::Tensor> counts(g.params.size(), g.count);
    with_rate(factor, there, g.device, [&](const auto& learning_rate) {
      at::_fused_adamw_(g.params, g.grads, g.first, g.second, {}, counts, learning_rate, o.b1, o.b2,
                        g.decayed ? weight_decay : 0, o.eps, false, false, {}, found_inf(there));
    });
  };
  add_call(pending, kernel, counter, weight_decay == 0 ? nullptr : decay->masks.get(), updates,
           {std::move(moments.mu), std::move(moments.nu)});
  return true;
}

bool fuse_sgd(const UpdateStep& step, const Arrays& updates, const std::optional<PerArray<Trace>>& momentum,
              bool has_trace, Arrays trace, const FusedRate& rate) {
  PendingUpdate& pending = *step.in_place();
  // LibTorch's kernel has no trace without momentum.
  if (momentum && (momentum->decay == 0 || momentum->accumulator_dtype || !has_trace ||
                   !are_placed_like(trace, pending.params, updates)))
    return false;
  read_counts_of_many(step, !rate.part.learning_rate.constant());
  const auto factor = rate.part.factor(rate.state, step);
  const GateTensors there = decided(step, factor, rate.state.count);
  const double decay = momentum ? momentum->decay : 0;
  const auto kernel = [factor, there, decay, nesterov = momentum && momentum->nesterov](Group& g) {
    with_rate(factor, there, g.device, [&](const auto& learning_rate) {
      at::_fused_sgd_(g.params, g.grads, g.first, 0.0, decay, learning_rate, 0.0, nesterov, false, false, {},
                      found_inf(there));
    });
  };
  add_call(pending, kernel, nullptr, nullptr, updates, {momentum ? std::move(trace) : Arrays(), {}});
  return true;
}

}  // namespace tessera::optim::detail
