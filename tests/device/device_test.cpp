// Meshes on an accelerator: arrays there have the values of arrays on the CPU, and can be copied back.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <sstream>

#include "nn/checkpoint/checkpoint.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/value_and_grad.h"
#include "optim/optimizer.h"
#include "sharding/array/array_impl.h"
#include "sharding/array/dlpack.h"
#include "sharding/operations.h"
#include "sharding/operations/shape/make_array.h"
#include "sharding/random/random.h"
#include "sharding/redistribution/device_put.h"
#include "tests/data/scratch_folder.h"
#include "tests/device/pretended_device.h"
#include "tests/optim/support.h"
#include "tests/sharding/expect_error.h"

namespace tessera::device_test {
namespace {

using data::ScratchFolder;
using tessera::testing::expect_error;

const std::string there = testing::pretended_device();
const std::vector<MeshAxis> grid{{"data", 2}, {"model", 2}};

Mesh on_device(bool private_replicas = false) {
  return make_mesh(grid, {.private_replicas = private_replicas, .device = there});
}
Mesh on_host() { return make_mesh(grid, {.device = "cpu"}); }

bool lies_there(const Array& x) {
  for (const at::Tensor& t : x.impl()->local)
    if (t.device().str() != there + ":0") return false;
  return true;
}

TEST(Device, OfAMesh) {
  EXPECT_EQ(on_device().device(), "pretended:0");
  EXPECT_EQ(on_host().device(), "cpu");
  EXPECT_EQ(make_mesh(grid, {.abstract = true}).device(), "meta");
  EXPECT_EQ(on_device(), make_mesh(grid, {.device = there + ":0"}));
  EXPECT_NE(on_device(), on_host());
}

TEST(Device, ThatLibTorchDoesNotHave) {
  expect_error(
      ErrorKind::device_mismatch,
      "[make_mesh] device \"xpu\": this LibTorch does not support such devices. Use one that was built for it.",
      [] { make_mesh(grid, {.device = "xpu"}); });
  expect_error(ErrorKind::device_mismatch,
               "[make_mesh] device \"pretended:3\": number 3 is requested, this process sees 1.",
               [] { make_mesh(grid, {.device = "pretended:3"}); });
  expect_error(
      ErrorKind::invalid_argument,
      "[make_mesh] device \"gpu\" given, which is not a device of LibTorch. Give \"cpu\", \"cuda\" or \"cuda:0\".",
      [] { make_mesh(grid, {.device = "gpu"}); });
  expect_error(ErrorKind::device_mismatch,
               "[make_mesh] device \"meta\": holds no values. Make an abstract mesh: {.abstract = true}.",
               [] { make_mesh(grid, {.device = "meta"}); });
  expect_error(ErrorKind::invalid_argument, "an abstract mesh has no devices to number and no replicas.",
               [] { make_mesh(grid, {.abstract = true, .device = there}); });
}

TEST(Device, SharesItsMemoryByDlpack) {
  const Array x = device_put(normal(Key(1), {8, 4}), NamedSharding(on_device(), P{}));
  const Array y = from_dlpack(to_dlpack(x), on_device());
  EXPECT_TRUE(lies_there(y));
  EXPECT_EQ(y.impl()->local[0].const_data_ptr(), x.impl()->local[0].const_data_ptr());
  EXPECT_EQ(from_dlpack(to_dlpack(x)).to_host<float>(), x.to_host<float>());  // uncommitted: copied to the host
}

TEST(Device, HoldsWhatIsPlacedThere) {
  const Array x = normal(Key(1), {8, 4});
  for (const bool private_replicas : {false, true})
    for (const PartitionSpec& spec : {P{}, P{"data"}, P{"data", "model"}, P{{"model", "data"}}}) {
      const Array placed = device_put(x, NamedSharding(on_device(private_replicas), spec));
      EXPECT_TRUE(lies_there(placed));
      EXPECT_EQ(placed.to_host<float>(), x.to_host<float>());
      for (const Shard& shard : placed.addressable_shards()) EXPECT_TRUE(shard.data.impl()->local[0].is_cpu());
    }
  const NamedSharding rows(on_device(), P{"data"});
  const Array made = make_array_from_callback(
      {8, 4}, rows, [&](const IndexRanges& block) { return x.index({range(block[0].first, block[0].second)}); });
  EXPECT_TRUE(lies_there(made));
  EXPECT_EQ(made.to_host<float>(), x.to_host<float>());
  std::vector<Array> shards;
  for (const Shard& shard : made.addressable_shards()) shards.push_back(shard.data);
  EXPECT_EQ(make_array_from_shards({8, 4}, rows, shards).to_host<float>(), x.to_host<float>());
}

TEST(Device, KeysGiveTheSameBits) {
  const auto expect_same = [](const Array& recipe, auto as) {
    const auto value = [&](Mesh mesh) {
      return device_put(recipe, NamedSharding(mesh, P{"data", "model"})).to_host<decltype(as)>();
    };
    EXPECT_EQ(value(on_device()), value(on_host()));
  };
  const Key key(7);
  expect_same(normal(key, {8, 6}), float{});
  expect_same(normal(key, {8, 6}, bfloat16), float{});
  expect_same(uniform(key, {8, 6}, -1, 2), float{});
  expect_same(truncated_normal(key, -2, 2, {8, 6}), float{});
  expect_same(exponential(key, {8, 6}), float{});
  expect_same(gumbel(key, {8, 6}), float{});
  expect_same(bernoulli(key, 0.3, {8, 6}), bool{});
  expect_same(randint(key, {8, 6}, -5, 100), int32_t{});
  expect_same(bits(key, {8, 6}), int64_t{});
  const Array x = ones({8, 6});
  const auto dropped = [&](Mesh mesh) {
    return dropout(key, device_put(x, NamedSharding(mesh, P{"data", "model"})), 0.4).to_host<float>();
  };
  EXPECT_EQ(dropped(on_device()), dropped(on_host()));
}

TEST(Device, MovesToTheHostAndBack) {
  const Array x = normal(Key(2), {8, 4});
  const Array here = device_put(x, NamedSharding(on_host(), P{"data"}));
  const Array away = device_put(here, NamedSharding(on_device(), P{none, "model"}));
  EXPECT_TRUE(lies_there(away));
  const Array back = device_put(away, NamedSharding(on_host(), P{}));
  EXPECT_TRUE(back.impl()->local[0].is_cpu());
  EXPECT_EQ(back.to_host<float>(), x.to_host<float>());
  EXPECT_EQ(device_put(away, 3).sharding().mesh().device(), "pretended:0");
  expect_error(ErrorKind::device_mismatch, "with other devices or replicas. Move one to the other's mesh",
               [&] { here + away; });
  expect_error(ErrorKind::device_mismatch, "over other devices. Both must have the same.", [&] {
    with_sharding_constraint(away, NamedSharding(make_mesh({{"all", 4}}, {.device = "cpu"}), P{}));
  });
}

TEST(Device, GradientsGoWhereTheirParametersAre) {
  const Array w = normal(Key(3), {4, 4}), x = normal(Key(4), {8, 4});
  const auto gradient = [&](const Array& parameter, Mesh mesh, Mesh moved) {
    Tape tape({parameter});
    const Array batch = device_put(x, NamedSharding(mesh, P{"data"}));
    const Array y = tanh(matmul(batch, tape.shadows()[0]));
    const Array z = mesh == moved ? y : device_put(y, NamedSharding(moved, P{none, "model"}));
    return tape.gradients(sum(z * z))[0];
  };
  const std::vector<float> expected = gradient(w, on_host(), on_host()).to_host<float>();
  const auto expect = [&](const Array& got) { expect_near(got, expected, 1e-5); };
  const Array unplaced = gradient(w, on_device(), on_device());
  EXPECT_TRUE(unplaced.impl()->local[0].is_cpu());
  expect(unplaced);
  for (const PartitionSpec& spec : {P{}, P{"data"}, P{none, "model"}}) {
    const Array placed = gradient(device_put(w, NamedSharding(on_device(), spec)), on_device(), on_device());
    EXPECT_TRUE(lies_there(placed));
    expect(placed);
  }
  expect(gradient(device_put(w, NamedSharding(on_device(), P{})), on_device(), on_host()));
  expect(gradient(device_put(w, NamedSharding(on_host(), P{})), on_host(), on_device()));
}

TEST(Device, PrintsTheSame) {
  const auto printed = [](Mesh mesh) {
    std::ostringstream out;
    out << device_put(normal(Key(5), {4, 3}), NamedSharding(mesh, P{"data"}));
    return out.str();
  };
  EXPECT_EQ(printed(on_device()), printed(on_host()));
}

// ---- a model that learns

Array loss_of(const Toy& model, const Array& ids) {
  const Array h = matmul(take(model.table, ids, 0), model.kernel) + model.bias;
  return mean(square(tanh(h) - 0.5));
}

struct Trained {
  Toy model;
  std::vector<float> losses;
};

Trained trained(Mesh mesh, int steps, bool borrow = true) {
  const MeshRules mesh_rules(mesh, {{"in", "data"}, {"out", "model"}, {"vocab", replicated}, {"batch", "data"}});
  Trained result{nn::filter_shard(Toy::init(1), mesh_rules), {}};
  optim::Optimizer optimizer(result.model,
                             optim::chain(optim::clip_by_global_norm(0.5), optim::adamw({.learning_rate = 0.02})));
  for (int step = 0; step < steps; ++step) {
    const Array ids = device_put(randint(Key(static_cast<uint32_t>(step)), {8}, 0, 24), {"batch"}, mesh_rules);
    auto [loss, grads] = nn::value_and_grad(loss_of, {.reshard_after_forward = borrow})(result.model, ids);
    result.losses.push_back(loss.template item<float>());
    optimizer.update(result.model, grads);
  }
  return result;
}

TEST(Device, TrainsAsTheHostDoes) {
  const Trained expected = trained(on_host(), 5);
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  for (const bool private_replicas : {false, true})
    for (const bool borrow : {false, true}) {
      const Trained got = trained(on_device(private_replicas), 5, borrow);
      for (size_t i = 0; i < got.losses.size(); ++i) EXPECT_NEAR(got.losses[i], expected.losses[i], 1e-6);
      expect_tree_near(got.model, expected.model, 1e-5);
      for (const nn::Leaf& leaf : nn::leaves(got.model)) EXPECT_TRUE(lies_there(*leaf.value)) << leaf.path;
    }
}

TEST(Device, SavesAndRestores) {
  const ScratchFolder folder;
  Toy model = trained(on_device(), 2).model;
  nn::save(folder.path("saved"), 1, nn::named_state("model", model));
  for (const Mesh mesh : {on_device(), on_device(true), on_host()}) {
    Toy again = trained(mesh, 0).model;
    EXPECT_EQ(nn::restore(folder.path("saved"), nn::named_state("model", again)).step, 1);
    expect_tree_near(again, model, 0);
    EXPECT_EQ(lies_there(again.kernel), mesh.device() != "cpu");
  }
}

}  // namespace
}  // namespace tessera::device_test
