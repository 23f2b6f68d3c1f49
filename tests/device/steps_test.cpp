// Training steps on an accelerator: where the host waits for it.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "nn/models/gpt2.h"
#include "nn/models/llama.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/cast.h"
#include "sharding/array/waits.h"
#include "tests/device/pretended_device.h"
#include "tests/optim/support.h"

namespace tessera {
namespace {

const std::string there = testing::pretended_device();

// Every wait, by kernel and operation.
class Waits : public detail::WaitWatcher {
 public:
  void waits(detail::Wait wait, const std::string& kernel) override {
    ++count_[fmt::format("{} {} after {} at {}", wait == detail::Wait::value ? "reads" : "hands over", kernel,
                         detail::latest_operation().name, detail::latest_line())];
  }
  int64_t reads() const { return of("reads"); }
  int64_t all() const { return of(""); }
  std::string text() const {
    std::string text;
    for (const auto& [what, n] : count_) text += fmt::format("  {} x {}\n", n, what);
    return text;
  }

 private:
  int64_t of(const std::string& kind) const {
    int64_t sum = 0;
    for (const auto& [what, n] : count_) sum += what.starts_with(kind) ? n : 0;
    return sum;
  }
  std::map<std::string, int64_t> count_;
};

struct Options {
  bool remat = false, half = false;
  int micro_batches = 1;
};

// Two steps; the second is watched.
template <class Model>
void expect_no_wait(const Mesh& mesh, nn::DecoderConfig config, const Options& options, const std::string& what) {
  const Layout layout(mesh, nn::decoder_rules(mesh));
  Model model = nn::filter_shard(Model::init(Key(1), config), layout);
  model.remat = options.remat;
  optim::Optimizer optimizer(model,
                             optim::chain(optim::clip_by_global_norm(0.5), optim::adamw({.learning_rate = 0.02})));
  const auto loss_of = [&](const Model& given, const Array& ids, const Array& labels, const Key& key) {
    const Model m = options.half ? nn::cast(given, bfloat16) : given;
    const Array hidden = dropout(key, m.hidden(ids), 0.1);
    return mean(cross_entropy(astype(m.logits(hidden), float32), labels));
  };
  for (uint32_t step = 0; step < 2; ++step) {
    const auto tokens = [&](uint32_t seed) {
      const Array host = array<int32_t>(randint(Key(seed), {16, 8}, 0, 32).to_host<int32_t>(), {16, 8});
      return device_put(host, {"batch", none}, layout);
    };
    const Array ids = tokens(step), labels = tokens(step + 100);
    const auto watched = std::make_unique<Waits>();
    auto [loss, grads] = nn::accumulate_gradients(loss_of, options.micro_batches)(model, ids, labels, Key(step));
    optimizer.update(model, grads);
    if (step == 1) {
      EXPECT_EQ(watched->all(), 0) << what << '\n' << watched->text();
    }
    const int64_t before = watched->all();
    EXPECT_GT(loss.template item<float>(), 0);
    EXPECT_EQ(watched->all() - before, 1) << what << watched->text();
  }
}

TEST(DeviceSteps, WaitForNothingButTheLoss) {
  const nn::DecoderConfig llama{.vocab = 32, .embed = 16, .layers = 2, .heads = 4, .head_dim = 4, .mlp = 24};
  nn::DecoderConfig gpt = llama;
  gpt.family = nn::DecoderFamily::gpt2, gpt.positions = 16;
  gpt.attention_bias = gpt.output_bias = gpt.mlp_bias = gpt.tied = true, gpt.activation = {nn::Activation::gelu};
  const std::vector<std::vector<MeshAxis>> meshes{{{"data", 1}},
                                                  {{"data", 4}},
                                                  {{"fsdp", 4}},
                                                  {{"model", 4}},
                                                  {{"data", 2}, {"model", 2}},
                                                  {{"data", 2}, {"fsdp", 2}, {"model", 2}}};
  for (const auto& axes : meshes)
    for (const Options& o : {Options{}, Options{.remat = true, .half = true, .micro_batches = 2}}) {
      const Mesh mesh = make_mesh(axes, {.device = there});
      const std::string what = fmt::format(" on ({}), remat {}, bfloat16 {}, {} micro-batches", mesh.to_string(),
                                           o.remat, o.half, o.micro_batches);
      expect_no_wait<nn::Gpt2>(mesh, gpt, o, "Gpt" + what);
      expect_no_wait<nn::Llama>(mesh, llama, o, "Llama" + what);
    }
}

}  // namespace
}  // namespace tessera
