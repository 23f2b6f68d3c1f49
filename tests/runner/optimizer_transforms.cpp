// Builds transforms and optimizers from expressions, by Optax's names and arguments.
#include <boost/json.hpp>

#include "optim/optimizer/contrib.h"
#include "optim/wrappers/masking.h"
#include "optim/wrappers/wrappers.h"
#include "sharding/base/error.h"
#include "tests/runner/optimizer_arguments.h"

namespace tessera::runner {

namespace {

using Table = Builders<AnyTransform>;

// Returns the label that the files give a parameter: parameters with at most one dimension are vectors.
std::string label_of(const std::string&, const Array& p) { return p.ndim() > 1 ? "matrix" : "vector"; }

AnyTransform partitioned(Arguments& a) {
  std::vector<std::pair<std::string, AnyTransform>> t;
  for (const auto& [label, e] : a.at("transforms").as_object()) t.emplace_back(label, transform_of(e));
  a.find("param_labels");
  switch (t.size()) {
    case 1:
      return optim::partition(label_of, t[0].first, t[0].second);
    case 2:
      return optim::partition(label_of, t[0].first, t[0].second, t[1].first, t[1].second);
    case 3:
      return optim::partition(label_of, t[0].first, t[0].second, t[1].first, t[1].second, t[2].first, t[2].second);
    default:
      fail(ErrorKind::invalid_file, "partition", "expected one to three transforms.");
  }
}

optim::Mask mask_of(Arguments& a, const char* name = "mask") {
  optim::Mask mask;
  a(name, mask);
  return mask;
}

AnyTransform schedule_free_of(Arguments& a) {
  double b1 = 0.9, power = 2;
  a("b1", b1)("weight_lr_power", power);
  return optim::schedule_free(a.transform("base_optimizer"), a.schedule("learning_rate"), b1, power);
}

const Table& wrapper_table() {
  static const Table table = {
      {"partition", partitioned},
      {"multi_transform", partitioned},
      {"masked", [](Arguments& a) { return optim::masked(a.transform("inner"), mask_of(a)); }},
      {"freeze", [](Arguments& a) { return optim::freeze(mask_of(a)); }},
      {"selective_transform",
       [](Arguments& a) { return optim::selective_transform(a.transform("optimizer"), mask_of(a, "freeze_mask")); }},
      {"MultiSteps",
       [](Arguments& a) {
         optim::MultiStepsOptions o;
         a("use_grad_mean", o.use_grad_mean);
         return optim::accumulate(a.transform("opt"), a.integer(a.find("every_k") ? "every_k" : "every_k_schedule"), o);
       }},
      {"apply_if_finite",
       [](Arguments& a) { return optim::apply_if_finite(a.transform("inner"), a.integer("max_consecutive_errors")); }},
      {"cautious", [](Arguments& a) { return optim::cautious(a.transform("inner")); }},
      {"schedule_free", schedule_free_of},
      {"schedule_free_sgd", from_options(optim::schedule_free_sgd)},
      {"schedule_free_adamw", from_options(optim::schedule_free_adamw)},
      {"prodigy", from_options(optim::prodigy)},
      {"muon", from_options(optim::muon)},
      {"scale_by_muon", from_options(optim::scale_by_muon)}};
  return table;
}

const Table& scaling_table() {
  static const Table table = {
      {"identity", [](Arguments&) { return optim::identity(); }},
      {"set_to_zero", [](Arguments&) { return optim::set_to_zero(); }},
      {"scale", [](Arguments& a) { return optim::scale(a.number("step_size")); }},
      {"scale_by_schedule", [](Arguments& a) { return optim::scale_by_schedule(a.schedule("step_size_fn")); }},
      {"scale_by_learning_rate",
       [](Arguments& a) {
         bool flip_sign = true;
         a("flip_sign", flip_sign);
         return optim::scale_by_learning_rate(a.schedule("learning_rate"), flip_sign);
       }},
      {"add_decayed_weights",
       [](Arguments& a) {
         optim::AddDecayedWeights o;
         a("weight_decay", o.weight_decay)("mask", o.mask)("cautious", o.cautious);
         return optim::add_decayed_weights(o.weight_decay, o.mask, o.cautious);
       }},
      {"trace", from_options(optim::trace)},
      {"ema", from_options(optim::ema)},
      {"scale_by_sign", [](Arguments&) { return optim::scale_by_sign(); }},
      {"scale_by_trust_ratio", from_options(optim::scale_by_trust_ratio)},
      {"scale_by_param_block_rms",
       [](Arguments& a) {
         double min_scale = 1e-3;
         a("min_scale", min_scale);
         return optim::scale_by_param_block_rms(min_scale);
       }},
      {"scale_by_param_block_norm",
       [](Arguments& a) {
         double min_scale = 1e-3;
         a("min_scale", min_scale);
         return optim::scale_by_param_block_norm(min_scale);
       }},
      {"centralize", [](Arguments&) { return optim::centralize(); }},
      {"keep_params_nonnegative", [](Arguments&) { return optim::keep_params_nonnegative(); }},
      {"apply_every",
       [](Arguments& a) {
         int64_t k = 1;
         a("k", k);
         return optim::apply_every(k);
       }},
      {"normalize_by_update_norm", from_options(optim::normalize_by_update_norm)},
      {"add_noise",
       [](Arguments& a) {
         const auto seed = static_cast<uint64_t>(a.integer(a.find("key") ? "key" : "seed"));
         return optim::add_noise(a.number("eta"), a.number("gamma"), Key(seed));
       }},
      {"clip", [](Arguments& a) { return optim::clip(a.number("max_delta")); }},
      {"clip_by_block_rms", [](Arguments& a) { return optim::clip_by_block_rms(a.number("threshold")); }},
      {"clip_by_global_norm", [](Arguments& a) { return optim::clip_by_global_norm(a.number("max_norm")); }},
      {"adaptive_grad_clip",
       [](Arguments& a) {
         optim::AdaptiveGradClip o{.clipping = a.number("clipping")};
         a("eps", o.eps)("axis", o.dims);
         return optim::adaptive_grad_clip(o.clipping, o.eps, o.dims);
       }},
      {"zero_nans", [](Arguments&) { return optim::zero_nans(); }}};
  return table;
}

}  // namespace

const Table& adaptive_table();
const Table& optimizer_table();

AnyTransform transform_of(const Json& expression) {
  if (!expression.is_array()) {
    const std::string name(expression.at("name").as_string());
    for (const Table* table : {&wrapper_table(), &scaling_table(), &adaptive_table()})
      if (table->contains(name)) return build(*table, expression);
    return build(optimizer_table(), expression);
  }
  AnyTransform result = optim::identity();
  for (const Json& part : expression.as_array()) result = optim::chain(result, transform_of(part));
  return result;
}

}  // namespace tessera::runner
