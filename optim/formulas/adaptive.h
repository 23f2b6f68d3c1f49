// Adaptive scaling: Adam and its successors, each as the formula of one array.
#pragma once

#include "optim/formulas/per_array.h"
#include "optim/schedules/schedule.h"

namespace tessera::optim {

// Names, defaults and formulas are Optax's. g is the gradient; t is the number of the update, from 1. The equations of
// a formula are computed in order; the expression without "=" is the update. mu_dtype is the element type of the first
// moment.

// Scales by Adam.
//   mu = b1 mu + (1 - b1) g;  nu = b2 nu + (1 - b2) g^2
//   (mu / (1 - b1^t)) / (sqrt(nu / (1 - b2^t) + eps_root) + eps)
//   with nesterov: (b1 mu / (1 - b1^(t+1)) + (1 - b1) g / (1 - b1^t)) / ...
// Kingma and Ba, "Adam: a method for stochastic optimization" (2014); Dozat, "Incorporating Nesterov momentum into
// Adam" (2016).
struct ScaleByAdam {
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-8;
  double eps_root = 0;
  std::optional<DType> mu_dtype = std::nullopt;
  bool nesterov = false;

  static constexpr const char* name = "scale_by_adam";
  template <class Model>
  using State = AdamState<Model>;
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByAdam> scale_by_adam(const ScaleByAdam& options = {});

// Scales by Adam with the largest nu so far. Reddi, Kale and Kumar, "On the convergence of Adam and beyond" (2018).
struct ScaleByAmsgrad {
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-8;
  double eps_root = 0;
  std::optional<DType> mu_dtype = std::nullopt;
  bool bias_correction_mu = true;
  bool bias_correction_nu = true;

  static constexpr const char* name = "scale_by_amsgrad";
  template <class Model>
  struct State {
    int64_t count = 0;
    Model mu, nu, nu_max;
  };
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByAmsgrad> scale_by_amsgrad(const ScaleByAmsgrad& options = {});

// Scales by Adam's infinity-norm variant. Kingma and Ba (2014), section 7.
//   nu = max(b2 nu, |g| + eps);  (mu / (1 - b1^t)) / nu
struct ScaleByAdamax {
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-8;

  static constexpr const char* name = "scale_by_adamax";
  template <class Model>
  using State = AdamState<Model>;
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByAdamax> scale_by_adamax(const ScaleByAdamax& options = {});

// Scales by Adam whose nu is the moment of (g - mu)^2, to which eps_root is added at every step.
// Zhuang et al., "AdaBelief optimizer: adapting stepsizes by the belief in observed gradients" (2020).
struct ScaleByBelief {
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-16;
  double eps_root = 1e-16;
  bool nesterov = false;

  static constexpr const char* name = "scale_by_belief";
  template <class Model>
  using State = AdamState<Model>;
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByBelief> scale_by_belief(const ScaleByBelief& options = {});

// Scales by Adam with nu = nu - (1 - b2) sign(nu - g^2) g^2. Both moments begin with initial_accumulator_value.
// Zaheer et al., "Adaptive methods for nonconvex optimization" (2018).
struct ScaleByYogi {
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-3;
  double eps_root = 0;
  double initial_accumulator_value = 1e-6;

  static constexpr const char* name = "scale_by_yogi";
  template <class Model>
  using State = AdamState<Model>;
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByYogi> scale_by_yogi(const ScaleByYogi& options = {});

// Scales by Adam with rectified variance: r times Adam's update if rho >= threshold, else mu / (1 - b1^t).
//   rho_inf = 2 / (1 - b2) - 1;  rho = rho_inf - 2 t b2^t / (1 - b2^t)
//   r = sqrt((rho - 4) (rho - 2) rho_inf / ((rho_inf - 4) (rho_inf - 2) rho))
// Liu et al., "On the variance of the adaptive learning rate and beyond" (2020).
struct ScaleByRadam {
  double b1 = 0.9;
  double b2 = 0.999;
  double eps = 1e-8;
  double eps_root = 0;
  double threshold = 5;
  bool nesterov = false;

  static constexpr const char* name = "scale_by_radam";
  template <class Model>
  using State = AdamState<Model>;
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByRadam> scale_by_radam(const ScaleByRadam& options = {});

// Scales by the root of the sum of all squared gradients (Adagrad). The update is 0 where the sum is 0.
//   sum = sum + g^2;  g / sqrt(sum + eps)
// Duchi, Hazan and Singer, "Adaptive subgradient methods for online learning and stochastic optimization" (2011).
struct ScaleByRss {
  double initial_accumulator_value = 0.1;
  double eps = 1e-7;

  static constexpr const char* name = "scale_by_rss";
  template <class Model>
  struct State {
    Model sum_of_squares;
  };
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByRss> scale_by_rss(const ScaleByRss& options = {});

// Scales by the root of the moving average of squared gradients (RMSProp).
//   nu = decay nu + (1 - decay) g^2;  g / sqrt(nu + eps), or without eps_in_sqrt g / (sqrt(nu) + eps)
// bias_correction replaces nu by nu / (1 - decay^t).
// Tieleman and Hinton, "Neural networks for machine learning", lecture 6.5.
struct ScaleByRms {
  double decay = 0.9;
  double eps = 1e-8;
  double initial_scale = 0;
  bool eps_in_sqrt = true;
  bool bias_correction = false;

  static constexpr const char* name = "scale_by_rms";
  template <class Model>
  struct State {
    int64_t count = 0;
    Model nu;
  };
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByRms> scale_by_rms(const ScaleByRms& options = {});

// Scales as scale_by_rms, with nu - mu^2 instead of nu. Graves, "Generating sequences with recurrent neural networks"
// (2013).
struct ScaleByStddev {
  double decay = 0.9;
  double eps = 1e-8;
  double initial_scale = 0;
  bool eps_in_sqrt = true;
  bool bias_correction = false;

  static constexpr const char* name = "scale_by_stddev";
  template <class Model>
  using State = AdamState<Model>;
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByStddev> scale_by_stddev(const ScaleByStddev& options = {});

// Scales by Adadelta; the update is u.
//   e_g = rho e_g + (1 - rho) g^2;  u = sqrt(e_x + eps) / sqrt(e_g + eps) g;  e_x = rho e_x + (1 - rho) u^2
// Zeiler, "Adadelta: an adaptive learning rate method" (2012).
struct ScaleByAdadelta {
  double rho = 0.9;
  double eps = 1e-6;

  static constexpr const char* name = "scale_by_adadelta";
  template <class Model>
  struct State {
    Model e_g, e_x;
  };
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByAdadelta> scale_by_adadelta(const ScaleByAdadelta& options = {});

// Scales by Adan. d = g - the previous g (0 at first). m, v, n are moments of g, d, (g + (1 - b2) d)^2 with decays b1,
// b2, b3. The ' divides by 1 - b^t, where b is the moment's decay:
//   (m' + (1 - b2) v') / (sqrt(n' + eps_root) + eps)
// Xie et al., "Adan: adaptive Nesterov momentum algorithm for faster optimizing deep models" (2022).
struct ScaleByAdan {
  double b1 = 0.98;
  double b2 = 0.92;
  double b3 = 0.99;
  double eps = 1e-8;
  double eps_root = 0;

  static constexpr const char* name = "scale_by_adan";
  template <class Model>
  struct State {
    int64_t count = 0;
    Model m, v, n, g;
  };
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByAdan> scale_by_adan(const ScaleByAdan& options = {});

// Takes the sign of an interpolated momentum (Lion).
//   sign(b1 mu + (1 - b1) g);  mu = b2 mu + (1 - b2) g
// Chen et al., "Symbolic discovery of optimization algorithms" (2023).
struct ScaleByLion {
  double b1 = 0.9;
  double b2 = 0.99;
  std::optional<DType> mu_dtype = std::nullopt;

  static constexpr const char* name = "scale_by_lion";
  template <class Model>
  using State = MomentumState<Model>;
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByLion> scale_by_lion(const ScaleByLion& options = {});

// Scales by AdEMAMix. m1, m2, nu are moments of g, g, g^2 with decays b1, b3, b2; b3 and alpha may be schedules.
//   (m1 / (1 - b1^t) + alpha m2) / (sqrt(nu / (1 - b2^t) + eps_root) + eps)
// Pagliardini, Ablin and Grangier, "The AdEMAMix optimizer: better, faster, older" (2024).
struct ScaleByAdemamix {
  double b1 = 0.9;
  double b2 = 0.999;
  Schedule b3 = 0.9999;
  Schedule alpha = 6.0;
  double eps = 1e-8;
  double eps_root = 0;
  std::optional<DType> mu_dtype = std::nullopt;  // element type of all three moments

  static constexpr const char* name = "scale_by_ademamix";
  template <class Model>
  struct State {
    int64_t count = 0;
    Model m1, m2, nu;
  };
  Array initial(size_t tree, const Array& parameter) const;
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByAdemamix> scale_by_ademamix(const ScaleByAdemamix& options = {});

// Scales by ADOPT; the update is mu or, with nesterov, b1 mu + (1 - b1) n of the new mu.
//   n = g / max(sqrt(nu), eps), clamped to +-clip_value(t - 1) if use_clipping
//   mu = b1 mu + (1 - b1) n;  nu = b2 nu + (1 - b2) g^2
// The first update only sets nu = g^2.
// Taniguchi et al., "ADOPT: modified Adam can converge with any beta2 with the optimal rate" (2024).
struct ScaleByAdopt {
  double b1 = 0.9;
  double b2 = 0.9999;
  double eps = 1e-6;
  std::optional<DType> mu_dtype = std::nullopt;
  bool nesterov = false;
  bool use_clipping = true;
  std::optional<Schedule> clip_value = std::nullopt;  // default: count^0.25

  static constexpr const char* name = "scale_by_adopt";
  template <class Model>
  using State = AdamState<Model>;
  Array operator()(const ArrayStep& step) const;
};
PerArray<ScaleByAdopt> scale_by_adopt(const ScaleByAdopt& options = {});

}  // namespace tessera::optim
