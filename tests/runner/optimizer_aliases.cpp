// Optax's optimizers and adaptive transforms from their arguments.
#include <boost/json.hpp>

#include "optim/optimizers.h"
#include "tests/runner/optimizer_arguments.h"

namespace tessera::runner {

using Table = Builders<AnyTransform>;

namespace {

// What Adam and most of its kin have in common.
template <class Options>
Options& moments(Arguments& a, Options& o) {
  a("b1", o.b1)("b2", o.b2)("eps", o.eps);
  if constexpr (requires { o.eps_root; }) a("eps_root", o.eps_root);
  if constexpr (requires { o.mu_dtype; }) a("mu_dtype", o.mu_dtype);
  if constexpr (requires { o.nesterov; }) a("nesterov", o.nesterov);
  return o;
}
template <class Options>
Options& decayed(Arguments& a, Options& o) {
  a("weight_decay", o.weight_decay)("mask", o.mask);
  return o;
}

// An optimizer of these options, with its learning rate, moments, and weight decay if it has one.
template <class Options, class F>
AnyTransform with_moments(Arguments& a, F f) {
  Options o{.learning_rate = a.schedule("learning_rate")};
  moments(a, o);
  if constexpr (requires { o.mask; }) decayed(a, o);
  return f(o);
}

optim::ScaleByRms rms_of(Arguments& a) {
  optim::ScaleByRms o;
  a("decay", o.decay)("eps", o.eps)("initial_scale", o.initial_scale)("eps_in_sqrt", o.eps_in_sqrt);
  a("bias_correction", o.bias_correction);
  return o;
}

AnyTransform adafactor_of(Arguments& a) {
  optim::AdafactorOptions o;
  a("learning_rate", o.learning_rate)("min_dim_size_to_factor", o.min_dim_size_to_factor)("decay_rate", o.decay_rate);
  a("decay_offset", o.decay_offset)("multiply_by_parameter_scale", o.multiply_by_parameter_scale);
  a("clipping_threshold", o.clipping_threshold)("momentum", o.momentum)("dtype_momentum", o.dtype_momentum);
  a("weight_decay_rate", o.weight_decay_rate)("eps", o.eps)("factored", o.factored);
  a("weight_decay_mask", o.weight_decay_mask);
  return optim::adafactor(o);
}

AnyTransform factored_rms_of(Arguments& a) {
  optim::ScaleByFactoredRms o;
  a("factored", o.factored)("decay_rate", o.decay_rate)("step_offset", o.step_offset)("epsilon", o.epsilon);
  a("min_dim_size_to_factor", o.min_dim_size_to_factor);
  return optim::scale_by_factored_rms(o);
}

AnyTransform rmsprop_of(Arguments& a) {
  optim::RmspropOptions o{.learning_rate = a.schedule("learning_rate")};
  a("decay", o.decay)("eps", o.eps)("initial_scale", o.initial_scale)("eps_in_sqrt", o.eps_in_sqrt);
  a("centered", o.centered)("momentum", o.momentum)("nesterov", o.nesterov)("bias_correction", o.bias_correction);
  return optim::rmsprop(o);
}

AnyTransform lars_of(Arguments& a) {
  optim::LarsOptions o{.learning_rate = a.schedule("learning_rate")};
  a("weight_decay", o.weight_decay)("weight_decay_mask", o.weight_decay_mask);
  a("trust_coefficient", o.trust_coefficient)("eps", o.eps)("trust_ratio_mask", o.trust_ratio_mask);
  a("momentum", o.momentum)("nesterov", o.nesterov);
  return optim::lars(o);
}

AnyTransform ademamix_of(Arguments& a) {
  optim::AdemamixOptions o{.learning_rate = a.schedule("learning_rate")};
  a("b3", o.b3)("alpha", o.alpha);
  return optim::ademamix(decayed(a, moments(a, o)));
}

template <class Options>
Options& adopt_of(Arguments& a, Options& o) {
  a("use_clipping", o.use_clipping);
  return moments(a, o);
}

}  // namespace

const Table& adaptive_table() {
  static const Table table = {
      {"scale_by_adam",
       [](Arguments& a) {
         optim::ScaleByAdam o;
         return optim::scale_by_adam(moments(a, o));
       }},
      {"scale_by_amsgrad",
       [](Arguments& a) {
         optim::ScaleByAmsgrad o;
         a("bias_correction_mu", o.bias_correction_mu)("bias_correction_nu", o.bias_correction_nu);
         return optim::scale_by_amsgrad(moments(a, o));
       }},
      {"scale_by_adamax",
       [](Arguments& a) {
         optim::ScaleByAdamax o;
         return optim::scale_by_adamax(moments(a, o));
       }},
      {"scale_by_belief",
       [](Arguments& a) {
         optim::ScaleByBelief o;
         return optim::scale_by_belief(moments(a, o));
       }},
      {"scale_by_yogi",
       [](Arguments& a) {
         optim::ScaleByYogi o;
         a("initial_accumulator_value", o.initial_accumulator_value);
         return optim::scale_by_yogi(moments(a, o));
       }},
      {"scale_by_radam",
       [](Arguments& a) {
         optim::ScaleByRadam o;
         a("threshold", o.threshold);
         return optim::scale_by_radam(moments(a, o));
       }},
      {"scale_by_rss",
       [](Arguments& a) {
         optim::ScaleByRss o;
         a("initial_accumulator_value", o.initial_accumulator_value)("eps", o.eps);
         return optim::scale_by_rss(o);
       }},
      {"scale_by_rms", [](Arguments& a) { return optim::scale_by_rms(rms_of(a)); }},
      {"scale_by_stddev",
       [](Arguments& a) {
         const optim::ScaleByRms o = rms_of(a);
         return optim::scale_by_stddev({o.decay, o.eps, o.initial_scale, o.eps_in_sqrt, o.bias_correction});
       }},
      {"scale_by_adadelta",
       [](Arguments& a) {
         optim::ScaleByAdadelta o;
         a("rho", o.rho)("eps", o.eps);
         return optim::scale_by_adadelta(o);
       }},
      {"scale_by_adan",
       [](Arguments& a) {
         optim::ScaleByAdan o;
         a("b3", o.b3);
         return optim::scale_by_adan(moments(a, o));
       }},
      {"scale_by_lion",
       [](Arguments& a) {
         optim::ScaleByLion o;
         a("b1", o.b1)("b2", o.b2)("mu_dtype", o.mu_dtype);
         return optim::scale_by_lion(o);
       }},
      {"scale_by_ademamix",
       [](Arguments& a) {
         optim::ScaleByAdemamix o;
         a("b3", o.b3)("alpha", o.alpha);
         return optim::scale_by_ademamix(moments(a, o));
       }},
      {"scale_by_adopt",
       [](Arguments& a) {
         optim::ScaleByAdopt o;
         return optim::scale_by_adopt(adopt_of(a, o));
       }},
      {"scale_by_factored_rms", factored_rms_of},
      {"scale_by_novograd", [](Arguments& a) {
         optim::ScaleByNovograd o;
         a("weight_decay", o.weight_decay);
         return optim::scale_by_novograd(moments(a, o));
       }}};
  return table;
}

const Table& optimizer_table() {
  static const Table table = {
      {"sgd",
       [](Arguments& a) {
         optim::SgdOptions o{.learning_rate = a.schedule("learning_rate")};
         a("momentum", o.momentum)("nesterov", o.nesterov)("accumulator_dtype", o.accumulator_dtype);
         return optim::sgd(o);
       }},
      {"adam", [](Arguments& a) { return with_moments<optim::AdamOptions>(a, optim::adam); }},
      {"nadam", [](Arguments& a) { return with_moments<optim::AdamOptions>(a, optim::nadam); }},
      {"adamw", [](Arguments& a) { return with_moments<optim::AdamwOptions>(a, optim::adamw); }},
      {"nadamw", [](Arguments& a) { return with_moments<optim::AdamwOptions>(a, optim::nadamw); }},
      {"amsgrad",
       [](Arguments& a) {
         optim::AmsgradOptions o{.learning_rate = a.schedule("learning_rate")};
         a("bias_correction_mu", o.bias_correction_mu)("bias_correction_nu", o.bias_correction_nu);
         return optim::amsgrad(moments(a, o));
       }},
      {"adamax", [](Arguments& a) { return with_moments<optim::AdamaxOptions>(a, optim::adamax); }},
      {"adamaxw", [](Arguments& a) { return with_moments<optim::AdamaxwOptions>(a, optim::adamaxw); }},
      {"adagrad",
       [](Arguments& a) {
         optim::AdagradOptions o{.learning_rate = a.schedule("learning_rate")};
         a("initial_accumulator_value", o.initial_accumulator_value)("eps", o.eps);
         return optim::adagrad(o);
       }},
      {"adadelta",
       [](Arguments& a) {
         optim::AdadeltaOptions o;
         a("learning_rate", o.learning_rate)("rho", o.rho)("eps", o.eps)("weight_decay", o.weight_decay);
         a("weight_decay_mask", o.weight_decay_mask);
         return optim::adadelta(o);
       }},
      {"adabelief", [](Arguments& a) { return with_moments<optim::AdabeliefOptions>(a, optim::adabelief); }},
      {"adan",
       [](Arguments& a) {
         optim::AdanOptions o{.learning_rate = a.schedule("learning_rate")};
         a("b3", o.b3);
         return optim::adan(decayed(a, moments(a, o)));
       }},
      {"rmsprop", rmsprop_of},
      {"lion",
       [](Arguments& a) {
         optim::LionOptions o{.learning_rate = a.schedule("learning_rate")};
         a("b1", o.b1)("b2", o.b2)("mu_dtype", o.mu_dtype);
         return optim::lion(decayed(a, o));
       }},
      {"lamb", [](Arguments& a) { return with_moments<optim::LambOptions>(a, optim::lamb); }},
      {"lars", lars_of},
      {"radam",
       [](Arguments& a) {
         optim::RadamOptions o{.learning_rate = a.schedule("learning_rate")};
         a("threshold", o.threshold);
         return optim::radam(moments(a, o));
       }},
      {"yogi", [](Arguments& a) { return with_moments<optim::YogiOptions>(a, optim::yogi); }},
      {"novograd",
       [](Arguments& a) {
         optim::NovogradOptions o{.learning_rate = a.schedule("learning_rate")};
         a("weight_decay", o.weight_decay);
         return optim::novograd(moments(a, o));
       }},
      {"adafactor", adafactor_of},
      {"sign_sgd", [](Arguments& a) { return optim::sign_sgd({a.schedule("learning_rate")}); }},
      {"signum",
       [](Arguments& a) {
         optim::SignumOptions o{.learning_rate = a.schedule("learning_rate")};
         a("beta", o.beta)("accumulator_dtype", o.accumulator_dtype);
         return optim::signum(o);
       }},
      {"ademamix", ademamix_of},
      {"adopt", [](Arguments& a) {
         optim::AdoptOptions o{.learning_rate = a.schedule("learning_rate")};
         return optim::adopt(adopt_of(a, o));
       }}};
  return table;
}

}  // namespace tessera::runner
