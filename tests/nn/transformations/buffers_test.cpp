// Modules that a call changes: under value_and_grad, micro-batches and remat, on every mesh, and after errors.
#include "nn/transformations/buffers.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "nn/layers/linear.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/pipeline.h"
#include "nn/transformations/remat.h"
#include "nn/tree/tree_equal.h"
#include "sharding/accounting/communication_guard.h"
#include "tests/nn/transformations/models.h"

namespace tessera::nn::buffers_test {
namespace {

using namespace testing;

// Subtracts the batch's mean, and updates a running mean.
struct Center {
  Param scale{ones({4}), {"embed"}};
  Buffer mean{zeros({4}), {"embed"}};
  Key key{5};
  int64_t calls = 0;

  Array operator()(const Array& x) {
    const Array now = tessera::mean(x, {0});
    mean.value = 0.5 * mean.value + 0.5 * now;
    key = split<2>(key)[0];
    ++calls;
    return (x - now) * scale;
  }
};

struct Model {
  std::vector<Center> centers{2};
  Linear head = Linear::init(Key(0), {"embed", 4}, {"hidden", 8});

  Array operator()(const Array& x) {
    Array y = x;
    for (Center& center : centers) y = center(y) + 1;
    return head(y);
  }
};

Array batch() { return normal(Key(1), {8, 4}); }
Array loss_of(Model& model, const Array& x) { return mean(square(model(x))); }
Array remat_loss(Model& model, const Array& x) {
  Array y = x;
  for (Center& center : model.centers) y = nn::remat(center)(y) + 1;
  return mean(square(model.head(y)));
}

TEST(Buffers, ACallByItselfChangesItsModel) {
  Model model;
  model(batch());
  EXPECT_EQ(model.centers[1].calls, 1);
  expect_near(model.centers[0].mean, 0.5 * mean(batch(), {0}), 1e-6, "mean");
}

TEST(Buffers, ValueAndGradWritesThemBackOnce) {
  Model expected;
  const Array value = loss_of(expected, batch());
  for (const auto& [name, mesh_rules] : strategies())
    for (const auto& loss : {loss_of, remat_loss}) {
      Model model = filter_shard(Model(), mesh_rules);
      const Model before = model;
      const auto [now, grads] = value_and_grad(loss)(model, device_put(batch(), {"batch", "embed"}, mesh_rules));
      expect_near(now, value, 1e-5, name);
      for (size_t i : {0, 1}) {
        const Buffer &given = before.centers[i].mean, &kept = model.centers[i].mean;
        expect_near(kept, expected.centers[i].mean, 1e-5, name);
        EXPECT_FALSE(is_recorded(kept.value)) << name;
        EXPECT_EQ(kept.value.sharding(), given.value.sharding()) << name;
        EXPECT_EQ(kept.value.path(), given.value.path()) << name;
        EXPECT_EQ(model.centers[i].calls, 1) << name;
        EXPECT_EQ(model.centers[i].key, expected.centers[i].key) << name;
        EXPECT_TRUE(grads.centers[i].mean.value.is_absent()) << name;
        EXPECT_FALSE(grads.centers[i].scale.value.is_absent()) << name;
      }
      EXPECT_TRUE(model.head.kernel.value.is_same(before.head.kernel.value)) << name;
      EXPECT_EQ(before.centers[0].calls, 0) << "a copy is its own";
    }
}

TEST(Buffers, RematGivesTheSameGradients) {
  for (const auto& [name, mesh_rules] : strategies()) {
    Model a = filter_shard(Model(), mesh_rules), b = filter_shard(Model(), mesh_rules);
    const Array x = device_put(batch(), {"batch", "embed"}, mesh_rules);
    const auto [loss, grads] = value_and_grad(loss_of)(a, x);
    const auto [same_loss, same] = value_and_grad(remat_loss)(b, x);
    expect_trees_near(same, grads, 1e-6, name);
    EXPECT_EQ(tree_difference(a, b, {.atol = 1e-6}), "") << name;
  }
}

TEST(Buffers, AConstModelIsLeftAlone) {
  const auto copied = [](Model model, const Array& x) { return mean(square(model(x))); };
  Model changing;
  const auto [value, expected] = value_and_grad(loss_of)(changing, batch());
  const Model model;
  const auto [loss, grads] = value_and_grad(copied)(model, batch());
  expect_trees_near(grads, expected, 0, "gradients");
  EXPECT_EQ(model.centers[0].calls, 0);
  Model mutable_model;
  value_and_grad(copied)(mutable_model, batch());
  EXPECT_EQ(tree_difference(mutable_model, model), "");
}

TEST(Buffers, GoFromPartToPart) {
  for (const auto& [name, mesh_rules] : strategies()) {
    Model expected = filter_shard(Model(), mesh_rules), model = expected;
    const Array x = device_put(normal(Key(1), {16, 4}), {"batch", "embed"}, mesh_rules);
    std::vector<Array> parts;
    const auto watch = [&](Model& m, const Array& part) {
      parts.push_back(part);
      return std::pair(loss_of(m, part), sum(part));
    };
    const auto [value, grads] = accumulate_gradients(watch, 2)(model, x);
    ASSERT_EQ(value.second.size(), 2u);
    for (size_t i : {0, 1}) {
      loss_of(expected, parts[i]);
      expect_near(value.second[i], sum(parts[i]), 1e-6, name);
    }
    EXPECT_EQ(tree_difference(model, expected, {.rtol = 1e-5, .atol = 1e-6}), "") << name;
    EXPECT_EQ(model.centers[0].calls, 2) << name;
  }
}

TEST(Buffers, AfterAnErrorTheModelIsWhatItWas) {
  const auto fails_late = [](Model& model, const Array& x) {
    const Array loss = loss_of(model, x);
    return stop_gradient(loss);
  };
  const auto fails_in_the_second_part = [calls = std::make_shared<int>(0)](Model& model, const Array& x) {
    const Array loss = loss_of(model, x);
    return ++*calls == 2 ? stop_gradient(loss) : loss;
  };
  Model model;
  const auto expect_unchanged = [&] {
    EXPECT_EQ(tree_difference(model, Model()), "");
    EXPECT_EQ(model.centers[0].calls, 0);
  };
  EXPECT_THROW(value_and_grad(fails_late)(model, batch()), Error);
  expect_unchanged();
  EXPECT_THROW(accumulate_gradients(fails_in_the_second_part, 2)(model, batch()), Error);
  expect_unchanged();
}

struct Counted {
  Param scale{ones({4}), {none}};
  Buffer seen{zeros({}), {}};
};

// The returned sum is reduced last.
TEST(Buffers, AfterARefusedSumTheModelIsWhatItWas) {
  const MeshRules mesh_rules(make_mesh({{"data", 4}}), {{"batch", "data"}});
  const Array x = device_put(ones({8, 4}), NamedSharding(mesh_rules.mesh(), P{"data"}));
  const auto loss_and_sum = [](Counted& m, const Array& x) {
    m.seen.value = m.seen.value + 1;
    return std::pair(tessera::mean(x * m.scale), tessera::sum(x, {0}));
  };
  Counted model = filter_shard(Counted(), mesh_rules);
  const auto bytes_of = [&](auto&& call) {
    const CommBudget budget(1 << 20);
    call(model, x);
    return budget.bytes();
  };
  const auto expect_none_lost = [&](auto&& call) {
    const int64_t all = bytes_of(call);
    const float before = model.seen.value.item<float>();
    const CommBudget budget(all - 1, {.throw_on_exceed = true});
    EXPECT_THROW(call(model, x), Error);
    EXPECT_EQ(model.seen.value.item<float>(), before);
  };
  expect_none_lost(value_and_grad(loss_and_sum));
  expect_none_lost(accumulate_gradients(loss_and_sum, 2));
  expect_none_lost(pipeline(loss_and_sum, PipelineOptions{.num_micro_batches = 2}));
}

TEST(Buffers, OutsideATapeRematLeavesThemToo) {
  Center a, b;
  a(batch());
  nn::remat(b)(batch());
  EXPECT_EQ(tree_difference(a, b), "");
  EXPECT_EQ(b.calls, 1);
  const auto apply = [](Center& center, const Array& x) { return center(x); };
  nn::remat(apply)(b, batch());
  EXPECT_EQ(b.calls, 2);
}

TEST(Buffers, ACastCopyGivesThemBack) {
  const auto mixed = [](Model& model, const Array& x) {
    Model half = cast(model, bfloat16, !is_buffer);
    const Array loss = mean(square(astype(half(x), float32)));
    copy_buffers(half, model);
    return loss;
  };
  Model expected, model;
  loss_of(expected, batch());
  value_and_grad(mixed)(model, batch());
  EXPECT_EQ(model.centers[1].mean.value.dtype(), float32);
  expect_near(model.centers[0].mean, expected.centers[0].mean, 1e-6, "mean");
  expect_near(model.centers[1].mean, expected.centers[1].mean, 2e-2, "mean");
}

// ---- errors

template <class Change>
void expect_refused(ErrorKind kind, const std::string& message, Change change) {
  Model model;
  const auto loss = [&](Model& m, const Array& x) {
    const Array value = loss_of(m, x);
    change(m);
    return value;
  };
  expect_error(kind, "[value_and_grad] " + message, [&] { value_and_grad(loss)(model, batch()); });
  EXPECT_EQ(tree_difference(model, Model()), "");
}

TEST(BuffersErrors, EachNamesThePath) {
  expect_refused(ErrorKind::invalid_argument,
                 "head.kernel: the call assigned to it, expected that only Buffers change: what is assigned to another "
                 "array is lost with the call. Make it an nn::Buffer, or work on a copy of the model.",
                 [](Model& m) { m.head.kernel.value = ones({4, 8}); });
  expect_refused(ErrorKind::shape_mismatch,
                 "centers.1.mean: the call left float32[1,4] in this Buffer, expected float32[4] as before. Make it as "
                 "large as it will be in init.",
                 [](Model& m) {
                   m.centers[1].mean.value = ones({1, 4});
                 });
  expect_refused(
      ErrorKind::dtype_mismatch,
      "centers.0.mean: the call left bfloat16[4] in this Buffer, expected float32[4] as before. Cast what is "
      "stored with astype, or leave Buffers out of a cast: nn::cast(model, dtype, !nn::is_buffer).",
      [](Model& m) { m.centers[0].mean.value = ones({4}, bfloat16); });
  expect_refused(ErrorKind::missing_array, "centers.0.mean: the call left no array in this Buffer, expected a value.",
                 [](Model& m) { m.centers[0].mean.value = Array(); });
  expect_refused(ErrorKind::invalid_argument,
                 "the call changed the structure of the model: the length of a vector, an optional, the alternative of "
                 "a variant or a key of a map. A call may change the values of Buffers and of static fields.",
                 [](Model& m) { m.centers.pop_back(); });
}

struct Choices {
  Param w{ones({2}), {none}};
  std::variant<std::string, double> choice = "a";
  std::optional<int> first = 1, second;
  std::map<std::string, int> counts{{"step", 1}};
  std::map<std::string, Buffer> means{{"mean", {ones({2}), {none}}}};
};

// The new value has as many fields as the old one, but different fields.
TEST(BufferErrors, OtherFieldsThanBefore) {
  const std::vector<std::function<void(Choices&)>> changes{[](Choices& c) { c.choice = 3.5; },
                                                           [](Choices& c) { c.first.reset(), c.second = 9; },
                                                           [](Choices& c) {
                                                             c.counts = {{"epoch", 9}};
                                                           },
                                                           [](Choices& c) {
                                                             c.means = {{"variance", {zeros({2}), {none}}}};
                                                           }};
  for (const auto& change : changes) {
    Choices model;
    testing::expect_error_with(ErrorKind::invalid_argument,
                               {"[value_and_grad] the call changed the structure of the model"}, [&] {
                                 value_and_grad([&](Choices& c) {
                                   change(c);
                                   return sum(c.w.value);
                                 })(model);
                               });
    EXPECT_TRUE(tree_equal(model, Choices()));
  }
}

}  // namespace
}  // namespace tessera::nn::buffers_test
