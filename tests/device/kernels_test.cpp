// Counts the kernels and allocations of a training step, compared with plain LibTorch for the same model.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <utility>

#include "examples/transformer.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/array/array_impl.h"
#include "sharding/base/caller.h"
#include "tests/benchmarks/plain_gpt.h"
#include "tests/device/pretended_device.h"
#include "tests/optim/support.h"

namespace tessera::kernels_test {
namespace {

const std::string there = testing::pretended_device();

struct Counts {
  int64_t kernels = 0, allocations = 0;
  std::map<std::string, int64_t> by_name, by_module, allocations_before;  // the last: by the kernel that runs next
};

class Counted : public testing::DeviceWatcher {
 public:
  Counted() { testing::watch_device(this); }
  ~Counted() override { testing::watch_device(nullptr); }
  void kernel(const std::string& name, std::function<void()>) override {
    ++counts.kernels, ++counts.by_name[name];
    const auto& module = detail::current_module_path();
    ++counts.by_module[module ? *module : "none"];
    if (const int64_t made = std::exchange(made_, 0)) counts.allocations_before[name] += made;
  }
  void allocation(const at::Tensor&) override { ++counts.allocations, ++made_; }

  Counts counts;

 private:
  int64_t made_ = 0;
};

constexpr int64_t batch = 4, seq = 8, vocab = 32;
constexpr benchmarks::PlainAdamw adamw{
    .learning_rate = 1e-3, .b1 = 0.9, .b2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .max_norm = 1e-3};  // both clip

examples::GptConfig config(int64_t layers) {
  return {.vocab = vocab, .embed = 16, .heads = 4, .layers = layers, .seq = seq, .mlp = 64};
}

// Counts the first step that allocates no new memory. This takes a few steps: the backward thread frees its last
// tensors late, and until then this thread's tensors get other memory.
template <class Step>
Counts counted(Step step) {
  for (int i = 0; i < 3; ++i) step();
  for (int i = 0; i < 20; ++i) {
    const Counted all;
    const size_t before = testing::memory_used();
    step();
    if (testing::memory_used() == before) return all.counts;
  }
  ADD_FAILURE() << "each of twenty steps takes memory that those before it had not";
  return {};
}

struct Tokens {
  NamedArray inputs{"batch", "seq"}, targets{"batch", "seq"};
};

Array ids(uint32_t seed) {
  return array<int32_t>(randint(Key(seed), {batch, seq}, 0, vocab).to_host<int32_t>(), {batch, seq});
}

Counts ours(int64_t layers, const std::vector<MeshAxis>& axes, const Rules& rules) {
  const MeshRules mesh_rules(make_mesh(axes, {.device = there}), examples::with_all_names(rules));
  auto model = nn::filter_shard(examples::Gpt::init(Key(0), config(layers)), mesh_rules);
  optim::Optimizer optimizer(model, optim::chain(optim::clip_by_global_norm(adamw.max_norm),
                                                 optim::adamw({.learning_rate = adamw.learning_rate,
                                                               .b1 = adamw.b1,
                                                               .b2 = adamw.b2,
                                                               .eps = adamw.eps,
                                                               .weight_decay = adamw.weight_decay,
                                                               .mask = optim::matrices_only})));
  Tokens tokens;
  tokens.inputs = device_put(ids(1), {"batch", none}, mesh_rules);
  tokens.targets = device_put(ids(2), {"batch", none}, mesh_rules);
  return counted([&] {
    auto [loss, grads] = nn::value_and_grad(examples::next_token_loss<examples::Gpt, Tokens>)(model, tokens);
    optimizer.update(model, std::move(grads));
    loss.item<double>();
  });
}

Counts plain(int64_t layers) {
  std::map<std::string, at::Tensor> parameters;
  auto model = examples::Gpt::init(Key(0), config(layers));
  const c10::Device device(there);
  for (const nn::Leaf& leaf : nn::leaves(model)) parameters[leaf.path] = to_tensor(*leaf.value).to(device);
  benchmarks::PlainGpt gpt(parameters, layers, 4, config(layers).eps, adamw);
  const at::Tensor inputs = to_tensor(ids(1)).to(at::kLong).to(device),
                   targets = to_tensor(ids(2)).to(at::kLong).to(device);
  return counted([&] { gpt.step(inputs, targets); });
}

// The difference of two counts by name, one name per line.
std::string differences(std::map<std::string, int64_t> more, const std::map<std::string, int64_t>& than) {
  for (const auto& [name, n] : than) more[name] -= n;
  std::string text;
  for (const auto& [name, n] : more)
    if (n) text += fmt::format("  {:+} {}\n", n, name);
  return text;
}

TEST(DeviceKernels, AStepHasThoseOfPlainLibTorch) {
  for (const int64_t layers : {2, 3}) {
    const Counts a = ours(layers, {{"data", 1}}, {}), b = plain(layers);
    const std::string how =
        fmt::format("{} kernels beside {}\n{}{} allocations beside {}, by the kernel that comes next\n{}", a.kernels,
                    b.kernels, differences(a.by_name, b.by_name), a.allocations, b.allocations,
                    differences(a.allocations_before, b.allocations_before));
    EXPECT_LE(static_cast<double>(a.kernels), 1.1 * static_cast<double>(b.kernels)) << how;
    EXPECT_LE(a.allocations, b.allocations) << how;  // ours also checks indices and clips by a norm
  }
}

TEST(DeviceKernels, ABlockHasNoMoreThanItsCeiling) {
  const auto a_block = [](const Counts& three, const Counts& two) { return three.kernels - two.kernels; };
  EXPECT_EQ(a_block(plain(3), plain(2)), 74);
  struct Case {
    std::vector<MeshAxis> mesh;
    Rules rules;
    int64_t ceiling;
  };
  const std::vector<Case> cases{{{{"data", 1}}, {}, 74},
                                {{{"data", 2}}, {{"batch", "data"}}, 158},
                                {{{"data", 2}}, {{"batch", "data"}, {"embed", "data"}}, 176}};
  for (const Case& c : cases) {
    const Counts three = ours(3, c.mesh, c.rules);
    std::string modules;  // forward
    for (const auto& [module, n] : three.by_module) modules += fmt::format("  {} {}\n", module, n);
    EXPECT_LE(a_block(three, ours(2, c.mesh, c.rules)), c.ceiling) << modules;
  }
}

}  // namespace
}  // namespace tessera::kernels_test
