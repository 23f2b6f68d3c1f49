// A custom kernel on sharded arrays: silu(gate) * up, the activation of a SwiGLU MLP, in one pass over memory.
// It is a CUDA kernel on GPUs and a loop on CPUs. Argument: the number of devices, by default 8.
#include "examples/custom_kernel.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <utility>

#include <tessera/nn/layers/linear.h>
#include <tessera/nn/placement.h>
#include <tessera/nn/transformations.h>
#include <tessera/sharding/accounting.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/operations/define_operation.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/random.h>

using namespace tessera;

void compute_on_cpu(const GatedUnits& u) {
  for (int64_t i = 0; i < u.n; ++i) {
    const float gate = u.gate[i], up = u.up[i], sigmoid = 1 / (1 + std::exp(-gate));
    if (!u.cotangent) {
      u.y[i] = gate * sigmoid * up;
    } else {
      u.gate_gradient[i] = u.cotangent[i] * up * sigmoid * (1 + gate * (1 - sigmoid));
      u.up_gradient[i] = u.cotangent[i] * gate * sigmoid;
    }
  }
}

// The functions of the operation: they see the local tensors of one device.
at::Tensor forward(const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor a = gate.contiguous(), b = up.contiguous();
  at::Tensor y = at::empty_like(a);
  const auto compute = y.is_cuda() ? compute_on_gpu : compute_on_cpu;
  compute(
      {.gate = a.const_data_ptr<float>(), .up = b.const_data_ptr<float>(), .y = y.data_ptr<float>(), .n = y.numel()});
  return y;
}

std::pair<at::Tensor, at::Tensor> backward(const at::Tensor& cotangent, const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor g = cotangent.contiguous(), a = gate.contiguous(), b = up.contiguous();
  at::Tensor of_gate = at::empty_like(a), of_up = at::empty_like(b);
  const auto compute = g.is_cuda() ? compute_on_gpu : compute_on_cpu;
  compute({.gate = a.const_data_ptr<float>(),
           .up = b.const_data_ptr<float>(),
           .cotangent = g.const_data_ptr<float>(),
           .gate_gradient = of_gate.data_ptr<float>(),
           .up_gradient = of_up.data_ptr<float>(),
           .n = g.numel()});
  return {of_gate, of_up};
}

// The rule names the dimensions, which may be sharded: gate and up have the same shape.
const auto gated = define_operation("gated", "b h, b h -> b h", forward, {.backward = backward});

struct Mlp {
  nn::Linear gate, up, down;

  static Mlp init(Key key, Axis embed, Axis hidden) {
    auto [k1, k2, k3] = split<3>(key);
    return {.gate = nn::Linear::init(k1, embed, hidden),
            .up = nn::Linear::init(k2, embed, hidden),
            .down = nn::Linear::init(k3, hidden, embed)};
  }
};

using Activation = std::function<Array(const Array& gate, const Array& up)>;

int main(int argc, char** argv) {
  const int devices = argc > 1 ? std::atoi(argv[1]) : 8;
  const int model_devices = devices % 2 == 0 ? 2 : 1;
  const MeshRules mesh_rules{make_mesh({{"data", devices / model_devices}, {"model", model_devices}}),
                             {{"batch", "data"}, {"hidden", "model"}, {"embed", replicated}}};
  const Mlp model = nn::filter_shard(Mlp::init(Key(0), {"embed", 64}, {"hidden", 256}), mesh_rules);
  const Array x = device_put(normal(Key(1), {32 * devices, 64}), {"batch", "embed"}, mesh_rules);

  const auto gradients_with = [&](const Activation& activation) {
    const auto loss = [&](const Mlp& m) { return mean(square(m.down(activation(m.gate(x), m.up(x))) - x)); };
    return nn::value_and_grad(loss)(model).second;
  };
  CommLedger ledger;
  const Mlp own = gradients_with(gated);
  std::cout << ledger.to_text() << '\n';
  const Mlp expected = gradients_with([](const Array& gate, const Array& up) { return silu(gate) * up; });
  const float difference = max(abs(own.gate.kernel.value - expected.gate.kernel.value)).item<float>();
  std::cout << "largest difference from silu(gate) * up: " << difference << '\n';
  return difference < 1e-6 ? 0 : 1;
}
