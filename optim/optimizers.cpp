// The optimizers' chains, and the checks of their options.
#include "optim/optimizers.h"

#include "optim/check_options.h"

namespace tessera::optim {

namespace {

void check(const char* verb, const Schedule& learning_rate, detail::Settings decays, detail::Settings bounds) {
  detail::check_rate(verb, "learning_rate", learning_rate);
  detail::check_options(verb, decays, bounds);
}

void check_decay(const char* verb, const Schedule& weight_decay) {
  detail::check_rate(verb, "weight_decay", weight_decay);
}

Optional<PerArray<Trace>> momentum_of(const char* verb, const std::optional<double>& momentum, bool nesterov,
                                      std::optional<DType> dtype) {
  if (!momentum) return {};
  detail::check_options(verb, {{"momentum", *momentum}}, {});
  return {PerArray<Trace>{Trace{*momentum, nesterov, dtype}}};
}

}  // namespace

Sgd sgd(SgdOptions o) {
  check("sgd", o.learning_rate, {}, {});
  return {{momentum_of("sgd", o.momentum, o.nesterov, o.accumulator_dtype), {o.learning_rate}}};
}

namespace {

PerArray<ScaleByAdam> adam_of(const char* verb, const AdamOptions& o) {
  check(verb, o.learning_rate, {{"b1", o.b1}, {"b2", o.b2}}, {{"eps", o.eps}, {"eps_root", o.eps_root}});
  return {ScaleByAdam{o.b1, o.b2, o.eps, o.eps_root, o.mu_dtype, o.nesterov}};
}

Adamw adamw_of(const char* verb, const AdamwOptions& o) {
  check_decay(verb, o.weight_decay);
  return {{adam_of(verb, {o.learning_rate, o.b1, o.b2, o.eps, o.eps_root, o.mu_dtype, o.nesterov}),
           {o.weight_decay, o.mask},
           {o.learning_rate}}};
}

}  // namespace

Adam adam(AdamOptions o) { return {{adam_of("adam", o), {o.learning_rate}}}; }

Adam nadam(AdamOptions o) {
  o.nesterov = true;
  return {{adam_of("nadam", o), {o.learning_rate}}};
}

Adamw adamw(AdamwOptions o) { return adamw_of("adamw", o); }

Adamw nadamw(AdamwOptions o) {
  o.nesterov = true;
  return adamw_of("nadamw", o);
}

Amsgrad amsgrad(AmsgradOptions o) {
  check("amsgrad", o.learning_rate, {{"b1", o.b1}, {"b2", o.b2}}, {{"eps", o.eps}, {"eps_root", o.eps_root}});
  return {{{ScaleByAmsgrad{o.b1, o.b2, o.eps, o.eps_root, o.mu_dtype, o.bias_correction_mu, o.bias_correction_nu}},
           {o.learning_rate}}};
}

Adamax adamax(AdamaxOptions o) {
  check("adamax", o.learning_rate, {{"b1", o.b1}, {"b2", o.b2}}, {{"eps", o.eps}});
  return {{{ScaleByAdamax{o.b1, o.b2, o.eps}}, {o.learning_rate}}};
}

Adamaxw adamaxw(AdamaxwOptions o) {
  check("adamaxw", o.learning_rate, {{"b1", o.b1}, {"b2", o.b2}}, {{"eps", o.eps}});
  check_decay("adamaxw", o.weight_decay);
  return {{{ScaleByAdamax{o.b1, o.b2, o.eps}}, {o.weight_decay, o.mask}, {o.learning_rate}}};
}

Adagrad adagrad(AdagradOptions o) {
  check("adagrad", o.learning_rate, {}, {{"initial_accumulator_value", o.initial_accumulator_value}, {"eps", o.eps}});
  return {{{ScaleByRss{o.initial_accumulator_value, o.eps}}, {o.learning_rate}}};
}

Adadelta adadelta(AdadeltaOptions o) {
  check("adadelta", o.learning_rate.value_or(0.0), {{"rho", o.rho}}, {{"eps", o.eps}});
  check_decay("adadelta", o.weight_decay);
  Adadelta result{{{o.weight_decay, o.weight_decay_mask}, {ScaleByAdadelta{o.rho, o.eps}}, {}}};
  if (o.learning_rate) std::get<2>(result.parts).inner = ScaleByLearningRate{*o.learning_rate};
  return result;
}

Adabelief adabelief(AdabeliefOptions o) {
  check("adabelief", o.learning_rate, {{"b1", o.b1}, {"b2", o.b2}}, {{"eps", o.eps}, {"eps_root", o.eps_root}});
  return {{{ScaleByBelief{o.b1, o.b2, o.eps, o.eps_root, o.nesterov}}, {o.learning_rate}}};
}

Adan adan(AdanOptions o) {
  check("adan", o.learning_rate, {{"b1", o.b1}, {"b2", o.b2}, {"b3", o.b3}},
        {{"eps", o.eps}, {"eps_root", o.eps_root}});
  check_decay("adan", o.weight_decay);
  return {{{ScaleByAdan{o.b1, o.b2, o.b3, o.eps, o.eps_root}}, {o.weight_decay, o.mask}, {o.learning_rate}}};
}

Rmsprop rmsprop(RmspropOptions o) {
  check("rmsprop", o.learning_rate, {{"decay", o.decay}}, {{"eps", o.eps}, {"initial_scale", o.initial_scale}});
  const ScaleByRms rms{o.decay, o.eps, o.initial_scale, o.eps_in_sqrt, o.bias_correction};
  const ScaleByStddev stddev{o.decay, o.eps, o.initial_scale, o.eps_in_sqrt, o.bias_correction};
  return {{detail::when(!o.centered, PerArray<ScaleByRms>{rms}),
           detail::when(o.centered, PerArray<ScaleByStddev>{stddev}),
           {o.learning_rate},
           momentum_of("rmsprop", o.momentum, o.nesterov, {})}};
}

Lion lion(LionOptions o) {
  check("lion", o.learning_rate, {{"b1", o.b1}, {"b2", o.b2}}, {});
  check_decay("lion", o.weight_decay);
  return {{{ScaleByLion{o.b1, o.b2, o.mu_dtype}}, {o.weight_decay, o.mask}, {o.learning_rate}}};
}

Lamb lamb(LambOptions o) {
  check("lamb", o.learning_rate, {{"b1", o.b1}, {"b2", o.b2}}, {{"eps", o.eps}, {"eps_root", o.eps_root}});
  check_decay("lamb", o.weight_decay);
  return {{{ScaleByAdam{o.b1, o.b2, o.eps, o.eps_root}}, {o.weight_decay, o.mask}, {}, {o.learning_rate}}};
}

Array MaskedTrustRatio::operator()(const ArrayStep& step) const {
  return mask(step.parameter) ? ratio(step) : step.gradient;
}

Lars lars(LarsOptions o) {
  check("lars", o.learning_rate, {{"momentum", o.momentum}}, {{"eps", o.eps}});
  check_decay("lars", o.weight_decay);
  detail::check_finite("lars", "trust_coefficient", o.trust_coefficient);
  return {{{o.weight_decay, o.weight_decay_mask},
           {MaskedTrustRatio{{0, o.trust_coefficient, o.eps}, o.trust_ratio_mask}},
           {o.learning_rate},
           {Trace{o.momentum, o.nesterov}}}};
}

Radam radam(RadamOptions o) {
  detail::check_finite("radam", "threshold", o.threshold);
  check("radam", o.learning_rate, {{"b1", o.b1}, {"b2", o.b2}}, {{"eps", o.eps}, {"eps_root", o.eps_root}});
  return {{{ScaleByRadam{o.b1, o.b2, o.eps, o.eps_root, o.threshold, o.nesterov}}, {o.learning_rate}}};
}

Yogi yogi(YogiOptions o) {
  check("yogi", o.learning_rate, {{"b1", o.b1}, {"b2", o.b2}}, {{"eps", o.eps}});
  return {{{ScaleByYogi{o.b1, o.b2, o.eps}}, {o.learning_rate}}};
}

Novograd novograd(NovogradOptions o) {
  check("novograd", o.learning_rate, {{"b1", o.b1}, {"b2", o.b2}},
        {{"eps", o.eps}, {"eps_root", o.eps_root}, {"weight_decay", o.weight_decay}});
  return {{ScaleByNovograd{o.b1, o.b2, o.eps, o.eps_root, o.weight_decay}, {o.learning_rate}}};
}

Adafactor adafactor(AdafactorOptions o) {
  check("adafactor", o.learning_rate.value_or(0.0), {}, {{"decay_rate", o.decay_rate}, {"eps", o.eps}});
  check_decay("adafactor", o.weight_decay_rate.value_or(0.0));
  Adafactor result{{{o.factored, o.decay_rate, o.decay_offset, o.min_dim_size_to_factor, o.eps},
                    {},
                    {},
                    detail::when(o.multiply_by_parameter_scale, PerArray<ScaleByParamBlockRms>{}),
                    {},
                    {},
                    {-1.0}}};
  auto& parts = result.parts;
  if (o.clipping_threshold) std::get<1>(parts).inner = clip_by_block_rms(*o.clipping_threshold);
  if (o.learning_rate) std::get<2>(parts).inner = ScaleByLearningRate{*o.learning_rate, false};
  if (o.momentum) std::get<4>(parts).inner = ema({*o.momentum, false, o.dtype_momentum});
  if (o.weight_decay_rate) std::get<5>(parts).inner = AddDecayedWeights{*o.weight_decay_rate, o.weight_decay_mask};
  return result;
}

SignSgd sign_sgd(SignSgdOptions o) {
  check("sign_sgd", o.learning_rate, {}, {});
  return {{{}, {o.learning_rate}}};
}

Signum signum(SignumOptions o) {
  check("signum", o.learning_rate, {{"beta", o.beta}}, {});
  return {{{Ema{o.beta, false, o.accumulator_dtype}}, {}, {o.learning_rate}}};
}

Ademamix ademamix(AdemamixOptions o) {
  check("ademamix", o.learning_rate, {{"b1", o.b1}, {"b2", o.b2}}, {{"eps", o.eps}, {"eps_root", o.eps_root}});
  check_decay("ademamix", o.weight_decay);
  detail::check_constant_decay("ademamix", "b3", o.b3);
  return {{{ScaleByAdemamix{o.b1, o.b2, o.b3, o.alpha, o.eps, o.eps_root, o.mu_dtype}},
           {o.weight_decay, o.mask},
           {o.learning_rate}}};
}

Adopt adopt(AdoptOptions o) {
  check("adopt", o.learning_rate, {{"b1", o.b1}, {"b2", o.b2}}, {{"eps", o.eps}});
  if (o.clip_value) detail::check_constant_bound("adopt", "clip_value", *o.clip_value);
  return {{{ScaleByAdopt{o.b1, o.b2, o.eps, o.mu_dtype, o.nesterov, o.use_clipping, o.clip_value}}, {o.learning_rate}}};
}

}  // namespace tessera::optim
