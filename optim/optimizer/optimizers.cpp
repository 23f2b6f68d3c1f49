// Builds the optimizers' chains. Their errors name the optimizer, not the transform that checks a number.
#include "optim/optimizer/optimizers.h"

#include "optim/schedules/check_options.h"

namespace tessera::optim {

namespace {

// Returns trace; its decay is the optimizer's momentum.
PerArray<Trace> momentum(double decay, bool nesterov, std::optional<DType> accumulator_dtype = std::nullopt) {
  const detail::SettingNames scope("trace", {{"decay", "momentum"}});
  return trace({decay, nesterov, accumulator_dtype});
}

}  // namespace

Sgd sgd(SgdOptions o) {
  const detail::SettingNames scope("sgd");
  const auto traced = [&](double decay) { return momentum(decay, o.nesterov, o.accumulator_dtype); };
  return chain(detail::where_given(o.momentum, traced), scale_by_learning_rate(o.learning_rate));
}

Adam adam(AdamOptions o) {
  const detail::SettingNames scope("adam");
  return chain(scale_by_adam({o.b1, o.b2, o.eps, o.eps_root, o.mu_dtype, o.nesterov}),
               scale_by_learning_rate(o.learning_rate));
}

Adam nadam(AdamOptions o) {
  const detail::SettingNames scope("nadam");
  o.nesterov = true;
  return adam(o);
}

Adamw adamw(AdamwOptions o) {
  const detail::SettingNames scope("adamw");
  return chain(scale_by_adam({o.b1, o.b2, o.eps, o.eps_root, o.mu_dtype, o.nesterov}),
               add_decayed_weights(o.weight_decay, o.mask, o.cautious_weight_decay),
               scale_by_learning_rate(o.learning_rate));
}

Adamw nadamw(AdamwOptions o) {
  const detail::SettingNames scope("nadamw");
  o.nesterov = true;
  return adamw(o);
}

Amsgrad amsgrad(AmsgradOptions o) {
  const detail::SettingNames scope("amsgrad");
  return chain(
      scale_by_amsgrad({o.b1, o.b2, o.eps, o.eps_root, o.mu_dtype, o.bias_correction_mu, o.bias_correction_nu}),
      scale_by_learning_rate(o.learning_rate));
}

Adamax adamax(AdamaxOptions o) {
  const detail::SettingNames scope("adamax");
  return chain(scale_by_adamax({o.b1, o.b2, o.eps}), scale_by_learning_rate(o.learning_rate));
}

Adamaxw adamaxw(AdamaxwOptions o) {
  const detail::SettingNames scope("adamaxw");
  return chain(scale_by_adamax({o.b1, o.b2, o.eps}), add_decayed_weights(o.weight_decay, o.mask),
               scale_by_learning_rate(o.learning_rate));
}

Adagrad adagrad(AdagradOptions o) {
  const detail::SettingNames scope("adagrad");
  return chain(scale_by_rss({o.initial_accumulator_value, o.eps}), scale_by_learning_rate(o.learning_rate));
}

Adadelta adadelta(AdadeltaOptions o) {
  const detail::SettingNames scope("adadelta");
  const auto scaled = [](const Schedule& rate) { return scale_by_learning_rate(rate); };
  return chain(add_decayed_weights(o.weight_decay, o.weight_decay_mask), scale_by_adadelta({o.rho, o.eps}),
               detail::where_given(o.learning_rate, scaled));
}

Adabelief adabelief(AdabeliefOptions o) {
  const detail::SettingNames scope("adabelief");
  return chain(scale_by_belief({o.b1, o.b2, o.eps, o.eps_root, o.nesterov}), scale_by_learning_rate(o.learning_rate));
}

Adan adan(AdanOptions o) {
  const detail::SettingNames scope("adan");
  return chain(scale_by_adan({o.b1, o.b2, o.b3, o.eps, o.eps_root}), add_decayed_weights(o.weight_decay, o.mask),
               scale_by_learning_rate(o.learning_rate));
}

Rmsprop rmsprop(RmspropOptions o) {
  const detail::SettingNames scope("rmsprop");
  const auto traced = [&](double decay) { return momentum(decay, o.nesterov); };
  return chain(
      detail::when(!o.centered, scale_by_rms({o.decay, o.eps, o.initial_scale, o.eps_in_sqrt, o.bias_correction})),
      detail::when(o.centered, scale_by_stddev({o.decay, o.eps, o.initial_scale, o.eps_in_sqrt, o.bias_correction})),
      scale_by_learning_rate(o.learning_rate), detail::where_given(o.momentum, traced));
}

Lion lion(LionOptions o) {
  const detail::SettingNames scope("lion");
  return chain(scale_by_lion({o.b1, o.b2, o.mu_dtype}),
               add_decayed_weights(o.weight_decay, o.mask, o.cautious_weight_decay),
               scale_by_learning_rate(o.learning_rate));
}

Lamb lamb(LambOptions o) {
  const detail::SettingNames scope("lamb");
  return chain(scale_by_adam({o.b1, o.b2, o.eps, o.eps_root}), add_decayed_weights(o.weight_decay, o.mask),
               scale_by_trust_ratio(), scale_by_learning_rate(o.learning_rate));
}

Array MaskedTrustRatio::operator()(const ArrayStep& step) const {
  return mask(step.parameter) ? ratio(step) : step.gradient;
}

Lars lars(LarsOptions o) {
  const detail::SettingNames scope("lars");
  const ScaleByTrustRatio ratio = scale_by_trust_ratio({0, o.trust_coefficient, o.eps});
  return chain(add_decayed_weights(o.weight_decay, o.weight_decay_mask),
               PerArray<MaskedTrustRatio>{{ratio, o.trust_ratio_mask}}, scale_by_learning_rate(o.learning_rate),
               momentum(o.momentum, o.nesterov));
}

Radam radam(RadamOptions o) {
  const detail::SettingNames scope("radam");
  return chain(scale_by_radam({o.b1, o.b2, o.eps, o.eps_root, o.threshold, o.nesterov}),
               scale_by_learning_rate(o.learning_rate));
}

Yogi yogi(YogiOptions o) {
  const detail::SettingNames scope("yogi");
  return chain(scale_by_yogi({o.b1, o.b2, o.eps}), scale_by_learning_rate(o.learning_rate));
}

Novograd novograd(NovogradOptions o) {
  const detail::SettingNames scope("novograd");
  return chain(scale_by_novograd({o.b1, o.b2, o.eps, o.eps_root, o.weight_decay}),
               scale_by_learning_rate(o.learning_rate));
}

Adafactor adafactor(AdafactorOptions o) {
  const detail::SettingNames scope("adafactor", {{"decay", "momentum"}, {"epsilon", "eps"}});
  const auto scaled = [](const Schedule& rate) { return scale_by_learning_rate(rate, false); };
  const auto averaged = [&](double decay) { return ema({decay, false, o.dtype_momentum}); };
  const auto decayed = [&](const Schedule& rate) { return add_decayed_weights(rate, o.weight_decay_mask); };
  return chain(scale_by_factored_rms({o.factored, o.decay_rate, o.decay_offset, o.min_dim_size_to_factor, o.eps}),
               detail::where_given(o.clipping_threshold, clip_by_block_rms),
               detail::where_given(o.learning_rate, scaled),
               detail::when(o.multiply_by_parameter_scale, scale_by_param_block_rms()),
               detail::where_given(o.momentum, averaged), detail::where_given(o.weight_decay_rate, decayed), scale(-1));
}

SignSgd sign_sgd(SignSgdOptions o) {
  const detail::SettingNames scope("sign_sgd");
  return chain(scale_by_sign(), scale_by_learning_rate(o.learning_rate));
}

Signum signum(SignumOptions o) {
  const detail::SettingNames scope("signum", {{"decay", "beta"}});
  return chain(ema({o.beta, false, o.accumulator_dtype}), scale_by_sign(), scale_by_learning_rate(o.learning_rate));
}

Ademamix ademamix(AdemamixOptions o) {
  const detail::SettingNames scope("ademamix");
  return chain(scale_by_ademamix({o.b1, o.b2, o.b3, o.alpha, o.eps, o.eps_root, o.mu_dtype}),
               add_decayed_weights(o.weight_decay, o.mask), scale_by_learning_rate(o.learning_rate));
}

Adopt adopt(AdoptOptions o) {
  const detail::SettingNames scope("adopt");
  return chain(scale_by_adopt({o.b1, o.b2, o.eps, o.mu_dtype, o.nesterov, o.use_clipping, o.clip_value}),
               scale_by_learning_rate(o.learning_rate));
}

MuonMatrices muon_matrices(MuonOptions o) {
  const detail::SettingNames scope("muon");
  return chain(scale_by_muon({o.ns_coeffs, o.ns_steps, o.beta, o.eps, o.mu_dtype, o.nesterov, o.adaptive,
                              o.preconditioning, o.muon_weight_dimension_numbers}),
               scale_by_shape(o.consistent_rms, o.muon_weight_dimension_numbers),
               add_decayed_weights(o.weight_decay, o.weight_decay_mask, o.cautious_weight_decay),
               scale_by_learning_rate(o.learning_rate));
}

namespace {

Adamw muon_others(const MuonOptions& o) {
  const detail::SettingNames scope("muon",
                                   {{"learning_rate", "adam_learning_rate"}, {"weight_decay", "adam_weight_decay"}});
  return adamw({.learning_rate = o.adam_learning_rate.value_or(o.learning_rate),
                .b1 = o.adam_b1,
                .b2 = o.adam_b2,
                .eps = o.eps,
                .eps_root = o.adam_eps_root,
                .weight_decay = o.adam_weight_decay,
                .mu_dtype = o.mu_dtype,
                .nesterov = o.nesterov,
                .cautious_weight_decay = o.cautious_weight_decay});
}

}  // namespace

Muon muon(MuonOptions o) {
  detail::check_options("muon", {{"adam_b1", o.adam_b1}, {"adam_b2", o.adam_b2}}, {{"adam_eps_root", o.adam_eps_root}});
  const auto label = [numbers = o.muon_weight_dimension_numbers](const std::string&, const nn::Leaf& p) {
    return detail::numbers_of(numbers, p) ? "muon" : "adam";
  };
  return partition(Labels(label), "muon", muon_matrices(o), "adam", muon_others(o));
}

}  // namespace tessera::optim
