// The code of docs/optimizers.md except Tiger: chains, several optimizers, settings that change, averages.
#include <iostream>
#include <tuple>

#include <tessera/nn/layers/batch_norm.h>
#include <tessera/nn/layers/linear.h>
#include <tessera/nn/layers/module_scope.h>
#include <tessera/nn/transformations.h>
#include <tessera/nn/tree.h>
#include <tessera/optim/formulas.h>
#include <tessera/optim/optimizer.h>
#include <tessera/optim/wrappers.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/random.h>

#include "tests/optim/own_optimizer.h"

using namespace tessera;

Array loss_of(const nn::Linear& model, const Array& x) { return mean(square(model(x) - x)); }

template <class Optimizer>
void train(const char* name, nn::Linear model, Optimizer optimizer) {
  const Array x = normal(Key(1), {16, 4});
  for (int step = 0; step < 20; ++step) {
    const auto [loss, grads] = nn::value_and_grad(loss_of)(model, x);
    optimizer.update(model, grads);
  }
  std::cout << name << ": " << loss_of(model, x).item<float>() << '\n';
}

void in_place(nn::Linear model) {
  const auto [loss, grads] = nn::value_and_grad(loss_of)(model, ones({2, 4}));
  auto optimizer =
      optim::Optimizer(model, optim::chain(optim::clip_by_global_norm(1.0), optim::adamw({.learning_rate = 3e-4})));
  optimizer.update(model, grads);  // in place, one fused kernel
}

auto two_optimizers() {
  const auto by_dims = [](const std::string&, const Array& p) { return p.ndim() == 2 ? "matrices" : "rest"; };
  return optim::partition(by_dims,  //
                          "matrices", optim::muon_matrices({.learning_rate = 0.02}), "rest",
                          optim::adamw({.learning_rate = 3e-3}));
}

void experts(const nn::Linear& model) {
  auto optimizer = optim::Optimizer(
      model, optim::muon({.learning_rate = 0.02, .muon_weight_dimension_numbers = optim::stacked_matrices}));
  train("muon", model, optimizer);
}

void cautious(const nn::Linear& model) {
  auto decay = optim::adamw({.learning_rate = 3e-4, .weight_decay = 0.1, .cautious_weight_decay = true});
  auto updates = optim::chain(optim::cautious(optim::scale_by_adam()), optim::scale_by_learning_rate(3e-4));
  train("cautious decay", model, optim::Optimizer(model, decay));
  train("cautious updates", model, optim::Optimizer(model, updates));
}

void changed_settings(const nn::Linear& model) {
  auto optimizer = optim::Optimizer(
      model, optim::inject_hyperparams(
                 [](const optim::Hyperparams& h) { return optim::adamw({.learning_rate = h["learning_rate"]}); },
                 {{"learning_rate", 3e-4}}));
  optimizer.state().hyperparams["learning_rate"] = 1e-4;
  train("with another rate", model, optimizer);
}

struct WithStatistics {
  nn::Linear linear;
  nn::BatchNorm norm;
};

Array normalized_loss(WithStatistics& model, const Array& x) { return mean(square(model.norm(model.linear(x)))); }

void averages(WithStatistics model) {
  auto optimizer =
      optim::Optimizer(model, optim::chain(optim::adamw({.learning_rate = 3e-4}), optim::params_ema(0.999)));
  const auto [loss, grads] = nn::value_and_grad(normalized_loss)(model, normal(Key(1), {16, 4}));
  optimizer.update(model, grads);

  const auto& average = std::get<optim::ParamsEmaState<WithStatistics>>(optimizer.state()).ema;
  auto averaged = nn::inference_mode(nn::combine(average, model));
  std::cout << "averaged: " << normalized_loss(averaged, ones({2, 4})).item<float>() << '\n';
}

int main() {
  const nn::Linear model = nn::Linear::init(Key(0), {"in", 4}, {"out", 4});
  in_place(model);
  train("two optimizers", model, optim::Optimizer(model, two_optimizers()));
  experts(model);
  cautious(model);
  changed_settings(model);
  train("tiger", model, optim::Optimizer(model, own::tiger(0.01)));
  averages({nn::Linear::init(Key(0), {"in", 4}, {"out", 4}), nn::BatchNorm::init({"out", 4})});
}
