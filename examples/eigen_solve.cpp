// An operation that calls another library: Eigen solves one system of linear equations per row of a sharded batch.
#include <ATen/ATen.h>

#include <Eigen/Cholesky>
#include <Eigen/Core>
#include <iostream>
#include <utility>

#include <tessera/nn/transformations.h>
#include <tessera/sharding/array.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/operations/define_operation.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>

using namespace tessera;

using Matrix = Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;
using Vector = Eigen::Map<const Eigen::VectorXf>;

// Returns x with a x = b for each symmetric positive definite matrix of the block.
at::Tensor solutions(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor matrices = a.contiguous(), sides = b.contiguous();
  at::Tensor x = at::empty_like(sides);
  const int64_t size = a.size(1);
  for (int64_t row = 0; row < a.size(0); ++row) {
    const Matrix matrix(matrices.const_data_ptr<float>() + row * size * size, size, size);
    const Vector side(sides.const_data_ptr<float>() + row * size, size);
    Eigen::Map<Eigen::VectorXf>(x.data_ptr<float>() + row * size, size) = matrix.llt().solve(side);
  }
  return x;
}

// The gradient reads the solution, so the function returns it a second time, to be saved.
std::pair<at::Tensor, at::Tensor> forward(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = solutions(a, b);
  return {x, x};
}

std::pair<at::Tensor, at::Tensor> backward(const at::Tensor& g, const at::Tensor& a, const at::Tensor&,
                                           const at::Tensor& x) {
  const at::Tensor of_b = solutions(a, g);
  return {-of_b.unsqueeze(2) * x.unsqueeze(1), of_b};
}

// The batch "n" may be sharded. A solver needs its matrix complete, so [i] and [j] are gathered if they are not.
const auto solve = define_operation("solve", "n [i] [j], n [i] -> n [i]", forward, {.backward = backward});

struct Systems {
  Array a, b;
};

int main() {
  const Mesh mesh = make_mesh({{"data", 4}});
  const auto sharded = [&](const Array& x) { return device_put(x, NamedSharding(mesh, P{"data"})); };
  const Array m = normal(Key(0), {8, 3, 3});
  const Systems systems{.a = sharded(matmul(m, swapaxes(m, 1, 2)) + eye(3)), .b = sharded(normal(Key(1), {8, 3}))};
  const auto product = [&](const Array& x) { return einsum("nij,nj->ni", {systems.a, x}); };

  const Array x = solve(systems.a, systems.b);
  const auto [loss, gradients] = nn::value_and_grad([](const Systems& s) { return sum(solve(s.a, s.b)); })(systems);
  std::cout << "x " << x.type_string() << ", gradient of a " << gradients.a.type_string() << '\n';
  // The gradient of sum(x) with respect to b solves a y = 1.
  const float solution_error = max(abs(product(x) - systems.b)).item<float>();
  const float gradient_error = max(abs(product(gradients.b) - 1.0)).item<float>();
  std::cout << "largest error of the solution " << solution_error << ", of the gradient " << gradient_error << '\n';
  return solution_error < 1e-4 && gradient_error < 1e-4 ? 0 : 1;
}
