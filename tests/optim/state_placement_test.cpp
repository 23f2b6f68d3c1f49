// {.shard_state_over}: the same parameters as without it, a sharded state, and one collective in each direction.
#include "optim/transform/state_placement.h"

#include <ATen/ATen.h>

#include "nn/placement/table.h"
#include "nn/transformations/value_and_grad.h"
#include "nn/tree/tree_equal.h"
#include "sharding/accounting/communication_guard.h"
#include "sharding/array/array_impl.h"
#include "tests/optim/support.h"
#include "tests/sharding/meshes.h"
#include "tests/sharding/refused_memory.h"

namespace tessera::optim::state_placement_test {
namespace {

const OptimizerOptions over_data{.shard_state_over = {"data"}};

auto clipped_adamw() {
  return chain(clip_by_global_norm(1.0), adamw({.learning_rate = 0.1, .weight_decay = 0.1, .mask = matrices_only}));
}
auto scheduled_sgd() {
  return sgd({.learning_rate = warmup_cosine_decay_schedule(
                  {.init_value = 1e-2, .peak_value = 0.1, .warmup_steps = 2, .decay_steps = 6})});
}

// Toy plus arrays that cannot be sharded, are not trained, or get no gradient.
struct Model {
  Toy toy;
  nn::Param odd, scalar, unused;
  Array steps, absent;

  static Model init() {
    return {.toy = Toy::init(1),
            .odd = {normal(Key(4), {3, 5}), {none, none}},
            .scalar = {full({}, 0.5), {}},
            .unused = {normal(Key(5), {16}), {"out"}},
            .steps = zeros({8}, int32),
            .absent = {}};
  }
};

Array loss_of(const Model& m, const Array& x) {
  const Array h = matmul(x, m.toy.kernel) * m.scalar + m.toy.bias;
  return mean(square(h)) + 0.1 * sum(square(m.toy.table)) + mean(x) * sum(square(m.odd));
}

Array data_for(const MeshRules& mesh_rules, uint32_t seed) {
  return device_put(normal(Key(seed), {8, 8}), NamedSharding(mesh_rules.mesh(), P{"data"}));
}

// ---- the same training

template <class Tx>
void expect_same_training(const Tx& tx, const MeshRules& mesh_rules, double tolerance) {
  const Model start = nn::filter_shard(Model::init(), mesh_rules);
  for (const bool pending : {false, true}) {
    SCOPED_TRACE(pending ? "pending gradients" : "reduced gradients");
    Model with = start, without = start;
    Optimizer cut(with, tx, over_data), plain(without, tx);
    for (uint32_t step = 0; step < 4; ++step) {
      const Array x = data_for(mesh_rules, 10 + step);
      cut.update(with, nn::value_and_grad(loss_of, {.reduce = !pending})(with, x).second);
      plain.update(without, nn::value_and_grad(loss_of)(without, x).second);
    }
    expect_tree_near(with, without, tolerance);
    expect_tree_near(cut.state(), plain.state(), tolerance);
    EXPECT_EQ(cut.count(), 4);
    EXPECT_EQ(cut.learning_rate(), plain.learning_rate());
    EXPECT_EQ(cut.grad_norm().has_value(), plain.grad_norm().has_value());
    EXPECT_NEAR(cut.grad_norm().value_or(0), plain.grad_norm().value_or(0), 1e-4);
    const nn::Leaves a = nn::leaves(with), b = nn::leaves(without);
    for (size_t i = 0; i < a.size(); ++i) {
      if (a[i].value->is_absent()) continue;
      EXPECT_EQ(a[i].value->sharding(), b[i].value->sharding()) << a[i].path;
      EXPECT_EQ(a[i].value->impl()->type, b[i].value->impl()->type) << a[i].path;
      EXPECT_EQ(a[i].value->impl()->local.size(), b[i].value->impl()->local.size()) << a[i].path;
      EXPECT_EQ(a[i].value->impl()->weight, b[i].value->impl()->weight) << a[i].path;
      EXPECT_EQ(a[i].value->impl()->mesh_rules, b[i].value->impl()->mesh_rules) << a[i].path;
      EXPECT_EQ(a[i].value->path(), a[i].path);
    }
  }
}

TEST(ShardedState, TrainsTheSameParameters) {
  on_all_meshes([](const Case&, const MeshRules& mesh_rules) {
    expect_same_training(clipped_adamw(), mesh_rules, 2e-6);
    expect_same_training(adam({.learning_rate = 0.1, .eps = 0.1}), mesh_rules, 2e-6);
    // None of these uses the fused update.
    expect_same_training(scheduled_sgd(), mesh_rules, 2e-6);
    expect_same_training(adamw({.learning_rate = 0.1, .eps_root = 0.1}), mesh_rules, 2e-6);
    expect_same_training(chain(clip_by_global_norm(0.1), adam({.learning_rate = 0.1, .eps = 0.1}), scale(0.5)),
                         mesh_rules, 2e-6);
  });
}

// Bitwise equal if no sum changes its order. (The fused kernel rounds the last few elements of an array differently.)
TEST(ShardedState, IsExactForReducedGradients) {
  on_all_meshes([](const Case&, const MeshRules& mesh_rules) {
    const auto tx = adamw({.learning_rate = 0.1, .eps_root = 0.1, .weight_decay = 0.1});
    Toy with = nn::filter_shard(Toy::init(1), mesh_rules), without = with;
    Optimizer cut(with, tx, over_data), plain(without, tx);
    for (uint32_t step = 0; step < 3; ++step) {
      const Toy grads = nn::filter_shard(Toy::init(10 + step), mesh_rules);
      cut.update(with, grads);
      plain.update(without, grads);
    }
    expect_tree_near(with, without, 0);
  });
}

TEST(ShardedState, HalfPrecisionIsRoundedOnce) {
  const MeshRules mesh_rules = mesh_rules_of(cases()[1], false);
  std::vector<Array> with{device_put(normal(Key(1), {16}, bfloat16), NamedSharding(mesh_rules.mesh(), {}))},
      without = with;
  Optimizer cut(with, adamw({.learning_rate = 0.01}), over_data), plain(without, adamw({.learning_rate = 0.01}));
  const std::vector<Array> grads{device_put(normal(Key(2), {16}, bfloat16), NamedSharding(mesh_rules.mesh(), {}))};
  cut.update(with, grads), plain.update(without, grads);
  expect_tree_near(with, without, 0);
  EXPECT_EQ(std::get<0>(cut.state()).mu[0].dtype(), float32);
}

TEST(ShardedState, OfAModelThatIsPlacedLater) {
  const Model plain = Model::init();
  const Optimizer before(plain, clipped_adamw(), over_data);
  EXPECT_TRUE(plain.toy.kernel.value.is_lazy());
  on_all_meshes([&](const Case&, const MeshRules& mesh_rules) {
    Model with = nn::filter_shard(plain, mesh_rules), without = with;
    auto late = before;
    Optimizer early(without, clipped_adamw());
    for (uint32_t step = 0; step < 3; ++step) {
      const Array x = data_for(mesh_rules, 10 + step);
      late.update(with, nn::value_and_grad(loss_of, {.reduce = false})(with, x).second);
      early.update(without, nn::value_and_grad(loss_of)(without, x).second);
    }
    expect_tree_near(with, without, 2e-6);
  });
}

TEST(ShardedState, OfAModelThatIsNotPlaced) {
  const MeshRules mesh_rules = mesh_rules_of(cases()[1], false);
  const auto tx = adam({.learning_rate = 0.1, .eps = 1.0});
  Model with = Model::init(), pending = with, without = with;
  Optimizer cut(with, tx, over_data), plain(without, tx), summing(pending, tx);
  for (uint32_t step = 0; step < 3; ++step) {
    const Array x = data_for(mesh_rules, 10 + step);
    plain.update(without, nn::value_and_grad(loss_of)(without, x).second);
    cut.update(with, nn::value_and_grad(loss_of, {.reduce = false})(with, x).second);
    summing.update(pending, nn::value_and_grad(loss_of, {.reduce = false})(pending, x).second);
  }
  expect_tree_near(with, without, 2e-6);
  expect_tree_near(pending, without, 2e-6);
}

// ---- sharding of the state

TEST(ShardedState, IsShardedOnTheFirstDimThatTheAxesDivide) {
  const struct {
    Shape shape;
    PartitionSpec parameter;
    std::vector<std::string> axes;
    PartitionSpec expected;
  } table[] = {
      {{8, 16}, {}, {"data"}, P{"data"}},
      {{3, 16}, {}, {"data"}, P{none, "data"}},
      {{3, 5, 4}, {}, {"data"}, P{none, none, "data"}},
      {{3, 5}, {}, {"data"}, {}},  // no dimension is divisible: as the parameter
      {{2, 5}, {}, {"data"}, {}},  // 2 is smaller than the axis, which has 4 devices
      {{}, {}, {"data"}, {}},
      {{8, 16}, P{"model"}, {"data"}, P{{"model", "data"}}},  // appended as the minor axis
      {{8, 16}, P{none, "model"}, {"data"}, P{"data", "model"}},
      {{3, 16}, P{none, "model"}, {"data"}, P{none, {"model", "data"}}},
      {{6, 12}, P{"model"}, {"data"}, P{"model", "data"}},  // model=2 leaves 3 rows, which data=4 does not divide
      {{8, 16}, P{"data"}, {"data"}, P{"data"}},            // in use already
      {{8, 16}, P{{"data", "model"}}, {"data"}, P{{"data", "model"}}},
      {{8, 16}, {}, {"data", "model"}, P{{"data", "model"}}},
      {{8, 16}, {}, {"model", "data"}, P{{"model", "data"}}},
      {{4, 16}, {}, {"data", "model"}, P{none, {"data", "model"}}},
      {{8, 16}, P{none, "model"}, {"data", "model"}, P{"data", "model"}},  // the unused axis
      {{8, 16}, P{none, "data"}, {"data", "model"}, P{"model", "data"}},
      {{8, 16}, {}, {"one"}, {}},  // an axis of size one shards nothing
      {{8, 16}, {}, {}, {}},
  };
  for (const auto& row : table)
    for (const Mesh mesh : tessera::testing::shared_and_private({{"data", 4}, {"model", 2}, {"one", 1}})) {
      std::vector<Array> model{device_put(normal(Key(1), row.shape), NamedSharding(mesh, row.parameter))};
      Optimizer optimizer(model, adam({.learning_rate = 0.1}), {.shard_state_over = row.axes});
      const auto check = [&](const char* when) {
        for (const auto* moment : {&std::get<0>(optimizer.state()).mu[0], &std::get<0>(optimizer.state()).nu[0]})
          EXPECT_EQ(moment->sharding().spec(), row.expected)
              << when << ": " << row.parameter.to_string() << " " << moment->type_string();
        EXPECT_EQ(model[0].sharding().spec(), row.parameter) << when;
      };
      check("at first");
      optimizer.update(model, {device_put(normal(Key(2), row.shape), NamedSharding(mesh, row.parameter))});
      check("after an update");
    }
}

TEST(ShardedState, TakesAPartOfTheBytes) {
  for (const bool private_replicas : {false, true}) {
    const MeshRules mesh_rules = mesh_rules_of(cases()[1], private_replicas);
    Model model = nn::filter_shard(Model::init(), mesh_rules);
    Optimizer cut(model, clipped_adamw(), over_data), plain(model, clipped_adamw());
    const auto tables = [&](auto& optimizer) {
      return nn::placement_table(nn::named("model", model, "optimizer", optimizer));
    };
    const int64_t whole = 4 * (8 * 16 + 16 + 24 * 8 + 16), rest = 4 * (3 * 5 + 1), integers = 4 * 8;
    for (int step = 0; step < 2; ++step) {
      EXPECT_EQ(tables(plain).bytes_per_device("optimizer"), 2 * (whole + rest));
      EXPECT_EQ(tables(cut).bytes_per_device("optimizer"), 2 * (whole / 4 + rest));
      EXPECT_EQ(tables(cut).bytes_per_device("model"), whole + rest + integers);
      EXPECT_EQ(tables(cut).bytes("optimizer"), 2 * (whole + rest));
      const Array x = data_for(mesh_rules, 7);
      cut.update(model, nn::value_and_grad(loss_of, {.reduce = false})(model, x).second);
    }
  }
}

// ---- communication

std::string communication(const CommLedger& ledger) {
  std::string text;
  for (const CommRecord& r : ledger.records())
    text += r.kind + " " + r.mesh_axes + " " + std::to_string(r.bytes) + "; ";
  return text;
}

TEST(ShardedState, CommunicatesOnceEachWay) {
  constexpr int64_t whole = 4 * (8 * 16 + 16 + 24 * 8);
  const auto update = [&](const Case& c, bool private_replicas, const OptimizerOptions& options, bool reduce) {
    const MeshRules mesh_rules = mesh_rules_of(c, private_replicas);
    Toy model = nn::filter_shard(Toy::init(1), mesh_rules);
    Optimizer optimizer(model, clipped_adamw(), options);
    const Toy grads = nn::value_and_grad(toy_loss, {.reduce = reduce})(model, data_for(mesh_rules, 7)).second;
    CommLedger ledger;
    optimizer.update(model, grads);
    return communication(ledger);
  };
  const auto text = [](const std::string& kind, int64_t bytes) { return kind + " " + std::to_string(bytes) + "; "; };
  const std::string norm = "all_reduce data 4; ";
  for (const bool private_replicas : {false, true}) {
    SCOPED_TRACE(private_replicas);
    const Case replicated = cases()[1], fsdp = cases()[2], tp = cases()[3];
    const std::string scatter = text("reduce_scatter data", whole / 4), gather = text("all_gather data", whole);
    EXPECT_EQ(update(replicated, private_replicas, over_data, false), scatter + norm + gather);
    EXPECT_EQ(update(replicated, private_replicas, over_data, true), norm + gather);
    EXPECT_EQ(update(replicated, private_replicas, {}, false), text("all_reduce data", whole));
    EXPECT_EQ(update(replicated, private_replicas, {}, true), "");
    // Arrays sharded over the batch's axis were reduce-scattered in the backward pass. The bias of 16 remains.
    EXPECT_EQ(update(fsdp, private_replicas, over_data, false),
              text("reduce_scatter data", 4 * 16 / 8) + norm + text("all_gather data", 4 * 16));
    // model=4 shards the parameters, and data=2 shards the state.
    EXPECT_EQ(
        update(tp, private_replicas, over_data, false),
        text("reduce_scatter data", whole / 4 / 2) + "all_reduce data,model 4; " + text("all_gather data", whole / 4));
    EXPECT_EQ(update(cases()[0], private_replicas, over_data, false), "");
  }
}

TEST(ShardedState, MovesNothingForWhatIsNotTrained) {
  const MeshRules mesh_rules = mesh_rules_of(cases()[1], false);
  Model model = nn::filter_shard(Model::init(), mesh_rules);
  Optimizer optimizer(model, sgd({.learning_rate = 0.1}), over_data);
  Model grads = nn::value_and_grad(loss_of)(model, data_for(mesh_rules, 7)).second;
  grads.toy.table.value = grads.toy.bias.value = grads.unused.value = Array();
  const Model before = model;
  CommLedger ledger;
  optimizer.update(model, grads);
  EXPECT_EQ(communication(ledger), "all_gather data " + std::to_string(4 * 8 * 16) + "; ");
  EXPECT_TRUE(model.toy.table.value.is_same(before.toy.table.value));
  EXPECT_TRUE(model.steps.is_same(before.steps));
}

TEST(ShardedState, OverTwoAxes) {
  for (const bool private_replicas : {false, true}) {
    const MeshRules mesh_rules{make_mesh({{"data", 2}, {"model", 2}}, {.private_replicas = private_replicas}),
                               {{"in", replicated}, {"out", replicated}, {"vocab", replicated}}};
    Toy with = nn::filter_shard(Toy::init(1), mesh_rules), without = with;
    const Array x = device_put(normal(Key(7), {8, 8}), NamedSharding(mesh_rules.mesh(), P{{"data", "model"}}));
    Optimizer cut(with, clipped_adamw(), {.shard_state_over = {"data", "model"}}), plain(without, clipped_adamw());
    for (int step = 0; step < 3; ++step) {
      const Toy grads = nn::value_and_grad(toy_loss, {.reduce = false})(with, x).second;
      CommLedger ledger;
      cut.update(with, grads);
      EXPECT_EQ(communication(ledger),
                "reduce_scatter data,model 336; all_reduce data,model 4; all_gather data,model 1344; ");
      plain.update(without, nn::value_and_grad(toy_loss)(without, x).second);
    }
    expect_tree_near(with, without, 2e-6);
  }
}

// ---- in place, and errors

TEST(ShardedState, ACopyOfTheModelStaysWhatItWas) {
  on_all_meshes([](const Case&, const MeshRules& mesh_rules) {
    Model model = nn::filter_shard(Model::init(), mesh_rules);
    Optimizer optimizer(model, clipped_adamw(), over_data);
    const auto step = [&](uint32_t seed) {
      optimizer.update(model, nn::value_and_grad(loss_of, {.reduce = false})(model, data_for(mesh_rules, seed)).second);
    };
    step(1);
    const auto best = model;
    const auto saved = optimizer;
    const std::vector<float> kernel = host(best.toy.kernel), odd = host(best.odd);
    const std::vector<float> mu = host(std::get<1>(saved.state()).mu.toy.kernel);
    step(2), step(3);
    EXPECT_EQ(host(best.toy.kernel), kernel);
    EXPECT_EQ(host(best.odd), odd);
    EXPECT_EQ(host(std::get<1>(saved.state()).mu.toy.kernel), mu);
    EXPECT_NE(host(model.toy.kernel), kernel);
    EXPECT_NE(host(model.odd), odd);
  });
}

TEST(ShardedState, EveryReplicaIsUpdated) {
  const MeshRules mesh_rules = mesh_rules_of(cases()[1], true);
  Model model = nn::filter_shard(Model::init(), mesh_rules);
  Optimizer optimizer(model, clipped_adamw(), over_data);
  optimizer.update(model, nn::value_and_grad(loss_of, {.reduce = false})(model, data_for(mesh_rules, 1)).second);
  for (const nn::Leaf& leaf : nn::leaves(model)) {
    if (leaf.value->is_absent()) continue;
    const auto& local = leaf.value->impl()->local;
    ASSERT_EQ(local.size(), 4) << leaf.path;
    for (const at::Tensor& t : local) EXPECT_TRUE(at::equal(t, local[0])) << leaf.path;
  }
}

TEST(ShardedState, WrongAxesAreErrors) {
  const MeshRules mesh_rules = mesh_rules_of(cases()[1], false);
  const Toy model = nn::filter_shard(Toy::init(1), mesh_rules);
  const auto made_with = [&](const std::vector<std::string>& axes) {
    return [&, axes] { Optimizer(model, clipped_adamw(), {.shard_state_over = axes}); };
  };
  EXPECT_EQ(error_of(ErrorKind::unknown_axis, made_with({"dta"})),
            "[Optimizer] shard_state_over: \"dta\" given, expected an axis of the mesh (data=4).");
  error_of(ErrorKind::unknown_axis, made_with({"data", "model"}));
  EXPECT_EQ(error_of(ErrorKind::invalid_argument, made_with({"data", "data"})),
            "[Optimizer] shard_state_over: \"data\" given twice, expected each axis once.");
}

TEST(ShardedState, WrongGradientsChangeNothing) {
  const MeshRules mesh_rules = mesh_rules_of(cases()[1], false);
  std::vector<Array> model{device_put(ones({4}), NamedSharding(mesh_rules.mesh(), {}))};
  Optimizer optimizer(model, clipped_adamw(), over_data);
  error_of(ErrorKind::shape_mismatch, [&] { optimizer.update(model, {ones({5})}); });
  error_of(ErrorKind::invalid_argument, [&] { optimizer.update(model, {ones({4}), ones({4})}); });
  EXPECT_EQ(host(model[0]), std::vector<float>(4, 1.0f));
  EXPECT_EQ(optimizer.count(), 0);
}

TEST(ShardedState, ARefusedGatherChangesNothing) {
  const MeshRules mesh_rules = mesh_rules_of(cases()[1], false);
  Model model = nn::filter_shard(Model::init(), mesh_rules);
  Optimizer optimizer(model, adamw({.learning_rate = 0.1}), over_data);
  const auto gradients = [&] {
    return nn::value_and_grad(loss_of, {.shard_gradients_over = {"data"}})(model, data_for(mesh_rules, 10)).second;
  };
  optimizer.update(model, gradients());
  Model same_model = model;
  Optimizer same = optimizer;
  const Model cut = gradients();
  {
    const auto guard = forbid_implicit_communication({.backward = true});
    error_of(ErrorKind::forbidden, [&] { optimizer.update(model, cut); });
  }
  EXPECT_EQ(nn::tree_difference(model, same_model), "");
  EXPECT_EQ(nn::tree_difference(optimizer, same), "");
  optimizer.update(model, cut);
  same.update(same_model, cut);
  EXPECT_EQ(nn::tree_difference(model, same_model), "");
  EXPECT_EQ(nn::tree_difference(optimizer, same), "");
}

// Lets each allocation of an update fail: model, state and count are then all old or all new.
TEST(ShardedState, MissingMemoryLeavesModelAndStateInOneStep) {
  const MeshRules mesh_rules = mesh_rules_of(cases()[1], false);
  if (mesh_rules.mesh().device() != "cpu") GTEST_SKIP() << "the memory is the CPU's";
  Model model = nn::filter_shard(Model::init(), mesh_rules);
  Optimizer optimizer(model, adamw({.learning_rate = 0.1}), over_data);
  const auto gradients = [&] { return nn::value_and_grad(loss_of)(model, data_for(mesh_rules, 10)).second; };
  optimizer.update(model, gradients());
  const Model grads = gradients();
  Model next_model = model;
  Optimizer next = optimizer;
  tessera::testing::Memory memory;
  memory.watch(false, -1);
  next.update(next_model, grads);
  const int64_t all = memory.allocated();
  int64_t updated = 0;
  for (int64_t refused = 1; refused <= all; ++refused) {
    Model a_model = model;
    Optimizer a = optimizer;
    memory.watch(false, refused);
    EXPECT_THROW(a.update(a_model, grads), std::exception) << refused << " of " << all;
    memory.watch(false, -1);
    updated += a.count() == 2;
    expect_tree_near(a_model, a.count() == 2 ? next_model : model, 0);
    expect_tree_near(a.state(), a.count() == 2 ? next.state() : optimizer.state(), 0);
    if (a.count() == 1) a.update(a_model, grads);
    a.update(a_model, grads);  // training continues
    EXPECT_EQ(a.count(), 3);
    EXPECT_EQ(std::get<0>(a.state()).count, 3);
  }
  EXPECT_GT(updated, 0);
}

}  // namespace
}  // namespace tessera::optim::state_placement_test
