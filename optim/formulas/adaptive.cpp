// Formulas of the adaptive transforms, and checks of their settings.
#include "optim/formulas/adaptive.h"

#include <cmath>
#include <concepts>
#include <optional>

#include "optim/schedules/check_options.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/shape/creation.h"

namespace tessera::optim {

namespace detail {

Array full_for(const Array& parameter, double value) {
  const Array zeros = zeros_for(parameter);
  return zeros.is_absent() || value == 0 ? zeros : full_like(zeros, value);
}

Array moment(const Array& m, const Array& x, double b) { return b * m + (1 - b) * x; }

Array unbiased(const Array& m, double b, int64_t t) { return m / (1 - std::pow(b, static_cast<double>(t))); }

Array first_moment(const Array& m, const Array& g, double b1, int64_t t, bool nesterov) {
  if (!nesterov) return unbiased(m, b1, t);
  return b1 * unbiased(m, b1, t + 1) + (1 - b1) * unbiased(g, b1, t);
}

}  // namespace detail

using detail::first_moment;
using detail::moment;
using detail::unbiased;

namespace {

// Checks the settings that most formulas have, by name: decays, then bounds. Returns the transform.
template <class Formula>
PerArray<Formula> checked(const Formula& o) {
  const auto decay = [](const char* name, double value) { detail::check_options(Formula::name, {{name, value}}, {}); };
  const auto bound = [](const char* name, double value) { detail::check_options(Formula::name, {}, {{name, value}}); };
  if constexpr (requires { o.b1; }) decay("b1", o.b1), decay("b2", o.b2);
  if constexpr (std::same_as<Formula, ScaleByAdan>) decay("b3", o.b3);  // ScaleByAdemamix's b3 is a schedule
  if constexpr (requires { o.decay; }) decay("decay", o.decay);
  if constexpr (requires { o.rho; }) decay("rho", o.rho);
  if constexpr (requires { o.eps; }) bound("eps", o.eps);
  if constexpr (requires { o.eps_root; }) bound("eps_root", o.eps_root);
  if constexpr (requires { o.initial_scale; }) bound("initial_scale", o.initial_scale);
  if constexpr (requires { o.initial_accumulator_value; })
    bound("initial_accumulator_value", o.initial_accumulator_value);
  return {o};
}

Array over_root(const Array& m, const Array& v, double eps_root, double eps) { return m / (sqrt(v + eps_root) + eps); }

}  // namespace

Array ScaleByAdam::operator()(const ArrayStep& step) const {
  Array &mu = step.state[0], &nu = step.state[1];
  mu = moment(mu, step.gradient, b1);
  nu = moment(nu, square(step.gradient), b2);
  return over_root(first_moment(mu, step.gradient, b1, step.count, nesterov), unbiased(nu, b2, step.count), eps_root,
                   eps);
}
PerArray<ScaleByAdam> scale_by_adam(const ScaleByAdam& o) { return checked(o); }

Array ScaleByAmsgrad::operator()(const ArrayStep& step) const {
  Array &mu = step.state[0], &nu = step.state[1], &nu_max = step.state[2];
  mu = moment(mu, step.gradient, b1);
  nu = moment(nu, square(step.gradient), b2);
  nu_max = maximum(nu_max, bias_correction_nu ? unbiased(nu, b2, step.count) : nu);
  return over_root(bias_correction_mu ? unbiased(mu, b1, step.count) : mu, nu_max, eps_root, eps);
}
PerArray<ScaleByAmsgrad> scale_by_amsgrad(const ScaleByAmsgrad& o) { return checked(o); }

Array ScaleByAdamax::operator()(const ArrayStep& step) const {
  Array &mu = step.state[0], &nu = step.state[1];
  mu = moment(mu, step.gradient, b1);
  nu = maximum(b2 * nu, abs(step.gradient) + eps);
  return unbiased(mu, b1, step.count) / nu;
}
PerArray<ScaleByAdamax> scale_by_adamax(const ScaleByAdamax& o) { return checked(o); }

Array ScaleByBelief::operator()(const ArrayStep& step) const {
  Array &mu = step.state[0], &nu = step.state[1];
  mu = moment(mu, step.gradient, b1);
  nu = moment(nu, square(step.gradient - mu), b2) + eps_root;
  return over_root(first_moment(mu, step.gradient, b1, step.count, nesterov), unbiased(nu, b2, step.count), 0, eps);
}
PerArray<ScaleByBelief> scale_by_belief(const ScaleByBelief& o) { return checked(o); }

Array ScaleByYogi::operator()(const ArrayStep& step) const {
  Array &mu = step.state[0], &nu = step.state[1];
  const Array g2 = square(step.gradient);
  mu = moment(mu, step.gradient, b1);
  nu = nu - (1 - b2) * sign(nu - g2) * g2;
  return over_root(unbiased(mu, b1, step.count), unbiased(nu, b2, step.count), eps_root, eps);
}
PerArray<ScaleByYogi> scale_by_yogi(const ScaleByYogi& o) { return checked(o); }

namespace {

// Returns sqrt of the rectification at update t, or nullopt below the threshold. It is computed in float32, as in
// Optax: the differences of nearly equal numbers lose four digits, which affects the values.
std::optional<float> rectification(const ScaleByRadam& o, int64_t t) {
  const auto rho_inf = static_cast<float>(2 / (1 - o.b2) - 1), count = static_cast<float>(t);
  const float b2t = std::pow(static_cast<float>(o.b2), count), rho = rho_inf - 2 * count * b2t / (1 - b2t);
  if (!(rho >= static_cast<float>(o.threshold))) return std::nullopt;
  return std::sqrt((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho));
}

}  // namespace

Array ScaleByRadam::operator()(const ArrayStep& step) const {
  Array &mu = step.state[0], &nu = step.state[1];
  mu = moment(mu, step.gradient, b1);
  nu = moment(nu, square(step.gradient), b2);
  const Array m = first_moment(mu, step.gradient, b1, step.count, nesterov);
  const std::optional<float> r = rectification(*this, step.count);
  return r ? over_root(*r * m, unbiased(nu, b2, step.count), eps_root, eps) : m;
}
PerArray<ScaleByRadam> scale_by_radam(const ScaleByRadam& o) {
  detail::check_finite(o.name, "threshold", o.threshold);
  return checked(o);
}

Array ScaleByRss::operator()(const ArrayStep& step) const {
  Array& sum = step.state[0];
  sum = square(step.gradient) + sum;
  return where(sum > 0.0, rsqrt(sum + eps), 0.0) * step.gradient;
}
PerArray<ScaleByRss> scale_by_rss(const ScaleByRss& o) { return checked(o); }

Array ScaleByRms::operator()(const ArrayStep& step) const {
  Array& nu = step.state[0];
  nu = moment(nu, square(step.gradient), decay);
  const Array n = bias_correction ? unbiased(nu, decay, step.count) : nu;
  return eps_in_sqrt ? step.gradient * rsqrt(n + eps) : step.gradient / (sqrt(n) + eps);
}
PerArray<ScaleByRms> scale_by_rms(const ScaleByRms& o) { return checked(o); }

Array ScaleByStddev::operator()(const ArrayStep& step) const {
  Array &mu = step.state[0], &nu = step.state[1];
  mu = moment(mu, step.gradient, decay);
  nu = moment(nu, square(step.gradient), decay);
  const Array m = bias_correction ? unbiased(mu, decay, step.count) : mu;
  const Array n = bias_correction ? unbiased(nu, decay, step.count) : nu;
  const Array variance = n - square(m);
  return eps_in_sqrt ? step.gradient * rsqrt(variance + eps) : step.gradient / (sqrt(variance) + eps);
}
PerArray<ScaleByStddev> scale_by_stddev(const ScaleByStddev& o) { return checked(o); }

Array ScaleByAdadelta::operator()(const ArrayStep& step) const {
  Array &e_g = step.state[0], &e_x = step.state[1];
  e_g = moment(e_g, square(step.gradient), rho);
  const Array update = sqrt(e_x + eps) / sqrt(e_g + eps) * step.gradient;
  e_x = moment(e_x, square(update), rho);
  return update;
}
PerArray<ScaleByAdadelta> scale_by_adadelta(const ScaleByAdadelta& o) { return checked(o); }

Array ScaleByAdan::operator()(const ArrayStep& step) const {
  Array &m = step.state[0], &v = step.state[1], &n = step.state[2], &last = step.state[3];
  const Array& g = step.gradient;
  const Array change = step.count == 1 ? zeros_like(g) : g - last;
  m = moment(m, g, b1);
  v = moment(v, change, b2);
  n = moment(n, square(g + (1 - b2) * change), b3);
  last = g;
  return over_root(unbiased(m, b1, step.count) + (1 - b2) * unbiased(v, b2, step.count), unbiased(n, b3, step.count),
                   eps_root, eps);
}
PerArray<ScaleByAdan> scale_by_adan(const ScaleByAdan& o) { return checked(o); }

Array ScaleByLion::operator()(const ArrayStep& step) const {
  Array& mu = step.state[0];
  const Array update = sign(moment(mu, step.gradient, b1));
  mu = moment(mu, step.gradient, b2);
  return update;
}
PerArray<ScaleByLion> scale_by_lion(const ScaleByLion& o) { return checked(o); }

Array ScaleByAdemamix::initial(size_t, const Array& parameter) const { return zeros_for(parameter, mu_dtype); }
Array ScaleByAdemamix::operator()(const ArrayStep& step) const {
  Array &m1 = step.state[0], &m2 = step.state[1], &nu = step.state[2];
  m1 = moment(m1, step.gradient, b1);
  const double b3_now = detail::value_of(b3, step.count - 1, name, "b3");
  detail::check_options(name, {{"b3", b3_now}}, {});
  m2 = moment(m2, step.gradient, b3_now);
  nu = moment(nu, square(step.gradient), b2);
  const double weight = detail::value_of(alpha, step.count - 1, name, "alpha");
  return over_root(unbiased(m1, b1, step.count) + weight * m2, unbiased(nu, b2, step.count), eps_root, eps);
}
PerArray<ScaleByAdemamix> scale_by_ademamix(const ScaleByAdemamix& o) {
  detail::check_constant_decay(o.name, "b3", o.b3);
  return checked(o);
}

Array ScaleByAdopt::operator()(const ArrayStep& step) const {
  Array &mu = step.state[0], &nu = step.state[1];
  const int64_t before = step.count - 1;
  const double b1_now = before ? b1 : 1, b2_now = before ? b2 : 0;
  Array normed = step.gradient / maximum(sqrt(nu), eps);
  if (use_clipping) {
    const double bound = clip_value ? detail::value_of(*clip_value, before, name, "clip_value")
                                    : std::pow(static_cast<double>(before), 0.25);
    detail::check_options(name, {}, {{"clip_value", bound}});
    normed = clip(normed, -bound, bound);
  }
  nu = moment(nu, square(step.gradient), b2_now);
  mu = moment(mu, normed, b1_now);
  return nesterov ? moment(mu, normed, b1_now) : mu;
}
PerArray<ScaleByAdopt> scale_by_adopt(const ScaleByAdopt& o) {
  if (o.clip_value) detail::check_constant_bound(o.name, "clip_value", *o.clip_value);
  return checked(o);
}

}  // namespace tessera::optim
