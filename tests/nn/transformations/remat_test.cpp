// nn::remat of modules and models: recomputation does not change the gradients, on any mesh.
#include "nn/transformations/remat.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <vector>

#include "nn/layers/attention.h"
#include "nn/layers/embedding.h"
#include "nn/layers/norm.h"
#include "nn/transformations/cast.h"
#include "sharding/accounting/ledger.h"
#include "sharding/operations/define_operation.h"
#include "sharding/shard_map.h"
#include "sharding/shard_map/local_map.h"
#include "tests/nn/transformations/models.h"
#include "tests/sharding/meshes.h"

namespace tessera::nn::remat_test {
namespace {

using testing::difference;
using testing::strategies;

struct Block {
  LayerNorm norm1;
  MultiheadAttention attn;
  RMSNorm norm2;
  GatedMlp mlp;

  Array operator()(const Array& given) const {
    const Array x = given + attn(norm1(given));
    return x + mlp(norm2(x));
  }
};

struct Decoder {
  Embedding embed;
  std::vector<Block> blocks;
  LayerNorm norm;

  static Decoder init(const Key& key) {
    const auto [k1, k2] = split<2>(key);
    const Axis embed{"embed", 8};
    Decoder model{
        .embed = Embedding::init(k1, {"vocab", 12}, embed), .blocks = {}, .norm = LayerNorm::init({"norm", 8})};
    for (const Key& k : split(k2, 2)) {
      const auto [a, b] = split<2>(k);
      model.blocks.push_back({.norm1 = LayerNorm::init({"norm", 8}),
                              .attn = MultiheadAttention::init(a, embed, {"heads", 8}, 4),
                              .norm2 = RMSNorm::init({"norm", 8}),
                              .mlp = GatedMlp::init(b, embed, {"hidden", 16})});
    }
    return cast(model, float64);
  }

  Array operator()(const Array& ids) const {
    Array x = embed(ids);
    for (const Block& block : blocks) x = block(x);
    return embed.attend(norm(x));
  }
};

struct Batch {
  NamedArray inputs{"batch", none}, targets{"batch", none};
};

Batch make_batch() {
  std::vector<int32_t> in, out;
  for (int i = 0; i < 8 * 6; ++i) in.push_back(i * 5 % 12), out.push_back(i * 7 % 12);
  Batch batch;
  batch.inputs = array<int32_t>(in, {8, 6});
  batch.targets = array<int32_t>(out, {8, 6});
  return batch;
}

Array loss_of(const Decoder& model, const Batch& batch) { return cross_entropy(model(batch.inputs), batch.targets); }

// The collectives that reduce gradients: kind, axes and bytes.
std::string buckets(const CommLedger& ledger) {
  std::string text;
  for (const CommRecord& r : ledger.records())
    if (r.operation == "gradients") text += r.kind + " " + r.mesh_axes + " " + std::to_string(r.bytes) + "; ";
  return text;
}

// `loss` and `rematerialized` compute the same loss: values, gradients and gradient reductions must be equal.
template <class Model, class Loss, class Rematerialized, class Data>
void expect_equal(const Model& unplaced, const Data& data, Loss loss, Rematerialized rematerialized,
                  double tolerance = 1e-14) {
  for (const auto& [name, mesh_rules] : strategies())
    for (const bool borrow : {true, false}) {
      SCOPED_TRACE(name + (borrow ? "" : ", gathered weights kept"));
      const Model model = filter_shard(unplaced, mesh_rules);
      const Data batch = filter_shard(data, mesh_rules);
      const GradientOptions options{.reshard_after_forward = borrow};
      CommLedger ledger;
      const auto [value, gradient] = nn::value_and_grad(loss, options)(model, batch);
      const std::string expected = buckets(ledger);
      ledger.clear();
      const auto [same_value, same_gradient] = nn::value_and_grad(rematerialized, options)(model, batch);
      EXPECT_EQ(to_tensor(same_value).template item<double>(), to_tensor(value).template item<double>());
      EXPECT_LE(difference(same_gradient, gradient), tolerance);
      EXPECT_EQ(testing::types_of(same_gradient), testing::types_of(gradient));
      EXPECT_EQ(buckets(ledger), expected);
    }
}

TEST(Remat, OfBlocks) {
  expect_equal(Decoder::init(Key(0)), make_batch(), loss_of, [](const Decoder& m, const Batch& batch) {
    Array x = m.embed(batch.inputs);
    for (const Block& block : m.blocks) x = nn::remat(block)(x);
    return cross_entropy(m.embed.attend(m.norm(x)), batch.targets);
  });
}

TEST(Remat, OfTheWholeModel) {
  expect_equal(Decoder::init(Key(0)), make_batch(), loss_of, [](const Decoder& m, const Batch& batch) {
    return cross_entropy(nn::remat(m)(batch.inputs), batch.targets);
  });
}

TEST(Remat, OfTheLossItself) {
  expect_equal(Decoder::init(Key(0)), make_batch(), loss_of,
               [](const Decoder& m, const Batch& batch) { return nn::remat(loss_of)(m, batch); });
}

TEST(Remat, InRemat) {
  const auto layers = [](const Decoder& m, const Array& ids) {
    Array x = nn::remat(m.embed)(ids);  // its only inputs with gradients are parameters
    for (const Block& block : m.blocks) x = nn::remat(block)(x);
    return nn::remat([](const Embedding& e, const LayerNorm& norm, const Array& h) { return e.attend(norm(h)); })(
        m.embed, m.norm, x);
  };
  expect_equal(Decoder::init(Key(0)), make_batch(), loss_of, [=](const Decoder& m, const Batch& batch) {
    return cross_entropy(nn::remat(layers)(m, batch.inputs), batch.targets);
  });
}

// Differentiated outside shard_map, where no axis is manual.
TEST(Remat, InShardMap) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  const Array x = device_put(normal(Key(1), {4, 6}), NamedSharding(mesh, P{"data", "model"}));
  static const auto body = [](const Array& x) {
    return psum(sin(x) * static_cast<double>(axis_size("model")), "model");
  };
  const auto gradient = [&](const auto& f) {
    return nn::grad([&](const Array& x) {
      return sum(square(shard_map(f, mesh, P{"data", "model"}, P{"data", none})(x)));
    })(x);
  };
  const Array expected = gradient(body);
  for (const RematPolicy policy : {RematPolicy::nothing_saveable, RematPolicy::dots_saveable}) {
    const auto again = [policy](const Array& x) { return nn::remat(body, policy)(x); };
    EXPECT_LE(difference(gradient(again), expected), 1e-6);
  }
}

TEST(Remat, OfOneModuleTwice) {
  const auto twice = [](auto call) {
    return [call](const Decoder& m, const Batch& batch) {
      const Block& block = m.blocks[0];
      const Array x = call(block, call(block, m.embed(batch.inputs)));
      return cross_entropy(m.embed.attend(block(x) * sum(block.mlp.up.kernel)), batch.targets);
    };
  };
  expect_equal(Decoder::init(Key(0)), make_batch(), twice([](const Block& b, const Array& x) { return b(x); }),
               twice([](const Block& b, const Array& x) { return nn::remat(b)(x); }), 1e-11);
}

TEST(Remat, OfACastModel) {
  const auto in_float = [](auto call) {
    return [call](const Decoder& m, const Batch& batch) {
      const Decoder small = cast(m, float32);
      Array x = small.embed(batch.inputs);
      for (const Block& block : small.blocks) x = call(block, x);
      return cross_entropy(astype(small.embed.attend(small.norm(x)), float64), batch.targets);
    };
  };
  expect_equal(Decoder::init(Key(0)), make_batch(), in_float([](const Block& b, const Array& x) { return b(x); }),
               in_float([](const Block& b, const Array& x) { return nn::remat(b)(x); }), 1e-7);
}

// ---- arguments and results of functions

struct Pieces {
  Array hidden;
  std::optional<Array> given, missing;
  std::vector<Array> list;
  std::map<std::string, std::pair<Array, int>> named;
  Array absent;
  double number = 0;
};

Pieces pieces_of(const Mlp& m, const Array& x, const Array& ids, double scale, const std::optional<Param>& nothing) {
  EXPECT_FALSE(nothing);
  const Array h = scale * m.up(x);
  return {.hidden = h,
          .given = x,
          .missing = {},
          .list = {m.down(h), m.down.kernel.value, ids},
          .named = {{"bias", std::pair(m.up.bias->value, 7)}},
          .absent = {},
          .number = scale};
}

TEST(Remat, StructsOfArraysAreResults) {
  const auto loss = [](auto call) {
    return [call](const Mlp& m, const std::vector<NamedArray>& batch) {
      const Pieces p = call(m, batch[0], batch[1], 0.5, std::optional<Param>());
      EXPECT_TRUE(p.given && !p.missing && p.absent.is_absent());
      EXPECT_EQ(p.number, 0.5);
      EXPECT_EQ(p.named.at("bias").second, 7);
      EXPECT_EQ(p.list[2].dtype(), int32);
      return sum(matmul(p.hidden + p.named.at("bias").first, p.list[1]) * p.list[0] * *p.given) +
             sum(square(p.list[1])) + mean(astype(p.list[2], float64)) * sum(p.hidden);
    };
  };
  NamedArray x{"batch", none}, ids{"batch"};
  x = normal(Key(1), {8, 4}, float64);
  ids = array<int32_t>({1, 2, 3, 4, 5, 6, 7, 8});
  expect_equal(cast(Mlp::init(Key(0), {"embed", 4}, {"hidden", 8}), float64), std::vector<NamedArray>{x, ids},
               loss([](const auto&... args) { return pieces_of(args...); }),
               loss([](const auto&... args) { return nn::remat(pieces_of)(args...); }), 1e-12);
}

struct Scaled {
  Param scale;
  Array operator()(const Array& x, const std::function<Array(const Array&)>& then, Key key) const {
    return then(x * scale) * astype(uniform(key, {4}), float64);
  }
};

TEST(Remat, FunctionsAndKeysAreArgumentsAsTheyAre) {
  const Scaled model{.scale = {ones({4}, float64), {"embed"}}};
  NamedArray x{"batch", none};
  x = normal(Key(1), {8, 4}, float64);
  const auto loss = [](const Scaled& m, const NamedArray& data) {
    return mean(m(
        data, [](const Array& y) { return tanh(y); }, Key(3)));
  };
  const auto again = [](const Scaled& m, const NamedArray& data) {
    return mean(nn::remat(m)(
        data, [](const Array& y) { return tanh(y); }, Key(3)));
  };
  expect_equal(model, x, loss, again);
}

TEST(Remat, OfADefinedOperation) {
  const auto cube = define_operation("cube", "*", [](const at::Tensor& x) { return x * x * x; });
  const Param w{array<float>({1, 2, 3}), {"embed"}};
  const Param once = grad([&](const Param& p) { return sum(cube(p.value)); })(w);
  testing::expect_trees_near(grad([&](const Param& p) { return sum(nn::remat(cube)(p.value)); })(w), once, 0, "cube");
}

TEST(Remat, WithoutAGradientItIsACall) {
  for (const auto& [name, mesh_rules] : strategies()) {
    const Decoder model = filter_shard(Decoder::init(Key(0)), mesh_rules);
    const Array ids = filter_shard(make_batch(), mesh_rules).inputs;
    EXPECT_TRUE(at::equal(to_tensor(nn::remat(model)(ids)), to_tensor(model(ids)))) << name;
  }
}

// ---- communication of fully sharded weights

TEST(Remat, GathersOfFullyShardedWeights) {
  const MeshRules mesh_rules = strategies()[3].mesh_rules;
  const auto blocks = [](const Decoder& m, const Batch& batch) {
    Array x = m.embed(batch.inputs);
    for (const Block& block : m.blocks) x = nn::remat(block)(x);
    return cross_entropy(m.embed.attend(m.norm(x)), batch.targets);
  };
  const auto whole = [](const Decoder& m, const Batch& batch) { return nn::remat(loss_of)(m, batch); };
  // Sharded weights of a block: q, k, v, o, the bias of o, gate, up and down; the backward pass reads all but the bias.
  // The table is gathered for the lookup and for the head; the lookup's backward pass does not read it.
  const Decoder model = filter_shard(Decoder::init(Key(0)), mesh_rules);
  const Batch batch = filter_shard(make_batch(), mesh_rules);
  const auto gathers = [&](auto loss, bool borrow) {
    CommLedger ledger;
    nn::value_and_grad(loss, {.reshard_after_forward = borrow, .gather_groups = GatherGroups::by_parameter})(model,
                                                                                                             batch);
    return ledger.count("all_gather", "data");
  };
  constexpr int sharded = 2 * 8, read = 2 * 7, ends = 2, head = 1;
  EXPECT_EQ(gathers(loss_of, false), sharded + ends);
  EXPECT_EQ(gathers(loss_of, true), sharded + ends + read + head);
  EXPECT_EQ(gathers(blocks, false), 2 * sharded + ends);
  EXPECT_EQ(gathers(blocks, true), 2 * sharded + ends + read + head);
  EXPECT_EQ(gathers(whole, false), 2 * (sharded + ends));
  EXPECT_EQ(gathers(whole, true), 2 * (sharded + ends) + read + head);
}

// ---- saved products that are modified in place

// Compares the gradients of sum(weights * body(x, w)) with respect to w under each policy.
template <class Body>
void expect_the_same_under_each_policy(const Body& body, const Array& x, const Array& w, const std::string& what) {
  using List = std::vector<Array>;
  const Array weights = normal(Key(2), body(x, w).shape(), float64);
  const auto gradient = [&](std::optional<RematPolicy> policy) {
    return nn::grad([&](const Array& w) {
             const auto block = [&](const List& a) -> List { return {body(a[0], a[1])}; };
             const List arguments{x, w};
             return sum(weights * (policy ? tessera::remat(block, arguments, *policy) : block(arguments))[0]);
           })(w)
        .template to_host<double>();
  };
  const std::vector<double> expected = gradient(std::nullopt);
  for (const RematPolicy policy :
       {RematPolicy::nothing_saveable, RematPolicy::dots_saveable, RematPolicy::everything_saveable}) {
    const std::vector<double> got = gradient(policy);
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-12) << what;
  }
}

// at::matmul with a 3-D operand returns a view with its own version counter.
TEST(Remat, KeptProductsThatAnOperationWritesToAreComputedAgain) {
  const auto written = [](const at::Tensor& x, const at::Tensor& w) {
    at::Tensor y = at::matmul(x, w);
    y.mul_(0.5).add_(1);
    return at::tanh(y);
  };
  const auto own = define_operation("written_product", "b i k, k j -> b i j", written);
  const auto local = local_map([=](const std::vector<at::Tensor>& t) { return written(t[0], t[1]); },
                               make_mesh({{"a", 2}}), {P{"a"}, P{}}, P{"a"});
  const Array x = normal(Key(0), {2, 3, 2}, float64), w = normal(Key(1), {2, 2}, float64);
  expect_the_same_under_each_policy([&](const Array& x, const Array& w) { return own(x, w); }, x, w,
                                    "define_operation");
  expect_the_same_under_each_policy([&](const Array& x, const Array& w) { return local(x, w); }, x, w, "local_map");
  const auto listed =
      define_operation("written_products", "b i k, k j -> b i j", [](const at::Tensor& x, const at::Tensor& w) {
        const std::vector<at::Tensor> y{at::matmul(x, w)};
        at::_foreach_mul_(y, 0.5);
        return at::tanh(y[0]);
      });
  expect_the_same_under_each_policy([&](const Array& x, const Array& w) { return listed(x, w); }, x, w, "a list");
}

TEST(Remat, AttentionOfAShardedSequenceHasTheSameGradients) {
  const Mesh mesh = make_mesh({{"seq", 2}});
  const Array x = device_put(normal(Key(0), {2, 8, 2, 4}, float64), NamedSharding(mesh, P{none, "seq"}));
  const Array w = device_put(normal(Key(1), {4, 4}, float64), NamedSharding(mesh, P{}));
  for (const bool causal : {false, true})
    for (const auto context : {ContextParallelism::ring, ContextParallelism::gather, ContextParallelism::exchange})
      expect_the_same_under_each_policy(
          [&](const Array& x, const Array& w) {
            const Array h = matmul(x, w);
            return dot_product_attention(h, h, h, {.causal = causal, .context = context});
          },
          x, w, "attention");
}

// The inner gradient of an unplaced array is on no mesh, but depends on a parameter that is on one.
TEST(Remat, AnInnerGradientThatWasNeverPlacedDependsOnAPlacedParameter) {
  using List = std::vector<Array>;
  const Array z = array<double>({1, 2});
  for (const Mesh& mesh : tessera::testing::shared_and_private({{"a", 2}})) {
    const Array w = device_put(array<double>({3, 5}), NamedSharding(mesh, P{}));
    const auto loss = [&](const Array& w) {
      const auto block = [](const List& x) -> List {
        return {nn::grad([&](const Array& z) { return sum(square(z * x[0])); })(x[1])};  // 2 z w^2
      };
      return sum(tessera::remat(block, {w, z})[0]);
    };
    EXPECT_EQ(nn::grad(loss)(w).to_host<double>(), (std::vector<double>{12, 40}));
  }
}

}  // namespace
}  // namespace tessera::nn::remat_test
