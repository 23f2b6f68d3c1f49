// Exceptions of user functions pass through unchanged, and leave model and optimizer unchanged.
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "nn/layers/batch_norm.h"
#include "nn/layers/linear.h"
#include "nn/placement/filter_shard.h"
#include "nn/transformations/accumulate_gradients.h"
#include "nn/transformations/eval_shape.h"
#include "nn/transformations/remat.h"
#include "nn/tree/tree_equal.h"
#include "sharding/operations/shape/make_array.h"
#include "sharding/shard_map/shard_map.h"
#include "tests/optim/support.h"

namespace tessera::optim::own_functions_test {
namespace {

struct DiskFull : std::runtime_error {
  DiskFull() : std::runtime_error("the disk is full") {}
};

struct Net {
  nn::BatchNorm norm;
  nn::Linear linear;
  Array operator()(const Array& x) { return linear(norm(x)); }
};

NamedSharding over_data() { return {make_mesh({{"data", 4}}), P{"data"}}; }
Array input() { return device_put(normal(Key(1), {8, 4}), over_data()); }

Net make_net() {
  return nn::filter_shard(Net{nn::BatchNorm::init({"in", 4}), nn::Linear::init(Key(0), {"in", 4}, {"out", 4})},
                          NamedSharding(over_data().mesh(), P{}));
}

// Throws in call number `at`, counted from one.
class Throws {
 public:
  explicit Throws(int at) : left_(at) {}
  void operator()() {
    if (--left_ == 0) throw DiskFull();
  }

 private:
  int left_;
};

int runs = 0;  // global: a function under remat must not capture

Array loss_with_remat(const Net& net, const Array& x) {
  const auto in_two_runs = [](const nn::Linear& linear, const Array& x) {
    if (++runs == 2) throw DiskFull();
    return linear(x);
  };
  return mean(square(nn::remat(in_two_runs)(net.linear, x)));
}

using Call = std::function<void(Net&)>;

const std::vector<std::pair<std::string, Call>>& calls() {
  static const std::vector<std::pair<std::string, Call>> all = {
      {"value_and_grad",
       [](Net& net) {
         nn::value_and_grad([](Net& n, const Array& x) { return n(x), throw DiskFull(), mean(x); })(net, input());
       }},
      {"accumulate_gradients, second part",
       [](Net& net) {
         Throws second(2);
         const auto loss = [&](Net& n, const Array& x) {
           const Array y = mean(n(x));
           second();
           return y;
         };
         nn::accumulate_gradients(loss, 2)(net, input());
       }},
      {"remat, second run", [](Net& net) { runs = 0, nn::value_and_grad(loss_with_remat)(net, input()); }},
      {"shard_map",
       [](Net&) {
         shard_map([](const Array& block) { return throw DiskFull(), block; }, over_data().mesh(), P{"data"},
                   P{"data"})(input());
       }},
      {"eval_shape", [](Net& net) { nn::eval_shape([](const Net&) { return throw DiskFull(), Array(); }, net); }},
      {"tree_map", [](Net& net) { nn::tree_map([](const Array& a) { return throw DiskFull(), a; }, net); }},
      {"filter",
       [](Net& net) { nn::filter(net, [](const std::string&, const Array&) { return throw DiskFull(), true; }); }},
      {"filter_shard",
       [](Net& net) {
         const auto choose = [](const std::string&, const Array& a) { return throw DiskFull(), a.sharding(); };
         net = nn::filter_shard(net, choose);
       }},
      {"make_array_from_callback",
       [](Net&) { make_array_from_callback({8}, over_data(), [](const auto&) { return throw DiskFull(), Array(); }); }},
  };
  return all;
}

TEST(OwnFunctions, ThrowThroughAndLeaveTheModel) {
  for (const auto& [name, call] : calls()) {
    SCOPED_TRACE(name);
    Net net = make_net();
    const Net before = net;
    EXPECT_THROW(call(net), DiskFull);
    EXPECT_TRUE(nn::tree_equal(net, before));
    EXPECT_NO_THROW(nn::value_and_grad([](Net& n, const Array& x) { return mean(n(x)); })(net, input()));
  }
}

// ---- within an update

using Model = std::vector<Array>;

double full_at_one(int64_t count) { return count == 1 ? throw DiskFull() : 0.1; }
const auto rate = [](int64_t count) { return full_at_one(count); };

// The first update succeeds; the second one throws and changes nothing.
template <class Transform>
void expect_nothing_updated(const char* name, const Transform& transform, int updates = 1) {
  SCOPED_TRACE(name);
  Model model{ones({3}), ones({2, 2})};
  const Model grads = model;
  Optimizer optimizer(model, transform);
  for (int i = 0; i < updates; ++i) optimizer.update(model, grads);
  const Model before = model;
  const auto state = optimizer.state();
  EXPECT_THROW(optimizer.update(model, grads), DiskFull);
  EXPECT_EQ(optimizer.count(), updates);
  EXPECT_TRUE(nn::tree_equal(model, before));
  EXPECT_TRUE(nn::tree_equal(optimizer.state(), state));
}

TEST(OwnFunctions, ThatThrowWithinAnUpdateUpdateNothing) {
  expect_nothing_updated("a rate", adam({.learning_rate = rate}));
  expect_nothing_updated("a decay", adamw({.learning_rate = 0.1, .weight_decay = rate}));
  expect_nothing_updated("a rate by the pure algebra", lion({.learning_rate = rate}));
  expect_nothing_updated("a rate of the last part", partition(by_dims, "vector", adam({.learning_rate = 0.1}), "matrix",
                                                              lion({.learning_rate = rate})));
  expect_nothing_updated("a rate at the boundary", accumulate(adam({.learning_rate = rate}), 2), 3);
  expect_nothing_updated(
      "a mask",
      adamw({.learning_rate = 0.1, .mask = [](const std::string&, const Array&) { return throw DiskFull(), true; }}),
      0);
}

}  // namespace
}  // namespace tessera::optim::own_functions_test
