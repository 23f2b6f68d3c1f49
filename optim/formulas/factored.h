// Second moments that take less memory: per row and column (Adafactor), or per array (NovoGrad).
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "optim/formulas/per_array.h"

namespace tessera::optim {

// Arrays by the paths of their parameters. An array keeps the names of the parameter's dimensions that were not
// reduced, so that it is sharded like the parameter along these.
using ByPath = std::map<std::string, NamedArray>;

// State of Adafactor's factored second moments. A parameter is factored if its two largest dimensions have at least
// min_dim_size_to_factor elements. It then has a row, without its largest dimension d0, and a column, without its
// second largest dimension d1. Any other parameter has an entry of v, of its own shape. With beta = 1 - (t -
// step_offset)^-decay_rate, which begins at 0:
//   row = beta row + (1 - beta) mean(g^2 + epsilon over d0), and column in the same way over d1
//   g / sqrt(row / mean(row)) / sqrt(column), or g / sqrt(v) with v = beta v + (1 - beta) (g^2 + epsilon)
// The mean over a sharded dimension is one all-reduce of the row.
// Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost" (2018).
template <class Model>
struct FactoredState {
  int64_t count = 0;
  ByPath v_row, v_col;
  Model v;
};

struct ScaleByFactoredRms;

namespace detail {
void make_factored(const ScaleByFactoredRms& o, const nn::Leaves& params, ByPath& row, ByPath& col,
                   const nn::Leaves& v);
void factored_rms(const ScaleByFactoredRms& o, int64_t count, const nn::Leaves& updates, const nn::Leaves& params,
                  ByPath& row, ByPath& col, const nn::Leaves& v);
}  // namespace detail

struct ScaleByFactoredRms {  // formula: see FactoredState
  bool factored = true;
  double decay_rate = 0.8;
  int64_t step_offset = 0;
  int64_t min_dim_size_to_factor = 128;
  double epsilon = 1e-30;

  template <class Model>
  FactoredState<Model> init(const Model& params) const {
    FactoredState<Model> state{.v = params};
    detail::make_factored(*this, nn::leaves(params), state.v_row, state.v_col, nn::leaves(state.v));
    return state;
  }
  template <class Model>
  std::pair<Model, FactoredState<Model>> update(Model grads, FactoredState<Model> state, const Model& params,
                                                std::source_location where = std::source_location::current()) const {
    const CallerScope caller(where);
    state.count += 1;
    detail::factored_rms(*this, state.count, nn::leaves(grads), nn::leaves(params), state.v_row, state.v_col,
                         nn::leaves(state.v));
    return {std::move(grads), std::move(state)};
  }
};
ScaleByFactoredRms scale_by_factored_rms(const ScaleByFactoredRms& options = {});

// State of NovoGrad. nu is one number per array, |g|^2 at first. The update is mu.
//   nu = b2 nu + (1 - b2) |g|^2
//   mu = b1 mu + g / (sqrt(nu + eps_root) + eps) + weight_decay p
// Ginsburg et al., "Stochastic gradient methods with layer-wise adaptive moments for training of deep networks" (2019).
template <class Model>
struct NovogradState {
  int64_t count = 0;
  Model mu;
  ByPath nu;
};

struct ScaleByNovograd;

namespace detail {
void make_norms(const ScaleByNovograd& o, const nn::Leaves& params, const nn::Leaves& mu, ByPath& nu);
void novograd(const ScaleByNovograd& o, int64_t count, const nn::Leaves& updates, const nn::Leaves& params,
              const nn::Leaves& mu, ByPath& nu);
}  // namespace detail

struct ScaleByNovograd {  // formula: see NovogradState
  double b1 = 0.9;
  double b2 = 0.25;
  double eps = 1e-8;
  double eps_root = 0;
  double weight_decay = 0;
  std::optional<DType> mu_dtype = std::nullopt;

  template <class Model>
  NovogradState<Model> init(const Model& params) const {
    NovogradState<Model> state{.mu = params};
    detail::make_norms(*this, nn::leaves(params), nn::leaves(state.mu), state.nu);
    return state;
  }
  template <class Model>
  std::pair<Model, NovogradState<Model>> update(Model grads, NovogradState<Model> state, const Model& params,
                                                std::source_location where = std::source_location::current()) const {
    const CallerScope caller(where);
    state.count += 1;
    detail::novograd(*this, state.count, nn::leaves(grads), nn::leaves(params), nn::leaves(state.mu), state.nu);
    return {std::move(grads), std::move(state)};
  }
};
ScaleByNovograd scale_by_novograd(const ScaleByNovograd& options = {});

}  // namespace tessera::optim
