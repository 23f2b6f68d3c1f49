// The optimizers of Optax: chains of its transforms, with its names and defaults.
#pragma once

#include "optim/formulas/adaptive.h"
#include "optim/formulas/clipping.h"
#include "optim/formulas/factored.h"
#include "optim/formulas/muon.h"
#include "optim/formulas/scaling.h"
#include "optim/schedules/schedule.h"
#include "optim/wrappers/chain.h"
#include "optim/wrappers/masking.h"

namespace tessera::optim {

// Every optimizer takes its options by name, adamw({.learning_rate = 3e-4, .b2 = 0.95}), and is a chain. Its formula is
// documented at its first transform. In the formulas g is the gradient, p the parameter and lr the learning rate: a
// number, or a schedule, which the first update evaluates at 0.
// Errors of every optimizer (invalid_argument): a learning rate or another number that is not finite; a decay (b1, b2,
// momentum, ...) outside [0, 1); a bound (eps, ...) that is negative.

struct SgdOptions {
  Schedule learning_rate;
  std::optional<double> momentum = std::nullopt;
  bool nesterov = false;
  std::optional<DType> accumulator_dtype = std::nullopt;
};
// Stochastic gradient descent: -lr g, or with momentum -lr trace(g).
using Sgd = Chain<Optional<PerArray<Trace>>, ScaleByLearningRate>;
Sgd sgd(SgdOptions options);

struct AdamOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0;
  std::optional<DType> mu_dtype = std::nullopt;
  bool nesterov = false;
};
// Adam: -lr adam(g). nadam is adam with nesterov.
using Adam = Chain<PerArray<ScaleByAdam>, ScaleByLearningRate>;
Adam adam(AdamOptions options);
Adam nadam(AdamOptions options);

struct AdamwOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0;
  Schedule weight_decay = 1e-4;  // Optax's default; PyTorch's is 1e-2
  Mask mask = {};                // which parameters decay; default: all
  std::optional<DType> mu_dtype = std::nullopt;
  bool nesterov = false;
  bool cautious_weight_decay = false;
};
// Adam with decoupled weight decay: -lr (adam(g) + weight_decay p).
// Loshchilov and Hutter, "Decoupled weight decay regularization" (2019).
//   adamw({.learning_rate = 3e-4, .weight_decay = 0.1, .mask = optim::matrices_only})
// cautious_weight_decay is documented at AddDecayedWeights; no fused kernel computes it.
using Adamw = Chain<PerArray<ScaleByAdam>, AddDecayedWeights, ScaleByLearningRate>;
Adamw adamw(AdamwOptions options);
Adamw nadamw(AdamwOptions options);

struct AmsgradOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0;
  std::optional<DType> mu_dtype = std::nullopt;
  bool bias_correction_mu = true, bias_correction_nu = true;
};
using Amsgrad = Chain<PerArray<ScaleByAmsgrad>, ScaleByLearningRate>;
Amsgrad amsgrad(AmsgradOptions options);

struct AdamaxOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999, eps = 1e-8;
};
using Adamax = Chain<PerArray<ScaleByAdamax>, ScaleByLearningRate>;
Adamax adamax(AdamaxOptions options);

struct AdamaxwOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999, eps = 1e-8;
  Schedule weight_decay = 1e-4;
  Mask mask = {};
};
using Adamaxw = Chain<PerArray<ScaleByAdamax>, AddDecayedWeights, ScaleByLearningRate>;
Adamaxw adamaxw(AdamaxwOptions options);

struct AdagradOptions {
  Schedule learning_rate;
  double initial_accumulator_value = 0.1, eps = 1e-7;
};
using Adagrad = Chain<PerArray<ScaleByRss>, ScaleByLearningRate>;
Adagrad adagrad(AdagradOptions options);

struct AdadeltaOptions {
  std::optional<Schedule> learning_rate = std::nullopt;  // default: the update is not scaled, and its sign not changed
  double rho = 0.9, eps = 1e-6;
  Schedule weight_decay = 0.0;
  Mask weight_decay_mask = {};
};
// Adadelta: -lr adadelta(g + weight_decay p). Without a learning rate the sign is not changed: add scale(-1) after it,
// as in Optax.
using Adadelta = Chain<AddDecayedWeights, PerArray<ScaleByAdadelta>, Optional<ScaleByLearningRate>>;
Adadelta adadelta(AdadeltaOptions options);

struct AdabeliefOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999, eps = 1e-16, eps_root = 1e-16;
  bool nesterov = false;
};
using Adabelief = Chain<PerArray<ScaleByBelief>, ScaleByLearningRate>;
Adabelief adabelief(AdabeliefOptions options);

struct AdanOptions {
  Schedule learning_rate;
  double b1 = 0.98, b2 = 0.92, b3 = 0.99, eps = 1e-8, eps_root = 1e-8;
  Schedule weight_decay = 0.0;
  Mask mask = {};
};
using Adan = Chain<PerArray<ScaleByAdan>, AddDecayedWeights, ScaleByLearningRate>;
Adan adan(AdanOptions options);

struct RmspropOptions {
  Schedule learning_rate;
  double decay = 0.9, eps = 1e-8, initial_scale = 0;
  bool eps_in_sqrt = true, centered = false;
  std::optional<double> momentum = std::nullopt;
  bool nesterov = false, bias_correction = false;
};
// RMSProp: trace(-lr rms(g)). Momentum comes after the learning rate.
using Rmsprop = Chain<Optional<PerArray<ScaleByRms>>, Optional<PerArray<ScaleByStddev>>, ScaleByLearningRate,
                      Optional<PerArray<Trace>>>;
Rmsprop rmsprop(RmspropOptions options);

struct LionOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.99;
  Schedule weight_decay = 1e-3;
  Mask mask = {};
  std::optional<DType> mu_dtype = std::nullopt;
  bool cautious_weight_decay = false;
};
using Lion = Chain<PerArray<ScaleByLion>, AddDecayedWeights, ScaleByLearningRate>;
Lion lion(LionOptions options);

struct LambOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999, eps = 1e-6, eps_root = 0;
  Schedule weight_decay = 0.0;
  Mask mask = {};
};
// LAMB: -lr trust_ratio(adam(g) + weight_decay p).
// You et al., "Large batch optimization for deep learning: training BERT in 76 minutes" (2020).
using Lamb = Chain<PerArray<ScaleByAdam>, AddDecayedWeights, PerArray<ScaleByTrustRatio>, ScaleByLearningRate>;
Lamb lamb(LambOptions options);

struct LarsOptions {
  Schedule learning_rate;
  Schedule weight_decay = 0.0;
  Mask weight_decay_mask = {};
  double trust_coefficient = 1e-3, eps = 0;
  Mask trust_ratio_mask = {};
  double momentum = 0.9;
  bool nesterov = false;
};
// Scales by the trust ratio the parameters that the mask selects.
struct MaskedTrustRatio {
  ScaleByTrustRatio ratio;
  Mask mask;

  static constexpr const char* name = "lars";
  Array operator()(const ArrayStep& step) const;
};
// LARS: trace(-lr trust_ratio(g + weight_decay p)). You, Gitman and Ginsburg (2017).
using Lars = Chain<AddDecayedWeights, PerArray<MaskedTrustRatio>, ScaleByLearningRate, PerArray<Trace>>;
Lars lars(LarsOptions options);

struct RadamOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999, eps = 1e-8, eps_root = 0, threshold = 5;
  bool nesterov = false;
};
using Radam = Chain<PerArray<ScaleByRadam>, ScaleByLearningRate>;
Radam radam(RadamOptions options);

struct YogiOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999, eps = 1e-3;
};
using Yogi = Chain<PerArray<ScaleByYogi>, ScaleByLearningRate>;
Yogi yogi(YogiOptions options);

struct NovogradOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.25, eps = 1e-6, eps_root = 0, weight_decay = 0;
};
using Novograd = Chain<ScaleByNovograd, ScaleByLearningRate>;
Novograd novograd(NovogradOptions options);

struct AdafactorOptions {
  std::optional<Schedule> learning_rate = std::nullopt;
  int64_t min_dim_size_to_factor = 128;
  double decay_rate = 0.8;
  int64_t decay_offset = 0;
  bool multiply_by_parameter_scale = true;
  std::optional<double> clipping_threshold = 1.0;
  std::optional<double> momentum = std::nullopt;
  DType dtype_momentum = DType::float32;
  std::optional<Schedule> weight_decay_rate = std::nullopt;
  double eps = 1e-30;
  bool factored = true;
  Mask weight_decay_mask = {};
};
// Adafactor: -(lr param_scale clip_by_block_rms(factored_rms(g)) + weight_decay_rate p). lr does not multiply the
// weight decay.
using Adafactor =
    Chain<ScaleByFactoredRms, Optional<PerArray<ClipByBlockRms>>, Optional<ScaleByLearningRate>,
          Optional<PerArray<ScaleByParamBlockRms>>, Optional<PerArray<Ema>>, Optional<AddDecayedWeights>, Scale>;
Adafactor adafactor(AdafactorOptions options);

struct SignSgdOptions {
  Schedule learning_rate;
};
// signSGD: -lr sign(g). Bernstein et al., "signSGD: compressed optimisation for non-convex problems" (2018).
using SignSgd = Chain<PerArray<ScaleBySign>, ScaleByLearningRate>;
SignSgd sign_sgd(SignSgdOptions options);

struct SignumOptions {
  Schedule learning_rate;
  double beta = 0.9;
  std::optional<DType> accumulator_dtype = std::nullopt;
};
// Signum: -lr sign(ema(g)).
using Signum = Chain<PerArray<Ema>, PerArray<ScaleBySign>, ScaleByLearningRate>;
Signum signum(SignumOptions options);

struct AdemamixOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.999;
  Schedule b3 = 0.9999;
  Schedule alpha = 5.0;
  double eps = 1e-8, eps_root = 0;
  Schedule weight_decay = 0.0;
  Mask mask = {};
  std::optional<DType> mu_dtype = std::nullopt;
};
using Ademamix = Chain<PerArray<ScaleByAdemamix>, AddDecayedWeights, ScaleByLearningRate>;
Ademamix ademamix(AdemamixOptions options);

struct AdoptOptions {
  Schedule learning_rate;
  double b1 = 0.9, b2 = 0.9999, eps = 1e-6;
  std::optional<DType> mu_dtype = std::nullopt;
  bool nesterov = false, use_clipping = true;
  std::optional<Schedule> clip_value = std::nullopt;
};
using Adopt = Chain<PerArray<ScaleByAdopt>, ScaleByLearningRate>;
Adopt adopt(AdoptOptions options);

struct MuonOptions {
  Schedule learning_rate;
  std::vector<NewtonSchulzCoefficients> ns_coeffs = {{3.4445, -4.7750, 2.0315}};
  int64_t ns_steps = 5;
  double beta = 0.95, eps = 1e-8;
  Schedule weight_decay = 0.0;
  Mask weight_decay_mask = {};
  std::optional<DType> mu_dtype = std::nullopt;
  bool nesterov = true, adaptive = false;
  Preconditioning preconditioning = Preconditioning::frobenius;
  double adam_b1 = 0.9, adam_b2 = 0.999, adam_eps_root = 0;
  Schedule adam_weight_decay = 0.0;
  std::optional<Schedule> adam_learning_rate = std::nullopt;  // default: learning_rate
  std::optional<double> consistent_rms = std::nullopt;        // 0.2 makes updates as large as Adam's
  bool cautious_weight_decay = false;
  WeightDimensionNumbers muon_weight_dimension_numbers = {};  // default: parameters with two dimensions
};

// Muon: -lr (shape(muon(g)) + weight_decay p) for the parameters of two dimensions, and adamw for the others, both with
// the same eps, nesterov and cautious_weight_decay. Kernels (experts, in, out) of experts are stacks of matrices:
//   muon({.learning_rate = 0.02, .muon_weight_dimension_numbers = optim::stacked_matrices})
// To choose the matrices yourself, write partition(labels, "muon", muon_matrices(...), "adam", adamw(...)).
using MuonMatrices = Chain<ScaleByMuon, PerArray<ScaleByShape>, AddDecayedWeights, ScaleByLearningRate>;
using Muon = Partition<MuonMatrices, Adamw>;
Muon muon(MuonOptions options);
// Returns only the transform for matrices.
MuonMatrices muon_matrices(MuonOptions options);

}  // namespace tessera::optim
