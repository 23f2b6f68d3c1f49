// Transforms made of others: their parts are updated in place, and their numbers can be read from the optimizer.
#include <cmath>

#include "optim/wrappers/masking.h"
#include "sharding/array/array_impl.h"
#include "tests/optim/support.h"
#include "tests/sharding/meshes.h"

namespace tessera::optim::parts_test {
namespace {

auto two_groups() {
  return chain(clip_by_global_norm(1.0),
               partition(by_dims, "matrix", adamw({.learning_rate = 0.1, .weight_decay = 0.1, .mask = matrices_only}),
                         "vector", chain(clip_by_global_norm(0.5), sgd({.learning_rate = 0.2, .momentum = 0.9}))));
}
auto injected() {
  return inject_hyperparams([](const Hyperparams& h) { return adam({.learning_rate = h["rate"]}); },
                            {{"rate", [](int64_t count) { return 0.1 / static_cast<double>(1 + count); }}});
}

// Returns the address of an array's memory; null for a lazy initializer that has not been computed.
const void* memory_of(const Array& x) { return x.is_lazy() ? nullptr : x.impl()->local[0].data_ptr(); }

TEST(Parts, InPlaceEqualPure) {
  on_all_meshes([](const Case&, const MeshRules& mesh_rules) {
    const Toy model = nn::filter_shard(Toy::init(1), mesh_rules);
    expect_equal_to_pure(two_groups(), model);
    expect_equal_to_pure(selective_transform(adam({.learning_rate = 0.1}), matrices_only), model);
    expect_equal_to_pure(partition(by_dims, "matrix", lion({.learning_rate = 0.1}), "vector", two_groups()), model);
    expect_equal_to_pure(named_chain("clip", clip_by_global_norm(1), "adamw", adamw({.learning_rate = 0.1})), model);
    expect_equal_to_pure(injected(), model);
    expect_equal_to_pure(adamw({.learning_rate = 0.1, .weight_decay = 0.5, .cautious_weight_decay = true}), model);
    expect_equal_to_pure(chain(cautious(scale_by_adam()), scale_by_learning_rate(0.1)), model);
    expect_equal_to_pure(apply_if_finite(adam({.learning_rate = 0.1}), 2), model);
  });
}

// Updates write to the parameters' memory instead of replacing it.
TEST(Parts, KeepTheirMemory) {
  const auto expect_in_place = [](const auto& tx) {
    Toy model = Toy::init(1);
    Optimizer optimizer(model, tx);
    optimizer.update(model, gradients_for(model, 2));
    std::vector<const void*> before;
    for (const nn::Leaf& p : nn::leaves(model)) before.push_back(memory_of(*p.value));
    optimizer.update(model, gradients_for(model, 3));
    const nn::Leaves after = nn::leaves(model);
    for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(memory_of(*after[i].value), before[i]) << after[i].path;
  };
  expect_in_place(two_groups());
  expect_in_place(injected());
  expect_in_place(named_chain("adam", adam({.learning_rate = 0.1})));
  expect_in_place(apply_if_finite(sgd({.learning_rate = 0.1}), 2));
  expect_in_place(accumulate(two_groups(), 1));
  expect_in_place(selective_transform(sgd({.learning_rate = 0.1}), matrices_only));
  expect_in_place(chain(clip_by_global_norm(1), masked(set_to_zero(), matrices_only), adam({.learning_rate = 0.1})));
}

TEST(Parts, AskMasksAndLabelsAtTheFirstUpdate) {
  int masks = 0, labels = 0;
  const auto decays = [&](const std::string&, const Array&) { return ++masks > 0; };
  const auto label = [&](const std::string& path, const Array& p) { return ++labels, by_dims(path, p); };
  Toy model = Toy::init(1);
  Optimizer optimizer(model, partition(label, "matrix", adamw({.learning_rate = 0.1, .mask = decays}), "vector",
                                       masked(chain(injected(), scale(1)), decays)));
  masks = labels = 0;
  const Toy grads = gradients_for(model, 2);
  for (int i = 0; i < 3; ++i) optimizer.update(model, grads);
  EXPECT_EQ(labels, 3);
  EXPECT_EQ(masks, 3);
}

TEST(Parts, ReportTheirRatesAndNorms) {
  Toy model = Toy::init(1);
  Optimizer optimizer(model, partition(by_dims, "matrix", adamw({.learning_rate = 0.1}), "vector",
                                       chain(clip_by_global_norm(0.5), injected())));
  const Toy grads = gradients_for(model, 2);
  EXPECT_EQ(optimizer.learning_rate("vector"), 0);
  for (int i = 0; i < 2; ++i) optimizer.update(model, grads);
  EXPECT_EQ(optimizer.learning_rate("matrix"), 0.1);
  EXPECT_EQ(optimizer.learning_rate("vector"), 0.05);
  EXPECT_NEAR(*optimizer.grad_norm(), global_norm(grads.bias).item<float>(), 1e-5);
  Toy wrong = grads;
  wrong.bias.value = full_like(wrong.bias.value, NAN);
  optimizer.update(model, wrong);
  EXPECT_TRUE(std::isnan(*optimizer.grad_norm()));
  EXPECT_EQ(error_of(ErrorKind::invalid_argument, [&] { optimizer.learning_rate(); }),
            "[learning_rate] \"\" given, expected the label of a part that has one (\"matrix\", \"vector\").");
  EXPECT_EQ(error_of(ErrorKind::invalid_argument, [&] { optimizer.grad_norm("matrix"); }),
            "[grad_norm] \"matrix\" given, expected the label of a part that has one (\"vector\").");
  Optimizer accumulated(model, accumulate(adam({.learning_rate = 0.3}), 2));
  for (int i = 0; i < 2; ++i) accumulated.update(model, grads);
  EXPECT_EQ(accumulated.learning_rate(), 0.3);
}

// The gradient is sharded over a mesh, and its parameter was never placed.
TEST(Parts, GradientsOfWhatWasNeverPlacedAreGathered) {
  for (const Mesh mesh : tessera::testing::shared_and_private({{"data", 4}})) {
    const Array g = device_put(array<float>({1, -2, -3, 4}), NamedSharding(mesh, P{"data"}));
    const auto expect_updated = [&](const auto& tx) {
      std::vector<Array> model{zeros({4})};
      Optimizer optimizer(model, tx);
      optimizer.update(model, {g});
      expect_near(model[0], {-0.1f, 0.1f, 0.1f, -0.1f}, 1e-6);
      EXPECT_FALSE(model[0].is_committed());
    };
    expect_updated(adam({.learning_rate = 0.1}));
    expect_updated(sign_sgd({.learning_rate = 0.1}));
  }
}

}  // namespace
}  // namespace tessera::optim::parts_test
