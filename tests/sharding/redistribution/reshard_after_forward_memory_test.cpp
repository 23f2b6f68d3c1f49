// The memory of reshard_after_forward: gathered weights exist only during their use, and results keep their memory.
#include <ATen/core/grad_mode.h>

#include "tests/sharding/allocations.h"
#include "tests/sharding/step.h"

namespace tessera::reshard_after_forward_memory_test {
namespace {

using namespace tessera::testing;
using Arrays = const std::vector<Array>&;

constexpr int64_t n = 256, rows = 8, weight_bytes = n * n * 8, little = weight_bytes / 4;

std::vector<Array> large_weights(Mesh mesh, int count) {
  std::vector<Array> w;
  for (int i = 0; i < count; ++i) w.push_back(placed(random_tensor({n, n}, i) * 0.05, mesh, P{"data"}));
  return w;
}

TEST(MemoryAfterForward, AGatheredWeightTakesMemoryOnlyWhileItIsUsed) {
  constexpr int layers = 4;
  for (const bool private_replicas : {false, true}) {
    SCOPED_TRACE(private_replicas);
    const Mesh mesh = make_mesh({{"data", 4}}, {.private_replicas = private_replicas});
    const Array x = placed(random_tensor({rows, n}, 9), mesh, P{"data"});
    const std::vector<Array> weights = large_weights(mesh, layers);
    const int64_t whole_bytes = (private_replicas ? 4 : 1) * weight_bytes;  // bytes of one gathered weight
    for (const bool borrow : {true, false}) {
      const Allocations memory;
      Tape tape(weights, {.reshard_after_forward = borrow});
      Array h = tanh(x * sum(tape.shadows()[0]));
      for (int i = 0; i < layers; ++i) {
        h = tanh(matmul(h, tape.shadows()[i]));
        EXPECT_LE(memory.live(), (borrow ? 0 : i + 1) * whole_bytes + little) << "after layer " << i;
      }
      const Array loss = mean(h);
      EXPECT_GE(memory.live(), borrow ? 0 : layers * whole_bytes);
      EXPECT_LE(memory.peak(), (borrow ? 1 : layers) * whole_bytes + little);
      const std::vector<Array> gradients = tape.gradients(loss);
      // In addition to the gradients: one gathered weight, and one gradient before its reduce_scatter.
      const int64_t bound = layers * weight_bytes + 2 * whole_bytes + little;
      EXPECT_EQ(memory.peak() <= bound, borrow) << memory.peak() << ", bound " << bound;
    }
  }
}

// A gathered frozen weight is freed with the step that needs it, also in the backward pass.
TEST(MemoryAfterForward, FrozenWeightsAreGatheredOneByOne) {
  constexpr int layers = 6;
  const Mesh mesh = make_mesh({{"data", 4}});
  const Array x = placed(random_tensor({rows, n}, 9), mesh, P{"data"});
  const std::vector<Array> frozen = large_weights(mesh, layers);
  for (const Array& w : frozen) w.impl()->weight = true;  // as filter_shard makes it
  const Allocations memory;
  Tape tape({placed(random_tensor({n}, 8), mesh, P{})});
  Array h = tanh(x * tape.shadows()[0]);
  for (const Array& w : frozen) h = tanh(matmul(h, w));
  tape.gradients(mean(h));
  EXPECT_LE(memory.peak(), 3 * weight_bytes + little);
}

TEST(MemoryAfterForward, NothingIsLeftBehind) {
  for (const Mesh mesh : shared_and_private({{"data", 4}})) {
    const Array x = placed(random_tensor({rows, n}, 9), mesh, P{"data"});
    const std::vector<Array> weights = large_weights(mesh, 2);
    const auto model = [&](Arrays w) { return mean(matmul(tanh(matmul(x * sum(w[0]), w[0])), w[1])); };
    const Allocations memory;
    step(weights, model);
    EXPECT_EQ(memory.live(), 0) << "after a step";
    {
      const Tape tape(weights);
      model(tape.shadows());
    }
    EXPECT_EQ(memory.live(), 0) << "after a forward pass alone";
    const auto fails = [&](Arrays w) { return matmul(model(w) * matmul(x, w[0]), x); };
    EXPECT_THROW(step(weights, fails), Error);
    EXPECT_EQ(memory.live(), 0) << "after an error";
    const Tape tape(weights);
    const at::NoGradGuard off;
    model(tape.shadows());
    EXPECT_LE(memory.live(), little) << "without a gradient";
  }
}

TEST(MemoryAfterForward, AnErrorInTheMiddleBreaksNothing) {
  const at::Tensor x = random_tensor({8, 8}, 1), w = random_tensor({8, 8}, 2);
  for (const Mesh mesh : shared_and_private({{"data", 4}})) {
    const Array batch = placed(x, mesh, P{"data"});
    const auto labels = [&](int last) {
      return device_put(array<int32_t>({1, 2, 3, 1, 1, 1, 1, last}), NamedSharding(mesh, P{"data"}));
    };
    Tape tape({placed(w, mesh, P{"data"})});
    const Array& shadow = tape.shadows()[0];
    EXPECT_THROW(matmul(batch, slice_in_dim(shadow, 0, 4, 0)), Error);
    EXPECT_THROW(embedding(shadow, labels(99)), Error);  // the local call throws while the weight is gathered
    EXPECT_THROW(cross_entropy(matmul(batch, shadow), labels(99)), Error);
    const Array loss = sum(matmul(batch, shadow)) + sum(embedding(shadow, labels(1)));
    const at::Tensor used = x.sum(0).unsqueeze(1) + at::tensor({0, 6, 1, 1, 0, 0, 0, 0}).unsqueeze(1);
    EXPECT_LE(difference(to_tensor(tape.gradients(loss)[0]), used.expand({8, 8})), 1e-13);
  }
}

TEST(MemoryAfterForward, ReturnedArraysStay) {
  const auto whole = [](const Array& w) { return redistribute(w, NamedSharding(w.sharding().mesh(), {})); };
  const struct {
    const char* name;
    std::function<Array(const Array&)> ours;
    std::function<at::Tensor(const at::Tensor&)> theirs;
  } table[] = {
      {"the weight made whole", whole, [](const at::Tensor& t) { return t; }},
      {"its transpose", [=](const Array& w) { return transpose(whole(w)); }, [](const at::Tensor& t) { return t.t(); }},
      {"a slice of what has to be gathered", [](const Array& w) { return slice_in_dim(w, 1, 7, 0); },
       [](const at::Tensor& t) { return t.narrow(0, 1, 6); }},
      {"a reshape of what has to be gathered", [](const Array& w) { return reshape(transpose(w), {64}); },
       [](const at::Tensor& t) { return t.t().reshape({64}); }},
      {"a scaled slice", [](const Array& w) { return 2.0 * slice_in_dim(w, 1, 7, 0); },
       [](const at::Tensor& t) { return 2 * t.narrow(0, 1, 6); }},
      {"a product of weights", [](const Array& w) { return matmul(w, w); },
       [](const at::Tensor& t) { return at::matmul(t, t); }},
  };
  const at::Tensor value = random_tensor({8, 8}, 1), x_values = random_tensor({8, 8}, 2);
  for (const auto& row : table)
    for (const bool private_replicas : {false, true}) {
      SCOPED_TRACE(std::string(row.name) + (private_replicas ? ", private replicas" : ", shared replicas"));
      const Mesh mesh = make_mesh({{"data", 4}}, {.private_replicas = private_replicas});
      const Array x = placed(x_values, mesh, P{"data"});
      Array out;
      {
        Tape tape({placed(value, mesh, P{"data"})});
        const Array& w = tape.shadows()[0];
        out = row.ours(w);
        const Array loss = sum(out) + sum(square(matmul(tanh(matmul(x, w)), w))) + sum(square(out));
        EXPECT_LE(difference(to_tensor(stop_gradient(out)), row.theirs(value)), 1e-14) << "before";
        tape.gradients(loss);
        EXPECT_LE(difference(to_tensor(stop_gradient(out)), row.theirs(value)), 1e-14) << "after";
      }
      EXPECT_LE(difference(to_tensor(tessera::detail::finalize_result(out)), row.theirs(value)), 1e-14)
          << "after the tape";
    }
}

}  // namespace
}  // namespace tessera::reshard_after_forward_memory_test
