// Updates that must throw: without gradients, across meshes, after a move, and with invalid numbers.
#include <functional>

#include "optim/optimizer/contrib.h"
#include "optim/schedules/losses.h"
#include "tests/optim/support.h"

namespace tessera::optim::lost_gradients_test {
namespace {

using Model = std::vector<Array>;

TEST(LostGradients, AllAbsentAreRefused) {
  Model model{ones({3}), ones({2})};
  const auto expect_refused = [&](const auto& transform) {
    Optimizer optimizer(model, transform);
    EXPECT_EQ(error_of(ErrorKind::invalid_argument, [&] { optimizer.update(model, {Array(), Array()}); }),
              "[Optimizer.update] 0: every gradient is absent, expected those that nn::value_and_grad gives, and "
              "that no call before was given with std::move.");
    EXPECT_EQ(optimizer.count(), 0);
    optimizer.update(model, {Array(), ones({2})});
    EXPECT_EQ(optimizer.count(), 1);
  };
  expect_refused(sgd({.learning_rate = 0.1}));
  expect_refused(accumulate(adam({.learning_rate = 0.1}), 2));
  Model fixed{astype(ones({3}), int32)};
  Optimizer optimizer(fixed, sgd({.learning_rate = 0.1}));
  optimizer.update(fixed, {Array()});
  EXPECT_EQ(optimizer.count(), 1) << "nothing of the model could have a gradient";
}

TEST(LostGradients, OfAnotherMeshNameBoth) {
  const auto on = [](const Mesh& mesh) { return device_put(ones({15}), NamedSharding(mesh, P{"a"})); };
  const Mesh three = make_mesh({{"a", 3}}), five = make_mesh({{"a", 5}});
  Model model{on(five)};
  Optimizer optimizer(model, sgd({.learning_rate = 0.1}));
  EXPECT_EQ(error_of(ErrorKind::device_mismatch, [&] { optimizer.update(model, {on(three)}); }),
            "[Optimizer.update] 0: the gradient is on " + three.to_string() + ", the parameter on " + five.to_string() +
                ". Move the gradients with nn::filter_shard(grads, mesh_rules), or compute them from the model on that "
                "mesh.");
  expect_near(model[0], std::vector<float>(15, 1), 0);
}

TEST(LostGradients, AMovedOptimizerThrows) {
  Model model{ones({3})};
  Optimizer optimizer(model, sgd({.learning_rate = 0.1}));
  Optimizer heir = std::move(optimizer);
  EXPECT_EQ(error_of(ErrorKind::invalid_argument, [&] { optimizer.update(model, {ones({3})}); }),
            "[Optimizer.update] this optimizer was moved into another; use that one.");
  heir.update(model, {ones({3})});
  expect_near(model[0], {0.9f, 0.9f, 0.9f}, 1e-6);
}

TEST(LostGradients, ParametersThatCameLaterAreTrainedByTheirPart) {
  const auto all = [](const std::string&, const Array&) { return std::string("all"); };
  Model model{ones({3}), ones({2})};
  Optimizer optimizer(model, partition(all, "all", adamw({.learning_rate = 0.1, .weight_decay = 0.5})));
  Model first{model[0], Array()};
  optimizer.update(first, {ones({3}), Array()});
  model[0] = first[0];
  const Model before = model;
  optimizer.update(model, {ones({3}), ones({2})});
  for (size_t i = 0; i < 2; ++i) EXPECT_LT(max(model[i] - before[i]).item<float>(), -0.1) << "without its decay";
}

TEST(LostGradients, ParametersMayBeOnTwoMeshes) {
  const auto on = [](const Mesh& mesh) { return device_put(ones({15}), NamedSharding(mesh, P{"a"})); };
  const Mesh three = make_mesh({{"a", 3}}), five = make_mesh({{"a", 5}});
  Model model{on(three), on(five)};
  Optimizer optimizer(model, lion({.learning_rate = 0.1}));
  optimizer.update(model, {on(three), on(five)});
  for (const Array& p : model) EXPECT_LT(max(p).item<float>(), 0.95);
}

TEST(LostGradients, AnEmptyScheduleThrows) {
  Model model{ones({3})};
  Optimizer optimizer(model, adam({.learning_rate = std::function<double(int64_t)>()}));
  const std::string message = error_of(ErrorKind::invalid_argument, [&] { optimizer.update(model, {ones({3})}); });
  EXPECT_NE(message.find("an empty function given, expected a number or a schedule."), std::string::npos) << message;
  expect_near(model[0], {1, 1, 1}, 0);
}

TEST(LostGradients, NumbersThatMeanNothingAreRefused) {
  const auto refused = [](const std::function<void()>& f) { return error_of(ErrorKind::invalid_argument, f); };
  EXPECT_EQ(refused([] { reduce_on_plateau({.patience = -1}); }),
            "[reduce_on_plateau] patience: -1 given, expected at least 1.");
  EXPECT_EQ(refused([] { reduce_on_plateau({.cooldown = -1}); }),
            "[reduce_on_plateau] cooldown: -1 given, expected 0 or more.");
  EXPECT_EQ(refused([] { reduce_on_plateau({.min_scale = NAN}); }),
            "[reduce_on_plateau] min_scale: nan given, expected min_scale >= 0.");
  EXPECT_EQ(refused([] { huber_loss(ones({2}), ones({2}), -1); }), "[huber_loss] delta: -1 given, expected delta > 0.");
  Model model{ones({1})};
  Optimizer optimizer(model, chain(sgd({.learning_rate = 1}), reduce_on_plateau()));
  EXPECT_EQ(refused([&] { optimizer.update(model, {ones({1})}, {.value = NAN}); }),
            "[reduce_on_plateau] value: nan given, expected a number.");
  expect_near(model[0], {1}, 0);
}

}  // namespace
}  // namespace tessera::optim::lost_gradients_test
