// What an update asks before it changes anything.
#include "optim/bulk.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "nn/tree/filter.h"
#include "optim/internal.h"
#include "optim/parts.h"
#include "sharding/array/tape_state.h"
#include "sharding/diagnostics/moved_from.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

namespace {

const MeshImpl* mesh_of(const Array& x) { return x.is_absent() ? nullptr : x.impl()->type->mesh; }

}  // namespace

std::optional<double> number_of(const char* verb, const LabelledNumbers& numbers, const std::string& label) {
  if (numbers.empty() && label.empty()) return std::nullopt;
  const auto as_first = [&](const auto& n) { return n.second == numbers[0].second; };
  if (label.empty() && std::all_of(numbers.begin(), numbers.end(), as_first)) return numbers[0].second;
  std::vector<std::string> labels;
  for (const auto& [known, number] : numbers) {
    if (known == label) return number;
    labels.push_back(fmt::format("\"{}\"", known));
  }
  fail(ErrorKind::bad_argument, verb,
       fmt::format("\"{}\" given, expected the label of a part that has one ({}).", label, fmt::join(labels, ", ")));
}

std::string label_below(const std::string& label, std::string_view name) {
  return label.empty() || name.empty() ? label + std::string(name) : label + "." + std::string(name);
}

bool FirstNumbers::lacks(const std::string& label) const {
  return std::none_of(numbers.begin(), numbers.end(), [&](const auto& n) { return n.first == label; });
}
void FirstNumbers::add(const std::string& label, double number) { numbers.emplace_back(label, number); }

// ---- plans ----------------------------------------------------------------------------------------------------------

Plan::Plan() = default;
Plan::~Plan() = default;
void Plan::call(FusedCall call) { calls_.push_back(std::move(call)); }
void Plan::write(std::function<void()> write) { writes_.push_back(std::move(write)); }
void Plan::count(int64_t& counted) {
  write([&counted] { ++counted; });
}
void Plan::keep_alive(std::shared_ptr<void> x) { kept_alive_.push_back(std::move(x)); }
void Plan::carry_out() const {
  run_fused(calls_);
  for (const auto& write : writes_) write();
}

Answers::Answers() = default;
Answers::Answers(const Answers&) {}
Answers& Answers::operator=(const Answers&) {
  forget();
  return *this;
}
void Answers::forget() { all_.clear(); }
Answers::~Answers() = default;

const Kept& Answers::taken(const Mask& mask, const Params& params) {
  std::vector<Kept>& known = all_[&mask];
  if (known.empty()) known.push_back(std::make_shared<const std::vector<bool>>(detail::taken(mask, params())));
  return known[0];
}

const Kept* Answers::parts(const Labels& labels, std::span<const std::string> names, const Params& params) {
  std::vector<Kept>& known = all_[&labels];
  if (known.empty())
    for (std::vector<bool>& kept : parts_by_label(labels, names.data(), names.size(), params()))
      known.push_back(std::make_shared<const std::vector<bool>>(std::move(kept)));
  return known.data();
}

nn::Leaves leaves_of(nn::Leaves params, const Kept& part) {
  static Array absent;
  for (size_t i = 0; part && i < params.size(); ++i)
    if (!(*part)[i]) params[i].value = &absent;
  return params;
}

namespace {
double learning_rate_of(const FusedTail& tail) {
  return tail.rate.value(tail.rate_count) * (tail.rate.flip_sign ? 1 : -1);
}
}  // namespace

bool plan_sgd(const FusedTail& tail, const Optional<PerArray<Trace>>& momentum, bool has_trace, Arrays trace,
              Plan& plan) {
  const std::optional<PerArray<Trace>>& by = momentum.inner;
  if (by && (by->accumulator_dtype || !has_trace)) return false;
  if (by && !moments_lie_with(trace, tail.params, tail.grads)) return false;
  const FusedSgd call{learning_rate_of(tail), by ? by->decay : 0, by && by->nesterov};
  plan.call({call, tail.params, tail.grads, by ? std::move(trace) : Arrays(), {}});
  plan.count(tail.rate_count);
  return true;
}

bool plan_adam(const FusedTail& tail, const ScaleByAdam& adam, int64_t& count, Arrays mu, Arrays nu,
               const FusedDecay* decay, Plan& plan) {
  if (adam.eps_root != 0 || adam.nesterov || adam.mu_dtype) return false;
  if (!moments_lie_with(mu, tail.params, tail.grads) || !moments_lie_with(nu, tail.params, tail.grads)) return false;
  FusedAdam call{adam.b1, adam.b2, adam.eps, count + 1, learning_rate_of(tail)};
  if (decay) {
    call.weight_decay = decay->part.value(decay->count);
    call.decays = decay->kept;
    plan.count(decay->count);
  }
  plan.call({std::move(call), tail.params, tail.grads, std::move(mu), std::move(nu)});
  plan.count(count);
  plan.count(tail.rate_count);
  return true;
}

void put_back(const Arrays& params, const Arrays& from, const Kept& part) {
  for (size_t i = 0; i < params.size(); ++i)
    if (!part || (*part)[i]) *params[i] = *from[i];
}

namespace {

const Type* type_of(const Array& x) { return x.is_absent() ? nullptr : x.impl()->type; }

bool plainly_fits(const Type* gradient, const Type* parameter) {
  if (gradient == parameter || !gradient) return !gradient || is_floating(gradient->dtype);
  return parameter && gradient->dtype == parameter->dtype && is_floating(gradient->dtype) &&
         gradient->mesh == parameter->mesh && gradient->shape == parameter->shape;
}

// Whether no two of them are one and the same array.
bool are_distinct(const Arrays& arrays) {
  std::unordered_set<const ArrayImpl*> seen;
  for (const Array* x : arrays)
    if (!x->is_absent() && !seen.insert(x->impl().get()).second) return false;
  return true;
}

}  // namespace

MadeFor::MadeFor(const nn::Leaves& params, const nn::BareArrays& bare) : structure_(bare.structure) {
  std::vector<Entry> entries;
  for (const nn::Leaf& p : params) {
    entries.push_back({p.path, nn::is_trainable(p) ? std::optional(p.value->shape()) : std::nullopt});
    types_.push_back(type_of(*p.value));
  }
  entries_ = std::make_shared<const std::vector<Entry>>(std::move(entries));
}

bool MadeFor::plainly_fits(const nn::BareArrays& params, const nn::BareArrays& grads) const {
  if (current_tape() || params.structure != structure_ || grads.structure != structure_ ||
      params.arrays.size() != types_.size() || grads.arrays.size() != types_.size())
    return false;
  size_t shared = 0, given = 0;
  for (size_t i = 0; i < types_.size(); ++i) {
    ask_for_next(params.arrays, i), ask_for_next(grads.arrays, i);
    const Type* type = type_of(*params.arrays[i]);
    given += !grads.arrays[i]->is_absent();
    shared += type && params.arrays[i]->impl().use_count() > 1;
    if (type != types_[i] || !detail::plainly_fits(type_of(*grads.arrays[i]), type)) return false;
  }
  return given > 0 && (shared < 2 || are_distinct(params.arrays));
}

bool MadeFor::has_other_parts(const Arrays& params) const {
  const auto alike = [](const Array* p, const void* type) { return !type_of(*p) == !type; };
  return !std::equal(params.begin(), params.end(), types_.begin(), types_.end(), alike);
}

void MadeFor::check(const nn::Leaves& params, const nn::BareArrays& bare) {
  constexpr const char* verb = "Optimizer.update";
  if (!entries_) tessera::detail::fail_moved(verb, "optimizer");
  for (size_t i = 0; i < std::min(params.size(), entries_->size()); ++i) {
    const nn::Leaf& p = params[i];
    const Entry& entry = (*entries_)[i];
    if (p.path != entry.path)
      fail(ErrorKind::bad_argument, verb,
           fmt::format("{}: the model that this optimizer was made for has {} in its place. Make a new optimizer.",
                       p.path, entry.path));
    if (entry.shape && !p.value->is_absent() && p.value->shape() != *entry.shape)
      fail(ErrorKind::shape_mismatch, verb,
           fmt::format("{}: the parameter is {}, it was of shape {} when this optimizer was made. Make a new one.",
                       p.path, p.value->type_string(), to_string(*entry.shape)));
  }
  if (params.size() != entries_->size())
    fail(ErrorKind::bad_argument, verb,
         fmt::format("the model has {} arrays, the one that this optimizer was made for {}. Make a new optimizer.",
                     params.size(), entries_->size()));
  nn::check_distinct(params, verb);
  for (size_t i = 0; i < params.size(); ++i) types_[i] = type_of(*params[i].value);
  structure_ = bare.structure;
}

namespace {

bool is_given(const nn::Leaf& gradient) { return !gradient.value->is_absent(); }

// One gradient may be absent, as one that a filter left out is; without any there is nothing to update with.
void check_any_gradient(const nn::Leaves& params, const nn::Leaves& grads) {
  const auto first = std::find_if(params.begin(), params.end(), nn::is_trainable);
  if (first == params.end() || std::any_of(grads.begin(), grads.end(), is_given)) return;
  fail(ErrorKind::bad_argument, "Optimizer.update",
       fmt::format("{}: every gradient is absent, expected those that nn::value_and_grad gives.", first->path));
}

void check_gradient_mesh(const std::string& path, const Array& gradient, const Array& parameter) {
  const MeshImpl *from = mesh_of(gradient), *to = mesh_of(parameter);
  if (!from || !to || from == to) return;
  fail(ErrorKind::device_mismatch, "Optimizer.update",
       fmt::format("{}: the gradient lies on {}, the parameter on {}. Move the gradients with nn::filter_shard(grads, "
                   "layout), or take them of the model that lies there.",
                   path, Mesh(from).to_string(), Mesh(to).to_string()));
}

}  // namespace

void check_gradients(const nn::Leaves& params, const nn::Leaves& grads) {
  check_same_tree("Optimizer.update", "the gradient", grads, params);
  check_any_gradient(params, grads);
  for (size_t i = 0; i < params.size(); ++i) {
    const Array &p = *params[i].value, &g = *grads[i].value;
    if (g.is_absent()) continue;
    if (g.dtype() != p.dtype() || !is_floating(p.dtype()))
      fail(ErrorKind::dtype_mismatch, "Optimizer.update",
           fmt::format("{}: the gradient is {}, the parameter {}. Both must have the same floating element type; an "
                       "integer's gradient is absent.",
                       params[i].path, g.type_string(), p.type_string()));
    check_gradient_mesh(params[i].path, g, p);
  }
}

bool on_mesh_of(const Arrays& params, const Arrays& state) {
  std::vector<const MeshImpl*> meshes;
  for (const Array* p : params)
    if (const MeshImpl* mesh = mesh_of(*p); mesh && (meshes.empty() || mesh != meshes.back())) meshes.push_back(mesh);
  for (const Array* x : state)
    if (const MeshImpl* mesh = mesh_of(*x);
        mesh && !meshes.empty() && std::find(meshes.begin(), meshes.end(), mesh) == meshes.end())
      return false;
  return true;
}

void check_state_mesh(const nn::Leaves& params, const nn::Leaves& state) {
  Arrays all;
  for (const nn::Leaf& p : params) all.push_back(p.value);
  const auto placed = std::find_if(params.begin(), params.end(), [](const nn::Leaf& p) { return mesh_of(*p.value); });
  for (const nn::Leaf& x : state)
    if (!on_mesh_of(all, {x.value}))
      fail(ErrorKind::device_mismatch, "Optimizer.update",
           fmt::format("{}: the state lies on {}, the model on {}. Move the optimizer with "
                       "nn::filter_shard(optimizer, layout), or make a new one.",
                       x.path, Mesh(mesh_of(*x.value)).to_string(), Mesh(mesh_of(*placed->value)).to_string()));
}

bool lies_elsewhere(const Arrays& grads, const Arrays& params) {
  for (size_t i = 0; i < grads.size(); ++i)
    if (const Type* g = type_of(*grads[i]); g && (g->unreduced || (g->mesh && !mesh_of(*params[i])))) return true;
  return false;
}

}  // namespace tessera::optim::detail
