// The optimizers' sentences: what each chains. Their errors name the optimizer, not the transform that checks a number.
#include "optim/optimizer/optimizers.h"

#include "optim/schedules/check_options.h"
#include "sharding/base/error.h"

namespace tessera::optim {

namespace {

// trace, whose decay is the momentum of an optimizer.
PerArray<Trace> momentum(double decay, bool nesterov, std::optional<DType> accumulator_dtype = std::nullopt) try {
  return trace({decay, nesterov, accumulator_dtype});
} catch (const Error& error) {
  detail::blame("trace", error, {{"decay", "momentum"}});
}

}  // namespace

Sgd sgd(SgdOptions o) try {
  const auto traced = [&](double decay) { return momentum(decay, o.nesterov, o.accumulator_dtype); };
  return chain(detail::where_given(o.momentum, traced), scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("sgd", error);
}

Adam adam(AdamOptions o) try {
  return chain(scale_by_adam({o.b1, o.b2, o.eps, o.eps_root, o.mu_dtype, o.nesterov}),
               scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("adam", error);
}

Adam nadam(AdamOptions o) try {
  o.nesterov = true;
  return adam(o);
} catch (const Error& error) {
  detail::blame("nadam", error);
}

Adamw adamw(AdamwOptions o) try {
  return chain(scale_by_adam({o.b1, o.b2, o.eps, o.eps_root, o.mu_dtype, o.nesterov}),
               add_decayed_weights(o.weight_decay, o.mask), scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("adamw", error);
}

Adamw nadamw(AdamwOptions o) try {
  o.nesterov = true;
  return adamw(o);
} catch (const Error& error) {
  detail::blame("nadamw", error);
}

Amsgrad amsgrad(AmsgradOptions o) try {
  return chain(
      scale_by_amsgrad({o.b1, o.b2, o.eps, o.eps_root, o.mu_dtype, o.bias_correction_mu, o.bias_correction_nu}),
      scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("amsgrad", error);
}

Adamax adamax(AdamaxOptions o) try {
  return chain(scale_by_adamax({o.b1, o.b2, o.eps}), scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("adamax", error);
}

Adamaxw adamaxw(AdamaxwOptions o) try {
  return chain(scale_by_adamax({o.b1, o.b2, o.eps}), add_decayed_weights(o.weight_decay, o.mask),
               scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("adamaxw", error);
}

Adagrad adagrad(AdagradOptions o) try {
  return chain(scale_by_rss({o.initial_accumulator_value, o.eps}), scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("adagrad", error);
}

Adadelta adadelta(AdadeltaOptions o) try {
  const auto scaled = [](const Schedule& rate) { return scale_by_learning_rate(rate); };
  return chain(add_decayed_weights(o.weight_decay, o.weight_decay_mask), scale_by_adadelta({o.rho, o.eps}),
               detail::where_given(o.learning_rate, scaled));
} catch (const Error& error) {
  detail::blame("adadelta", error);
}

Adabelief adabelief(AdabeliefOptions o) try {
  return chain(scale_by_belief({o.b1, o.b2, o.eps, o.eps_root, o.nesterov}), scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("adabelief", error);
}

Adan adan(AdanOptions o) try {
  return chain(scale_by_adan({o.b1, o.b2, o.b3, o.eps, o.eps_root}), add_decayed_weights(o.weight_decay, o.mask),
               scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("adan", error);
}

Rmsprop rmsprop(RmspropOptions o) try {
  const auto traced = [&](double decay) { return momentum(decay, o.nesterov); };
  return chain(
      detail::when(!o.centered, scale_by_rms({o.decay, o.eps, o.initial_scale, o.eps_in_sqrt, o.bias_correction})),
      detail::when(o.centered, scale_by_stddev({o.decay, o.eps, o.initial_scale, o.eps_in_sqrt, o.bias_correction})),
      scale_by_learning_rate(o.learning_rate), detail::where_given(o.momentum, traced));
} catch (const Error& error) {
  detail::blame("rmsprop", error);
}

Lion lion(LionOptions o) try {
  return chain(scale_by_lion({o.b1, o.b2, o.mu_dtype}), add_decayed_weights(o.weight_decay, o.mask),
               scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("lion", error);
}

Lamb lamb(LambOptions o) try {
  return chain(scale_by_adam({o.b1, o.b2, o.eps, o.eps_root}), add_decayed_weights(o.weight_decay, o.mask),
               scale_by_trust_ratio(), scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("lamb", error);
}

Array MaskedTrustRatio::operator()(const ArrayStep& step) const {
  return mask(step.parameter) ? ratio(step) : step.gradient;
}

Lars lars(LarsOptions o) try {
  const ScaleByTrustRatio ratio = scale_by_trust_ratio({0, o.trust_coefficient, o.eps});
  return chain(add_decayed_weights(o.weight_decay, o.weight_decay_mask),
               PerArray<MaskedTrustRatio>{{ratio, o.trust_ratio_mask}}, scale_by_learning_rate(o.learning_rate),
               momentum(o.momentum, o.nesterov));
} catch (const Error& error) {
  detail::blame("lars", error);
}

Radam radam(RadamOptions o) try {
  return chain(scale_by_radam({o.b1, o.b2, o.eps, o.eps_root, o.threshold, o.nesterov}),
               scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("radam", error);
}

Yogi yogi(YogiOptions o) try {
  return chain(scale_by_yogi({o.b1, o.b2, o.eps}), scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("yogi", error);
}

Novograd novograd(NovogradOptions o) try {
  return chain(scale_by_novograd({o.b1, o.b2, o.eps, o.eps_root, o.weight_decay}),
               scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("novograd", error);
}

Adafactor adafactor(AdafactorOptions o) try {
  const auto scaled = [](const Schedule& rate) { return scale_by_learning_rate(rate, false); };
  const auto averaged = [&](double decay) { return ema({decay, false, o.dtype_momentum}); };
  const auto decayed = [&](const Schedule& rate) { return add_decayed_weights(rate, o.weight_decay_mask); };
  return chain(scale_by_factored_rms({o.factored, o.decay_rate, o.decay_offset, o.min_dim_size_to_factor, o.eps}),
               detail::where_given(o.clipping_threshold, clip_by_block_rms),
               detail::where_given(o.learning_rate, scaled),
               detail::when(o.multiply_by_parameter_scale, scale_by_param_block_rms()),
               detail::where_given(o.momentum, averaged), detail::where_given(o.weight_decay_rate, decayed), scale(-1));
} catch (const Error& error) {
  detail::blame("adafactor", error, {{"decay", "momentum"}, {"epsilon", "eps"}});
}

SignSgd sign_sgd(SignSgdOptions o) try {
  return chain(scale_by_sign(), scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("sign_sgd", error);
}

Signum signum(SignumOptions o) try {
  return chain(ema({o.beta, false, o.accumulator_dtype}), scale_by_sign(), scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("signum", error, {{"decay", "beta"}});
}

Ademamix ademamix(AdemamixOptions o) try {
  return chain(scale_by_ademamix({o.b1, o.b2, o.b3, o.alpha, o.eps, o.eps_root, o.mu_dtype}),
               add_decayed_weights(o.weight_decay, o.mask), scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("ademamix", error);
}

Adopt adopt(AdoptOptions o) try {
  return chain(scale_by_adopt({o.b1, o.b2, o.eps, o.mu_dtype, o.nesterov, o.use_clipping, o.clip_value}),
               scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("adopt", error);
}

MuonMatrices muon_matrices(MuonOptions o) try {
  return chain(
      scale_by_muon({o.ns_coeffs, o.ns_steps, o.beta, o.eps, o.mu_dtype, o.nesterov, o.adaptive, o.preconditioning}),
      scale_by_shape(o.consistent_rms), add_decayed_weights(o.weight_decay, o.weight_decay_mask),
      scale_by_learning_rate(o.learning_rate));
} catch (const Error& error) {
  detail::blame("muon", error);
}

namespace {

Adamw muon_others(const MuonOptions& o) try {
  return adamw({.learning_rate = o.adam_learning_rate.value_or(o.learning_rate),
                .b1 = o.adam_b1,
                .b2 = o.adam_b2,
                .eps = o.eps,
                .eps_root = o.adam_eps_root,
                .weight_decay = o.adam_weight_decay,
                .mu_dtype = o.mu_dtype,
                .nesterov = o.nesterov});
} catch (const Error& error) {
  detail::blame("muon", error, {{"learning_rate", "adam_learning_rate"}, {"weight_decay", "adam_weight_decay"}});
}

}  // namespace

Muon muon(MuonOptions o) {
  detail::check_options("muon", {{"adam_b1", o.adam_b1}, {"adam_b2", o.adam_b2}}, {{"adam_eps_root", o.adam_eps_root}});
  const auto label = [](const std::string&, const Array& p) { return p.ndim() == 2 ? "muon" : "adam"; };
  return partition(Labels(label), "muon", muon_matrices(o), "adam", muon_others(o));
}

}  // namespace tessera::optim
