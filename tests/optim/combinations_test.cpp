// All pairs of strategies on one mesh: a transformer has the losses of one device.
#include <algorithm>
#include <variant>

#include "nn/layers.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/pipeline.h"
#include "nn/transformations/value_and_grad.h"
#include "tests/optim/support.h"

namespace tessera::optim::combinations_test {
namespace {

using MeshAxes = std::vector<std::string>;

// ---- the strategies

// The rules that a strategy adds to the mesh rules, and its options.
struct Placement {
  const char* name;
  std::vector<const char*> over_all = {};   // logical axes that are sharded over all of the strategy's mesh axes
  std::vector<const char*> over_last = {};  // logical axes that are sharded over its last mesh axis
  bool shards_state = false;
  bool by_ring = false;
  bool on_stages = false;
};

const Placement placements[] = {
    {.name = "data", .over_all = {"batch"}},
    {.name = "fsdp", .over_all = {"batch", "embed"}},
    {.name = "hsdp", .over_all = {"batch"}, .over_last = {"embed"}},
    {.name = "zero1", .over_all = {"batch"}, .shards_state = true},
    {.name = "tensor", .over_all = {"heads", "mlp", "vocab"}},
    {.name = "sequence", .over_all = {"seq"}},
    {.name = "context", .over_all = {"seq"}, .by_ring = true},
    {.name = "expert", .over_all = {"batch", "experts"}},
    {.name = "pipeline", .over_last = {"layers"}, .on_stages = true},
};

// The rules and options of several strategies together.
struct Plan {
  std::map<std::string, MeshAxes> rules;
  MeshAxes shard_state_over;
  ContextParallelism context = ContextParallelism::automatic;
  bool has_stages = false;

  void add(const Placement& p, const MeshAxes& axes) {
    const auto append = [&](MeshAxes& to, const MeshAxes& more) { to.insert(to.end(), more.begin(), more.end()); };
    for (const char* name : p.over_all) append(rules[name], axes);
    for (const char* name : p.over_last) append(rules[name], {axes.back()});
    if (p.shards_state) append(shard_state_over, axes);
    if (p.by_ring) context = ContextParallelism::ring;
    has_stages |= p.on_stages;
  }
  MeshRules mesh_rules() const {
    Rules table;
    for (const auto& [name, axes] : rules) table.push_back({name, axes});
    for (const char* name : {"batch", "seq", "embed", "heads", "mlp", "vocab", "experts", "norm"})
      table.push_back({name, replicated});
    return {make_mesh({{"x", 2}, {"y", 2}, {"z", 2}}), table};
  }
};

// ---- trained arrays

Array placed(const Array& x) { return x.is_committed() ? with_sharding_constraint(x, {"batch", "seq", none}) : x; }

struct Block {
  nn::LayerNorm norm;
  nn::MultiheadAttention attention;
  nn::Mlp mlp;

  Array operator()(Array x) const {
    x = placed(x + attention(norm(x)));
    return placed(x + mlp(x));
  }
};

struct Mixture {
  nn::MoeMlp experts;

  Array operator()(const Array& x) const { return placed(x + experts(x).out); }
};

struct Model {
  nn::Embedding embed;
  std::vector<std::variant<Block, Mixture>> layers;
  nn::Linear head;

  // In float64, so that rounding does not change the router's choice.
  static Model init(ContextParallelism context) {
    const auto keys = split<5>(Key(0));
    const Axis embed{"embed", 8}, vocab{"vocab", 16}, mlp{"mlp", 16};
    const Block block{.norm = nn::LayerNorm::init({"norm", 8}),
                      .attention = nn::MultiheadAttention::init(keys[1], embed, {"heads", 16}, 8,
                                                                {.bias = false, .context_parallelism = context}),
                      .mlp = nn::Mlp::init(keys[2], embed, mlp)};
    const Mixture mixture{nn::MoeMlp::init(keys[3], embed, mlp, {"experts", 8}, {.capacity_factor = std::nullopt})};
    const Model model{.embed = nn::Embedding::init(keys[0], vocab, embed),
                      .layers = {block, mixture},
                      .head = nn::Linear::init(keys[4], embed, vocab, {.bias = false})};
    return nn::cast(model, float64);
  }
  Array operator()(const Array& ids) const {
    Array x = placed(embed(ids));
    for (const auto& layer : layers) x = std::visit([&](const auto& l) { return l(x); }, layer);
    return head(x);
  }
};

struct Batch {
  NamedArray ids{"batch", "seq"}, labels{"batch", "seq"};

  static Batch init() {
    const auto [k1, k2] = split<2>(Key(1));
    Batch batch;
    batch.ids = randint(k1, {8, 8}, 0, 16), batch.labels = randint(k2, {8, 8}, 0, 16);
    return batch;
  }
};

Array loss_of(const Model& model, const Batch& batch) { return cross_entropy(model(batch.ids), batch.labels); }

// The losses of three steps; a model with stages takes two micro-batches.
std::vector<double> trained(Model model, const Batch& batch, const Plan& plan = {}) {
  Optimizer optimizer(model, adam({.learning_rate = 0.02}), {.shard_state_over = plan.shard_state_over});
  const nn::PipelineOptions schedule{.num_micro_batches = 2, .schedule = nn::PipelineSchedule::one_f_one_b};
  std::vector<double> losses;
  for (int step = 0; step < 3; ++step) {
    const auto [loss, grads] =
        plan.has_stages ? nn::pipeline(loss_of, schedule, {.shard_gradients_over = plan.shard_state_over})(model, batch)
                        : nn::value_and_grad(loss_of, {.shard_gradients_over = plan.shard_state_over})(model, batch);
    optimizer.update(model, grads);
    losses.push_back(loss.item<double>());
  }
  return losses;
}

std::vector<double> trained(const Plan& plan) {
  const MeshRules mesh_rules = plan.mesh_rules();
  return trained(nn::filter_shard(Model::init(plan.context), mesh_rules), nn::filter_shard(Batch::init(), mesh_rules),
                 plan);
}

// The first strategy uses one mesh axis, the second one two. Pipeline stages always use one.
TEST(Combinations, OfTwoPlacementsLearnAsOneDevice) {
  const std::vector<double> alone = trained(Model::init(ContextParallelism::automatic), Batch::init());
  ASSERT_LT(alone[2], alone[0] - 0.1);
  for (const Placement& first : placements)
    for (const Placement& second : placements) {
      if (first.on_stages && second.on_stages) continue;
      Plan plan;
      plan.add(first, {"x"}), plan.add(second, {"y", "z"});
      const std::vector<double> together = trained(plan);
      for (size_t step = 0; step < alone.size(); ++step)
        EXPECT_NEAR(together[step], alone[step], 1e-9) << first.name << " x " << second.name << ", step " << step;
    }
}

}  // namespace
}  // namespace tessera::optim::combinations_test
