// The mistakes of docs/errors.md: one of each kind, made on purpose, and what is said of it.
#include <cstdlib>
#include <functional>
#include <iostream>

#include "nn/checkpoint.h"
#include "nn/filter.h"
#include "nn/filter_shard.h"
#include "nn/layers/dropout.h"
#include "nn/layers/linear.h"
#include "nn/value_and_grad.h"
#include "sharding/collectives.h"
#include "sharding/device_put.h"
#include "sharding/error.h"
#include "sharding/guard.h"
#include "sharding/operations.h"
#include "sharding/random.h"
#include "sharding/shard_map.h"

using namespace tessera;

Array sum_of(const nn::Linear& model, const Array& x) { return sum(model(x)); }

const nn::Linear linear = nn::Linear::init(Key(0), {"embed", 6}, {"hidden", 4});

void uneven(const Mesh& mesh) { nn::filter_shard(linear, Layout{mesh, {{"embed", "data"}, {"hidden", replicated}}}); }

void unknown_logical_axis(const Mesh& mesh) { nn::filter_shard(linear, Layout{mesh, {{"embed", replicated}}}); }

void unknown_mesh_axis(const Mesh& mesh) { NamedSharding(mesh, P{"modle"}); }

void duplicate_axis(const Mesh& mesh) { NamedSharding(mesh, P{"data", "data"}); }

void rank_mismatch(const Mesh& mesh) { device_put(ones({8}), NamedSharding(mesh, P{"data", "model"})); }

void unconstrained_dim(const Mesh& mesh) { device_put(ones({8, 8}), NamedSharding(mesh, P{"data", unconstrained})); }

void shape_mismatch(const Mesh&) { matmul(ones({8, 6}), ones({4, 8})); }

void dtype_mismatch(const Mesh&) { cross_entropy(ones({8, 4}), ones({8})); }

void device_mismatch(const Mesh& mesh) {
  const Mesh other = make_mesh({{"data", 4}});
  device_put(ones({8}), NamedSharding(mesh, P{"data"})) + device_put(ones({8}), NamedSharding(other, P{"data"}));
}

void absent(const Mesh&) {
  const auto [kernel, rest] = nn::partition(linear, nn::by_path("kernel"));
  kernel(ones({2, 6}));
}

void no_gradient(const Mesh&) {
  nn::value_and_grad([](const nn::Linear&, const Array& x) { return sum(x); })(linear, ones({2, 6}));
}

void bad_file(const Mesh&) {
  nn::Linear model = linear;
  nn::restore("runs/none", nn::named_state("model", model));
}

void bad_argument(const Mesh&) { nn::Dropout{.rate = 1.5}(ones({2}), Key(0)); }

void vma(const Mesh& mesh) {
  shard_map([](const Array& block) { return sum(block); }, mesh, P{"data"}, P{})(ones({8}));
}

void size_mismatch(const Mesh& mesh) {
  shard_map([](const Array& block) { return all_to_all(block, "data", 0, 1); }, mesh, P{"data"},
            P{none, "data"})(ones({24, 8}));
}

void duplicate_pair(const Mesh& mesh) {
  shard_map(
      [](const Array& block) {
        return ppermute(block, "data", {{0, 1}, {2, 1}});
      },
      mesh, P{"data"}, P{"data"})(ones({8}));
}

void forbidden(const Mesh& mesh) {
  const auto guard = forbid_implicit_communication();
  const Array x = device_put(ones({8, 8}), NamedSharding(mesh, P{"data", "model"}));
  matmul(x, device_put(ones({8, 4}), NamedSharding(mesh, P{none, "model"})));
}

void show(const char* kind, const std::function<void(const Mesh&)>& mistake, const Mesh& mesh) {
  try {
    mistake(mesh);
    std::cout << kind << ": no error\n";
    std::exit(1);
  } catch (const Error& error) {
    std::cout << kind << ": " << error.what() << '\n';
  }
}

int main() {
  const Mesh mesh = make_mesh({{"data", 4}, {"model", 2}});
  show("uneven", uneven, mesh);
  show("unknown_axis", unknown_logical_axis, mesh);
  show("unknown_axis", unknown_mesh_axis, mesh);
  show("duplicate_axis", duplicate_axis, mesh);
  show("rank_mismatch", rank_mismatch, mesh);
  show("unconstrained", unconstrained_dim, mesh);
  show("shape_mismatch", shape_mismatch, mesh);
  show("dtype_mismatch", dtype_mismatch, mesh);
  show("device_mismatch", device_mismatch, mesh);
  show("absent", absent, mesh);
  show("no_gradient", no_gradient, mesh);
  show("bad_file", bad_file, mesh);
  show("bad_argument", bad_argument, mesh);
  show("vma", vma, mesh);
  show("size_mismatch", size_mismatch, mesh);
  show("duplicate_pair", duplicate_pair, mesh);
  show("forbidden", forbidden, mesh);
}
