// The code of docs/from_python.md: arrays and named options. docs/start.md shows its main function.
#include <iostream>

#include <tessera/nn/layers/linear.h>
#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/optim/schedules.h>
#include <tessera/sharding/array.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/random.h>
#include <tessera/sharding/runtime.h>

using namespace tessera;

void arrays() {
  const Array x = array<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  Array y = x.index({{}, range(1, 3)});  // x[:, 1:3]; x.index({range(1, 3)}) would take rows
  y = y - mean(y, -1, true);             // along the last dim, with keepdims
  y = y + 1;                             // a new value: there is no +=
  y = y.at({0}).add(y[1]);               // y[0] = ... does not compile
  y = einsum("ij,ik->jk", {y, x});       // operands are a list
  std::cout << to_string(y.shape()) << ' ' << y << '\n';
}

void train() {
  const auto loss_of = [](const nn::Linear& model, const Array& x) { return mean(square(model(x) - x)); };
  nn::Linear model = nn::Linear::init(Key(0), {"in", 4}, {"out", 4});
  const Array x = normal(Key(1), {8, 4});
  const auto rate = optim::cosine_decay_schedule({.init_value = 3e-4, .decay_steps = 1000});
  auto optimizer = optim::Optimizer(model, optim::adamw({.learning_rate = rate}));
  const auto [loss, grads] = nn::value_and_grad(loss_of)(model, x);
  optimizer.update(model, grads);
  std::cout << loss << "\nlearning rate " << optimizer.learning_rate() << '\n';
}

int main() {
  return run_program([] {
    arrays();
    train();
    return 0;
  });
}
