// The first example: fits a line to points with Adam.
#include <iostream>

#include <tessera/nn/transformations.h>
#include <tessera/optim/optimizer.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/random.h>

using namespace tessera;

struct Line {
  Array slope, intercept;
  Array operator()(const Array& x) const { return slope * x + intercept; }
};

Array loss_of(const Line& line, const Array& x, const Array& y) { return mean(square(line(x) - y)); }

int main() {
  const Array x = uniform(Key(0), {100}, -1, 1);
  const Array y = 3.0 * x - 2.0 + 0.1 * normal(Key(1), {100});

  Line line{.slope = zeros({}), .intercept = zeros({})};
  auto optimizer = optim::Optimizer(line, optim::adam({.learning_rate = 0.1}));
  for (int step = 0; step < 200; ++step) {
    const auto [loss, grads] = nn::value_and_grad(loss_of)(line, x, y);
    optimizer.update(line, grads);
    if (step % 50 == 0) std::cout << "loss " << loss.item<float>() << '\n';
  }
  std::cout << "y = " << line.slope.item<float>() << " x + " << line.intercept.item<float>() << '\n';
}
