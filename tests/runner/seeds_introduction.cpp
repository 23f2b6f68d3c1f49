// The examples of the introduction to sharded computation: placement, constraints, shard_map, a layer in three ways.
#include <boost/json.hpp>

#include "sharding/operations.h"
#include "sharding/operations/shape/creation.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/shard_map/shard_map.h"
#include "tests/runner/seeds_examples.h"

namespace tessera::runner {
namespace {

namespace json = boost::json;

Mesh xy_mesh() { return make_mesh({{"x", 2}, {"y", 4}}); }
Mesh x_mesh() { return make_mesh({{"x", 8}}); }

Array first_numbers() { return reshape(arange(32.0), {4, 8}); }
Array sharded_numbers() { return device_put(first_numbers(), NamedSharding(xy_mesh(), P{"x", "y"})); }
Array integers() { return arange(32); }

void single_device(Example& e) {
  const Array arr = device_put(first_numbers(), 0);
  e.array("arr", arr);
  e.visualize("arr", arr);
}

void device_put_xy(Example& e) {
  const Array arr_sharded = sharded_numbers();
  e.array("arr_sharded", arr_sharded);
  e.visualize("arr_sharded", arr_sharded);
}

void f_elementwise(Example& e) {
  const Array arr_sharded = sharded_numbers();
  CommLedger ledger;
  const Array result = 2 * sin(arr_sharded) + 1;
  e.collectives("f_elementwise", ledger);
  e.value("shardings match", result.sharding() == arr_sharded.sharding());
  e.array("result", result);
  e.value("result", result);
}

void f_contract(Example& e) {
  const Array arr_sharded = sharded_numbers();
  CommLedger ledger;
  const Array result = finished(sum(arr_sharded, {0}));
  e.collectives("f_contract", ledger);
  e.array("result", result);
  e.visualize("result", result);
  e.documented("result", values_of(result));
}

void f_contract_2(Example& e) {
  const Array arr_sharded = sharded_numbers();
  CommLedger ledger;
  const Array result = with_sharding_constraint(sum(arr_sharded, {0}), NamedSharding(x_mesh(), P{"x"}));
  e.collectives("f_contract_2", ledger);
  e.array("result", result);
  e.visualize("result", result);
}

void shard_map_elementwise(Example& e) {
  const auto f = shard_map([](const Array& x) { return 2 * sin(x) + 1; }, x_mesh(), P{"x"}, P{"x"});
  const Array y = f(integers());
  e.array("result", y);
  e.value("result", y);
  json::array first = values_of(y).as_array();
  first.resize(8);
  e.documented("result", first);
}

void shard_map_local(Example& e) {
  const Array x = integers();
  Shape seen;
  const auto twice = [&](const Array& block) {
    seen = block.shape();
    return block * 2;
  };
  e.array("times two", shard_map(twice, x_mesh(), P{"x"}, P{"x"})(x));
  e.value("global shape", json_of(x.shape()));
  e.value("device local shape", json_of(seen));

  const auto sum_of_block = [](const Array& block) { return sum(block, {}, true); };
  const Array sums = shard_map(sum_of_block, x_mesh(), P{"x"}, P{"x"})(x);
  e.array("sum per shard", sums);
  e.documented("sum per shard", values_of(sums));

  const auto sum_of_all = [](const Array& block) { return psum(sum(block), "x"); };
  const Array total = shard_map(sum_of_all, x_mesh(), P{"x"}, P{})(x);
  e.array("psum", total);
  e.documented("psum", values_of(total));
}

Array layer(const Array& x, const Array& weights, const Array& bias) { return sigmoid(matmul(x, weights) + bias); }

void layer_three_ways(Example& e) {
  const Array x = e.tensor("x"), weights = e.tensor("weights"), bias = e.tensor("bias");
  const Mesh mesh = x_mesh();
  const NamedSharding sharding(mesh, P{"x"});
  const auto show = [&](const std::string& name, const std::function<Array()>& compute) {
    CommLedger ledger;
    const Array y = compute();
    e.collectives(name, ledger);
    e.array(name, y);
    e.value(name, y);
    return y;
  };
  const Array alone = layer(x, weights, bias);
  e.value("layer", alone);
  e.documented("layer", values_of(alone));

  const Array x_sharded = device_put(x, sharding), weights_sharded = device_put(weights, sharding);
  e.array("x_sharded", x_sharded);
  e.array("weights_sharded", weights_sharded);
  show("layer of sharded inputs", [&] { return layer(x_sharded, weights_sharded, bias); });

  show("layer_auto",
       [&] { return layer(with_sharding_constraint(x, sharding), with_sharding_constraint(weights, sharding), bias); });

  const auto layer_sharded = shard_map([](const Array& x, const Array& weights,
                                          const Array& bias) { return sigmoid(psum(matmul(x, weights), "x") + bias); },
                                       mesh, {P{"x"}, P{"x", none}, P{none}}, P{none});
  e.documented("layer_sharded", values_of(show("layer_sharded", [&] { return layer_sharded(x, weights, bias); })));
}

}  // namespace

Programs introduction_programs() {
  return {{"intro.single_device", single_device},     {"intro.device_put_xy", device_put_xy},
          {"intro.f_elementwise", f_elementwise},     {"intro.f_contract", f_contract},
          {"intro.f_contract_2", f_contract_2},       {"intro.shard_map_elementwise", shard_map_elementwise},
          {"intro.shard_map_local", shard_map_local}, {"intro.layer", layer_three_ways}};
}

}  // namespace tessera::runner
