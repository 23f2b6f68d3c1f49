// The memory of a training step with weights fully sharded over eight devices: live bytes and the peak.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <ostream>
#include <vector>

#include "data/batches/to_global.h"
#include "examples/transformer.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/array/autograd.h"
#include "tests/examples/rows.h"
#include "tests/sharding/allocations.h"

namespace tessera::examples::memory_test {
namespace {

using detail::Tensors;
using tessera::testing::Allocations;

// One process holds all devices. With shared replicas it stores equal blocks once, so every array, replicated or
// sharded, takes its size once. With private replicas each device has its own copy.
constexpr int devices = 8;

struct Size {
  const char* name;
  GptConfig config;
  int64_t batch;

  int64_t activation() const { return batch * config.seq * config.embed * 4; }
  int64_t ids() const { return 2 * batch * config.seq * 4; }
  int64_t smallest_matrix() const { return config.embed * config.embed * 4; }
  int64_t block() const { return (4 * config.embed + 2 * config.mlp + 2) * config.embed * 4; }  // its gathered weights
  int64_t largest_weight() const { return config.embed * std::max(config.mlp, config.vocab) * 4; }
};

const Size sizes[] = {
    {"weights dominate", {.vocab = 256, .embed = 256, .heads = 4, .layers = 4, .seq = 8, .mlp = 1024}, 8},
    {"activations dominate", {.vocab = 256, .embed = 32, .heads = 4, .layers = 8, .seq = 64, .mlp = 128}, 16},
};

struct Mode {
  bool fully_sharded = true, reshard_after_forward = true, remat = false, private_replicas = false;
  GatherGroups gather_groups = GatherGroups::by_parameter;
};

MeshRules mesh_rules_of(const Mode& mode) {
  Rules rules{{"batch", "data"}};
  if (mode.fully_sharded) rules.push_back({"embed", "data"});
  return {make_mesh({{"data", devices}}, {.private_replicas = mode.private_replicas}), with_all_names(rules)};
}

// Returns x; `seen` is called when its gradient is computed.
Array watched(const Array& x, std::function<void()> seen) {
  const detail::ArrayPtr& a = x.impl();
  Tensors out = a->local;
  detail::record_function("watched", a->local, out, [seen = std::move(seen)](Tensors gradients) {
    seen();
    return gradients;
  });
  detail::ArrayPtr made = detail::make_array(a->type, a->slots, std::move(out));
  detail::copy_facts(*a, *made);
  return Array(std::move(made));
}

// Bytes of the whole process.
struct Measured {
  int64_t before = 0;                      // the parameters, the optimizer's state and the batch
  std::vector<int64_t> forward, backward;  // the additional bytes at each point of the residual stream
  int64_t peak = 0, left = 0;              // value_and_grad: its peak, and the bytes after it, gradients included
  int64_t update_peak = 0, end = 0;        // the optimizer's step: its peak, and the bytes after it
  int64_t table = 0, gradients = 0;        // by placement_table: parameters, gradients and state
};

Measured measure(const Size& size, const Mode& mode) {
  const MeshRules mesh_rules = mesh_rules_of(mode);
  const Allocations memory;
  Gpt model = nn::filter_shard(Gpt::init(Key(0), size.config), mesh_rules);
  model.remat = mode.remat;
  optim::Optimizer optimizer(model,
                             optim::chain(optim::clip_by_global_norm(1.0), optim::adamw({.learning_rate = 1e-3})));
  const data::TokenBatch batch =
      data::from_process_local(counted_rows(size.batch, size.config.seq, size.config.vocab), mesh_rules);
  Measured result{.before = memory.live()};
  const auto note = [&](std::vector<int64_t>& list) { list.push_back(memory.live() - result.before); };
  const Constrain constrain = [&](const Array& x) {
    note(result.forward);
    return watched(constrain_by_names(x), [&] { note(result.backward); });
  };
  const auto loss_fn = [&](const Gpt& m, const data::TokenBatch& b) {
    return cross_entropy(m(b.inputs, constrain), b.targets);
  };
  const auto value_and_grad = nn::value_and_grad(
      loss_fn, {.reshard_after_forward = mode.reshard_after_forward, .gather_groups = mode.gather_groups});
  value_and_grad(model, batch);  // records the gathers for the next step
  result.forward.clear(), result.backward.clear();
  const auto [loss, grads] = value_and_grad(model, batch);
  result.peak = memory.peak(), result.left = memory.live();
  optimizer.update(model, grads);
  result.update_peak = memory.peak(), result.end = memory.live();
  const auto table = nn::placement_table(nn::named("model", model, "gradients", grads, "optimizer", optimizer));
  const auto bytes = [&](std::string_view path) {
    return mode.private_replicas ? devices * table.bytes_per_device(path) : table.bytes(path);
  };
  result.table = bytes(""), result.gradients = bytes("gradients");
  return result;
}

// The temporary memory of a step without gathered weights, measured with data parallelism on the same devices.
// Parameters, gradients and state remain after the step, so the rest of the peak is activations and their gradients.
int64_t activations_of(const Size& size) {
  const Measured dp = measure(size, {.fully_sharded = false});
  return dp.peak - dp.left;
}

class Memory : public ::testing::TestWithParam<Size> {};

void PrintTo(const Size& size, std::ostream* out) { *out << size.name; }

TEST_P(Memory, NoGatheredWeightOutlivesItsUse) {
  const Size& size = GetParam();
  for (const bool remat : {false, true}) {
    SCOPED_TRACE(remat ? "remat" : "plain");
    const Measured dp = measure(size, {.fully_sharded = false, .remat = remat}), fsdp = measure(size, {.remat = remat});
    ASSERT_EQ(fsdp.forward.size(), dp.forward.size());
    ASSERT_EQ(fsdp.backward.size(), dp.backward.size());
    EXPECT_EQ(fsdp.backward.size(), 1 + 2 * size.config.layers);
    for (size_t i = 0; i < fsdp.forward.size(); ++i)
      EXPECT_LE(fsdp.forward[i], dp.forward[i] + size.smallest_matrix() / 2) << "at point " << i << " of the runs";
    for (size_t i = 0; i < fsdp.backward.size(); ++i)
      EXPECT_LE(fsdp.backward[i], dp.backward[i] + size.smallest_matrix() / 2) << "at point " << i << " going back";
    const Measured owned = measure(size, {.remat = remat, .private_replicas = true});
    for (size_t i = 0; i < std::min<size_t>(owned.forward.size(), 1 + 2 * size.config.layers); ++i)
      EXPECT_LE(owned.forward[i], dp.forward[i] + size.smallest_matrix() / 2) << "private replicas, at point " << i;
  }
  // Without reshard_after_forward, every weight stays gathered after its use.
  const Measured dp = measure(size, {.fully_sharded = false}), kept = measure(size, {.reshard_after_forward = false});
  for (int i = 1; i <= 2 * size.config.layers; ++i)
    EXPECT_GE(kept.forward[i], dp.forward[i] + i / 2 * 12 * size.smallest_matrix()) << "at point " << i;
}

// A gathered group and its gradients before the reduce_scatter are replicated: private replicas store them once per
// device, shared replicas once. A group is the largest weight (by_parameter) or a block (by_block).
TEST_P(Memory, ThePeakIsTheTableTwoGatheredGroupsAndActivations) {
  const Size& size = GetParam();
  const int64_t activations = activations_of(size);
  for (const GatherGroups group : {GatherGroups::by_parameter, GatherGroups::by_block})
    for (const bool private_replicas : {false, true}) {
      const Measured fsdp = measure(size, {.private_replicas = private_replicas, .gather_groups = group});
      const int64_t largest = group == GatherGroups::by_block ? size.block() : size.largest_weight();
      const int64_t bound = fsdp.table + 2 * (private_replicas ? devices : 1) * largest + activations;
      EXPECT_LE(fsdp.peak, bound) << "table " << fsdp.table << ", activations " << activations;
      if (group == GatherGroups::by_parameter) {
        EXPECT_GT(
            measure(size,
                    {.reshard_after_forward = false, .private_replicas = private_replicas, .gather_groups = group})
                .peak,
            bound);
      }
      // Clipping makes a second copy of the gradients during the update. After the step only the table's arrays remain.
      EXPECT_LE(fsdp.update_peak, std::max(bound, fsdp.table + fsdp.gradients + fsdp.gradients / 16));
      EXPECT_LE(fsdp.end, fsdp.table + size.ids() + devices * 4) << "the batch and the loss";
    }
}

TEST_P(Memory, WithRematThePeakHasTheActivationsOfOneBlock) {
  const Size& size = GetParam();
  Size one_block = size;
  one_block.config.layers = 1;
  const int64_t inputs = (size.config.layers - 1) * size.activation();
  const Measured fsdp = measure(size, {.remat = true});
  const int64_t bound = fsdp.table + 2 * size.largest_weight() + activations_of(one_block) + inputs;
  EXPECT_LE(fsdp.peak, bound);
  EXPECT_GT(measure(size, {.reshard_after_forward = false, .remat = true}).peak, fsdp.peak);
  EXPECT_TRUE(size.activation() < size.largest_weight() || measure(size, {}).peak > bound);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Memory, ::testing::ValuesIn(sizes), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
});

}  // namespace
}  // namespace tessera::examples::memory_test
