// Arithmetic of the wrappers: means of gradients, checks for finite values, slow weights.
#include "optim/wrappers/wrappers.h"

#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include "nn/tree/filter.h"
#include "optim/formulas/per_array.h"
#include "optim/transform/internal.h"
#include "optim/transform/state_placement.h"
#include "sharding/array/ownership.h"
#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/redistribution/convert.h"

namespace tessera::optim {

namespace detail {

using namespace tessera::detail;

namespace {

// Returns `acc` as a partial sum over the same mesh axes as `like`, without communication.
Array as_pending(const Array& acc, const Array& like) {
  const Type* to = with_dtype(like.impl()->type, acc.dtype());
  if (!to->unreduced || acc.impl()->type == to) return acc;
  static const Text reason = tessera::detail::lasting_text("gradients are accumulated before they are reduced");
  return Array(
      convert(*acc.impl(), acc.impl(), to, {.operation = "accumulate", .where = {}, .reason = reason, .path = {}}));
}

void check_counts(const std::vector<int64_t>& counts, const nn::Leaves& acc) {
  if (counts.size() == acc.size()) return;
  fail(ErrorKind::invalid_argument, "accumulate",
       "the state counts the gradients of {} arrays, expected {}, as many as the model has. Make a new state.",
       counts.size(), acc.size());
}

}  // namespace

void add_to_mean(const nn::Leaves& acc, std::vector<int64_t>& counts, const nn::Leaves& grads, int64_t n,
                 bool use_grad_mean) {
  at::AutoGradMode off(false);
  check_same_tree("accumulate", "the gradient", grads, acc);
  check_counts(counts, acc);
  for (size_t i = 0; i < acc.size(); ++i) {
    Array& sum = *acc[i].value;
    if (grads[i].value->is_absent()) {
      if (use_grad_mean && counts[i] > 0) sum = sum * (static_cast<double>(n) / static_cast<double>(n + 1));
      continue;
    }
    counts[i] += 1;
    const Array g = astype(*grads[i].value, sum.dtype());
    if (n == 0) {
      sum = with_tensors(*g.impl(), materialized(g, "accumulate").local);
      continue;
    }
    const Array before = as_pending(sum, g);
    sum = use_grad_mean ? before + (g - before) / static_cast<double>(n + 1) : before + g;
  }
}

void finish_mean(const nn::Leaves& acc, const std::vector<int64_t>& counts, const nn::Leaves& params) {
  at::AutoGradMode off(false);
  check_same_tree("accumulate", "the state", acc, params);
  for (size_t i = 0; i < acc.size(); ++i)
    if (counts[i] == 0) *acc[i].value = Array();
  place_with_parameters(arrays_of(acc), arrays_of(params));
  for (size_t i = 0; i < acc.size(); ++i)
    if (!acc[i].value->is_absent()) *acc[i].value = astype(*acc[i].value, params[i].value->dtype());
}

bool all_finite(const Arrays& arrays) {
  const Array wrong = not_finite(arrays);
  if (const MeshImpl* mesh = wrong.impl()->type->mesh; mesh && mesh->elsewhere)
    fail(ErrorKind::invalid_argument, "apply_if_finite",
         "the model is on the mesh ({}), whose devices are those of {}. Only these can decide whether to apply "
         "the update. Call update only there.",
         Mesh(mesh).to_string(), mesh->words_of_members());
  return known_value(wrong).value_or(0) == 0;
}

bool are_on_accelerator(const Arrays& arrays) {
  bool any = false;
  for (const Array* x : arrays) {
    if (x->is_absent()) continue;
    if (!is_on_accelerator(*x)) return false;
    any = true;
  }
  return any;
}

void look_ahead(const nn::Leaves& updates, const nn::Leaves& slow, const nn::Leaves& params, double step_size) {
  per_array("lookahead", updates, slow, 1, params, 1, [&](const ArrayStep& step) {
    Array& s = step.state[0];
    const Array p = astype(step.p(), s.dtype());
    s = s + step_size * (p + step.gradient - s);
    return s - p;
  });
}

void make_own(const nn::Leaves& tree) {
  for (const nn::Leaf& leaf : tree) {
    Array& x = *leaf.value;
    if (!nn::is_trainable(leaf))
      x = Array();
    else if (x.is_lazy())
      x = 1.0 * astype(x, moment_dtype(x.dtype()));
    else
      x = kept(astype(x, moment_dtype(x.dtype())), zeros_for(x), "init");
  }
}

void update_average(const nn::Leaves& average, const nn::Leaves& params, const nn::Leaves& updates, double decay) {
  at::AutoGradMode off(false);
  check_same_tree("params_ema", "the update", updates, params);
  check_same_tree("params_ema", "the state", average, params);
  for (size_t i = 0; i < params.size(); ++i) {
    Array &a = *average[i].value, &p = *params[i].value;
    if (a.is_absent()) continue;
    follow("params_ema", a, params[i]);
    const Array now = astype(p, a.dtype());
    a = kept(moment(a, updates[i].value->is_absent() ? now : now + *updates[i].value, decay), a, "params_ema");
  }
}

void be_cautious(const Arrays& updates, const Arrays& gradients) {
  at::AutoGradMode off(false);
  for (size_t i = 0; i < updates.size(); ++i) {
    Array& u = *updates[i];
    if (u.is_absent()) continue;
    const Array agrees = astype(u * *gradients[i] > 0.0, u.dtype());
    u = u * agrees / maximum(mean(agrees), 1e-3);
  }
}

}  // namespace detail

ParamsEma params_ema(double decay) {
  detail::check_options("params_ema", {{"decay", decay}}, {});
  return {{}, decay};
}

namespace {

[[noreturn]] void unknown_name(const std::string& name, const std::map<std::string, double>& values) {
  std::vector<std::string> names;
  for (const auto& [known, value] : values) names.push_back(known);
  fail(ErrorKind::invalid_argument, "inject_hyperparams", "\"{}\" given, expected one of the hyperparameters ({}).",
       name, fmt::join(names, ", "));
}

}  // namespace

double& Hyperparams::operator[](const std::string& name) {
  const auto found = values_.find(name);
  if (found == values_.end()) unknown_name(name, values_);
  return found->second;
}

double Hyperparams::operator[](const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) unknown_name(name, values_);
  return found->second;
}

Hyperparams detail::hyperparams_at(const std::map<std::string, Schedule>& schedules, int64_t count,
                                   const Hyperparams& now) {
  std::map<std::string, double> values = now.values();
  for (const auto& [name, schedule] : schedules)
    if (!schedule.constant() || !values.contains(name)) values[name] = schedule(count);
  return Hyperparams(std::move(values));
}

}  // namespace tessera::optim
