// Sharded arrays in one program: where an array is stored, three ways to compute with it, and one layer in each way.
//
// A C++ version of JAX's introduction to sharded computation; its numbers are printed below its text. In JAX, the
// compiler inserts communication. Here each operation communicates when it is called.
#include <iostream>

#include <tessera/sharding/accounting.h>
#include <tessera/sharding/array.h>
#include <tessera/sharding/operations.h>
#include <tessera/sharding/placement.h>
#include <tessera/sharding/shard_map.h>

#include "examples/layer_numbers.h"

using namespace tessera;

void say(const char* what, const Array& x) { std::cout << what << ": " << x << '\n'; }

// ---- Where an array is stored

Array numbers() { return reshape(arange(32.0), {4, 8}); }

// The devices of JAX's document form a torus, so their numbers are not in order.
Array sharded_numbers() {
  const Mesh mesh = make_mesh({{"x", 2}, {"y", 4}}, {.devices = {0, 1, 2, 3, 6, 7, 4, 5}});
  return device_put(numbers(), NamedSharding(mesh, P{"x", "y"}));
}

void data_sharding() {
  const Array arr = device_put(numbers(), SingleDeviceSharding{0});
  std::cout << arr.sharding().to_string() << '\n' << visualize_sharding(arr);
  const Array arr_sharded = sharded_numbers();
  std::cout << arr_sharded.sharding().to_string() << '\n' << visualize_sharding(arr_sharded);
  say("arr_sharded", arr_sharded);
}

// ---- 1. Computation follows data

void automatic() {
  const Array arr_sharded = sharded_numbers();
  const Array result = 2 * sin(arr_sharded) + 1;
  std::cout << "shardings match: " << (result.sharding() == arr_sharded.sharding() ? "true" : "false") << '\n';
  say("2 sin(x) + 1", result);

  const Array sums = reshard(sum(arr_sharded, {0}), P{"y"});  // until then each row of devices has its part of the sum
  std::cout << visualize_sharding(sums);
  say("sum over dim 0", sums);
}

// ---- 2. Constraints: set the sharding of a result, here on another mesh over the same devices

void with_constraints() {
  const Mesh mesh = make_mesh({{"x", 8}}, {.devices = {0, 1, 2, 3, 6, 7, 4, 5}});
  const Array sums = with_sharding_constraint(sum(sharded_numbers(), {0}), NamedSharding(mesh, P{"x"}));
  std::cout << visualize_sharding(sums);
  say("fully sharded", sums);
}

// ---- 3. shard_map: a function of one device's shard

void manual() {
  const Mesh mesh = make_mesh({{"x", 8}});
  const Array x = arange(32);
  say("by shard_map", shard_map([](const Array& block) { return 2 * sin(block) + 1; }, mesh, P{"x"}, P{"x"})(x));

  std::cout << "global shape: " << to_string(x.shape()) << '\n';
  const auto f = [](const Array& block) {
    std::cout << "device local shape: " << to_string(block.shape()) << '\n';
    return block * 2;
  };
  say("times two", shard_map(f, mesh, P{"x"}, P{"x"})(x));

  const auto sum_in_shard = [](const Array& block) { return sum(block, {}, true); };
  say("a sum of each shard", shard_map(sum_in_shard, mesh, P{"x"}, P{"x"})(x));

  const auto sum_of_all = [](const Array& block) { return psum(sum(block), "x"); };
  say("their sum", shard_map(sum_of_all, mesh, P{"x"}, P{})(x));
}

// ---- One layer in three ways

Array layer(const Array& x, const Array& weights, const Array& bias) { return sigmoid(matmul(x, weights) + bias); }

void three_ways() {
  const Array x = array<float>(examples::layer_x, {32}), weights = array<float>(examples::layer_weights, {32, 4}),
              bias = array<float>(examples::layer_bias, {4});
  say("layer", layer(x, weights, bias));

  const Mesh mesh = make_mesh({{"x", 8}});
  const NamedSharding sharding(mesh, P{"x"});
  say("layer of sharded inputs", layer(device_put(x, sharding), device_put(weights, sharding), bias));

  const auto layer_auto = [&](const Array& x, const Array& weights, const Array& bias) {
    return layer(with_sharding_constraint(x, sharding), with_sharding_constraint(weights, sharding), bias);
  };
  say("layer_auto", layer_auto(x, weights, bias));

  const auto layer_sharded = shard_map([](const Array& x, const Array& weights,
                                          const Array& bias) { return sigmoid(psum(matmul(x, weights), "x") + bias); },
                                       mesh, {P{"x"}, P{"x", none}, P{none}}, P{none});
  CommLedger ledger;
  say("layer_sharded", layer_sharded(x, weights, bias));
  std::cout << ledger.to_text();
}

int main() {
  data_sharding();
  automatic();
  with_constraints();
  manual();
  three_ways();
}
