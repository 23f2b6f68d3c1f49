// Kernels for GPUs, and updates of optimizer state in host memory: run it with TESSERA_DEVICE=cuda.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "nn/layers/moe.h"
#include "optim/optimizer.h"
#include "sharding/kernels/host_stream.h"
#include "sharding/operations/neural/attention.h"
#include "sharding/operations/neural/losses.h"
#include "sharding/operations/neural/normalization.h"
#include "sharding/operations/ragged/ragged_tiles.h"
#include "tests/sharding/step.h"

namespace tessera::gpu_kernels_test {
namespace {

using namespace tessera::testing;

// An operation of these operands; `here` is the sharding of its other arrays.
using Operation = std::function<Array(const std::vector<Array>& operands, const NamedSharding& here)>;

// The result on a mesh of one device, and the gradients of a sum that weights every element differently.
std::vector<at::Tensor> computed(const Mesh& mesh, const std::vector<at::Tensor>& operands, const Operation& f) {
  const NamedSharding here(mesh, P{});
  std::vector<Array> x;
  for (const at::Tensor& t : operands) x.push_back(device_put(from_tensor(t), here));
  const auto loss = [&](const std::vector<Array>& shadows) {
    const Array y = astype(f(shadows, here), float32);
    return sum(y * device_put(from_tensor(cotangent(at::empty(y.shape())).to(at::kFloat)), here));
  };
  std::vector<at::Tensor> all{to_tensor(f(x, here))};
  for (const Array& gradient : step(x, loss).gradients) all.push_back(to_tensor(gradient));
  return all;
}

// Expects the CPU's result and gradients, by the norm of the difference.
void expect_as_on_cpu(const std::vector<at::Tensor>& operands, const Operation& f, double tolerance) {
  const auto want = computed(make_mesh({{"one", 1}}, {.device = "cpu"}), operands, f);
  const auto got = computed(make_mesh({{"one", 1}}), operands, f);
  for (size_t i = 0; i < want.size(); ++i) {
    const at::Tensor x = got[i].cpu().to(at::kDouble), y = want[i].cpu().to(at::kDouble);
    EXPECT_LE((x - y).norm().item<double>(), tolerance * (1e-3 + y.norm().item<double>())) << "tensor " << i;
  }
}

at::Tensor half(const Shape& shape, int seed) { return random_tensor(shape, seed).to(at::kBFloat16); }

TEST(GpuKernels, AttentionInSegments) {
  const at::Tensor starts = at::tensor({0, 300, 300, 301, 512, 512, 512, 512}, at::kInt).view({2, 4});
  for (const int64_t kv_heads : {8, 2})
    for (const DotProductAttentionOptions& options : std::vector<DotProductAttentionOptions>{
             {.causal = true}, {}, {.causal = true, .window = 100}, {.causal = true, .scale = 0.3}}) {
      const auto f = [&](const std::vector<Array>& x, const NamedSharding& here) {
        DotProductAttentionOptions in = options;
        in.segment_starts = device_put(from_tensor(starts), here);
        return dot_product_attention(x[0], x[1], x[2], in);
      };
      expect_as_on_cpu({half({2, 512, 8, 64}, 1), half({2, 512, kv_heads, 64}, 2), half({2, 512, kv_heads, 64}, 3)}, f,
                       0.03);
    }
}

TEST(GpuKernels, CrossEntropy) {
  for (const int64_t vocab : {1, 7, 1000, 50257})
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16})
      for (const CrossEntropyOptions& options :
           std::vector<CrossEntropyOptions>{{}, {.ignore_label = 0}, {.label_smoothing = 0.1, .z_loss = 1e-3}}) {
        const at::Tensor labels = at::arange(64).mul(31).remainder(vocab).to(at::kInt);
        const auto f = [&](const std::vector<Array>& x, const NamedSharding& here) {
          return cross_entropy_per_position(x[0], device_put(from_tensor(labels), here), options);
        };
        expect_as_on_cpu({(random_tensor({64, vocab}, 1) * 4).to(type)}, f, type == at::kFloat ? 1e-4 : 0.03);
      }
}

TEST(GpuKernels, RmsNorm) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto f = [](const std::vector<Array>& x, const NamedSharding&) { return rms_norm(x[0], x[1], 1e-5); };
    expect_as_on_cpu({random_tensor({64, 768}, 1).to(type), random_tensor({768}, 2).to(type)}, f,
                     type == at::kFloat ? 1e-4 : 0.03);
  }
}

TEST(GpuKernels, RaggedProducts) {
  const at::Tensor sizes = at::tensor({10, 0, 33, 21, 0, 64, 0, 0}, at::kInt).view({2, 4});
  const auto f = [&](const std::vector<Array>& x, const NamedSharding& here) {
    return ragged_mlp(x[0], x[1], x[2], x[3], device_put(from_tensor(sizes), here));
  };
  expect_as_on_cpu(
      {half({2, 64, 32}, 1), half({4, 32, 64}, 2) * 0.2, half({4, 32, 64}, 3) * 0.2, half({4, 64, 32}, 4) * 0.2}, f,
      0.03);
}

// Returns the parameters and moments after five updates without a read between them.
std::vector<std::vector<float>> updated(const auto& transform, optim::MemoryKind memory_kind) {
  const NamedSharding here(make_mesh({{"one", 1}}), P{});
  std::vector<Array> model;
  for (const int64_t n : {7, 4097, 100000})
    model.push_back(device_put(from_tensor(random_tensor({n}, 1).to(at::kFloat)), here));
  optim::Optimizer optimizer(model, transform, {.state_memory_kind = memory_kind});
  for (int i = 0; i < 5; ++i) {
    std::vector<Array> grads;
    for (const Array& x : model) grads.push_back(x * 0.1 + 0.01 * i);
    optimizer.update(model, std::move(grads));
  }
  std::vector<std::vector<float>> all;
  const nn::Leaves leaves = nn::leaves(nn::named("model", model, "optimizer", optimizer));
  for (const nn::Leaf& leaf : leaves) all.push_back(leaf.value->to_host<float>());
  return all;
}

// A copy that does not wait for a kernel, or a kernel that does not wait for a copy, changes the values.
TEST(GpuKernels, UpdatesOfStateInHostMemory) {
  const auto expect_same = [](const auto& transform) {
    const auto expected = updated(transform, optim::MemoryKind::device);
    for (const int64_t bytes : {int64_t{2048}, int64_t{1} << 16, int64_t{64} << 20}) {
      const tessera::detail::ScopedValue buffers(tessera::detail::host_buffer_bytes(), bytes);
      EXPECT_EQ(updated(transform, optim::MemoryKind::pinned_host), expected) << bytes;
    }
  };
  expect_same(optim::adamw({.learning_rate = 0.01}));
  expect_same(optim::lion({.learning_rate = 0.01}));
}

}  // namespace
}  // namespace tessera::gpu_kernels_test
