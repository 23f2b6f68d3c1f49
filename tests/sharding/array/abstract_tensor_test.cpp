// Abstract meshes: the types, ledgers and errors of the same program on devices, and the memory of one device.
#include <gtest/gtest.h>

#include <ctime>
#include <sstream>

#include "sharding/accounting/forecast.h"
#include "sharding/autodiff/remat.h"
#include "sharding/random/random.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/law.h"

namespace tessera::abstract_tensor_test {
namespace {

using testing::expect_error;

Mesh abstract(const std::vector<MeshAxis>& axes) { return make_mesh(axes, {.abstract = true}); }

Array on(const Mesh& mesh, Shape shape, const PartitionSpec& spec, DType dtype = float32) {
  return device_put(zeros(std::move(shape), dtype), NamedSharding(mesh, spec));
}

// ---- meshes

TEST(AbstractMesh, ArraysThatWereNeverPlacedMayJoinInAndComeOutOfRemat) {
  using List = std::vector<Array>;
  const Array table = array<float>({1, 2, 3, 4}), ids = array<int32_t>({0, 1, 1, 3}), kernel = ones({4, 8});
  const std::pair<const char*, std::function<Array(const Array&)>> losses[] = {
      {"a constant made inside",
       [&](const Array& w) {
         const List r = remat(
             [](const List& x) -> List {
               return {matmul(x[0], x[0]), array<float>({1, 2, 3, 4})};
             },
             {w});
         return sum(r[0] * r[1]);
       }},
      {"an argument handed through",
       [&](const Array& w) {
         const List r = remat([](const List& x) -> List { return {matmul(x[0], x[0]), x[1]}; }, {w, table});
         return sum(r[0] * r[1]);
       }},
      {"an unused result",
       [&](const Array& w) {
         const List r = remat([&](const List& x) -> List { return {take(x[0], ids, 0), x[0] * 2}; }, {square(w)});
         return sum(r[1]);
       }},
      {"labels", [&](const Array& w) { return linear_cross_entropy(w, kernel, ids); }},
      {"labels and weights",
       [&](const Array& w) {
         return linear_cross_entropy(w, kernel, ids, {.weights = table, .label_smoothing = .1, .chunk = 3});
       }},
      {"ids of a product", [&](const Array& w) { return sum(take(matmul(w, w), ids, 0) * scatter_add(w, ids, w)); }},
  };
  for (const auto& [what, loss] : losses)
    for (const PartitionSpec& spec : {P{}, P{"data"}}) {
      std::string types[2];
      for (const bool is_abstract : {false, true}) {
        const Mesh mesh = make_mesh({{"data", 2}}, {.abstract = is_abstract});
        CommLedger ledger;
        Tape tape({on(mesh, {4, 4}, spec)});
        const Array value = loss(tape.shadows()[0]);
        types[is_abstract] = value.type_string() + " " + tape.gradients(value)[0].type_string();
        // On devices, remat reduces the gradient of a result that was never placed, since it may depend on a parameter.
        for (const CommRecord& r : ledger.records())
          if (r.kind != "all_reduce") types[is_abstract] += " " + r.kind + " " + std::to_string(r.bytes);
      }
      EXPECT_EQ(types[true], types[false]) << what;
    }
}

TEST(AbstractMesh, IsAMeshOfItsOwn) {
  const std::vector<MeshAxis> axes{{"data", 4}, {"model", 2}};
  const Mesh mesh = abstract(axes);
  EXPECT_TRUE(mesh.is_abstract());
  EXPECT_FALSE(make_mesh(axes).is_abstract());
  EXPECT_EQ(mesh, abstract(axes));
  EXPECT_NE(mesh, make_mesh(axes));
  EXPECT_EQ(mesh.size(), 8);
  EXPECT_EQ(NamedSharding(mesh, P{"data", "model"}).shard_shape({8, 8}), (Shape{2, 4}));
  expect_error(ErrorKind::invalid_argument, "an abstract mesh has no devices",
               [&] { make_mesh(axes, {.devices = {7, 6, 5, 4, 3, 2, 1, 0}, .abstract = true}); });
  expect_error(ErrorKind::duplicate_axis, "given twice", [] { abstract({{"data", 2}, {"data", 2}}); });
}

TEST(AbstractMesh, HoldsNoValues) {
  const Mesh mesh = abstract({{"data", 8}});
  const Array x = on(mesh, {8}, P{"data"});
  expect_error(ErrorKind::invalid_argument, "holds no values", [&] { x.to_host<float>(); });
  expect_error(ErrorKind::invalid_argument, "is on the abstract mesh (data=8)", [&] { sum(x).item<float>(); });
  EXPECT_EQ(x.type_string(), "float32[8@data]");
  std::ostringstream printed;
  printed << x;
  EXPECT_EQ(printed.str(), "float32[8@data] on a mesh without hardware");
  expect_error(ErrorKind::device_mismatch, "Arrays cannot move between devices and an abstract mesh",
               [&] { device_put(x, NamedSharding(make_mesh({{"data", 8}}), P{"data"})); });
  expect_error(ErrorKind::device_mismatch, "is on the mesh", [&] { x + on(make_mesh({{"data", 8}}), {8}, P{"data"}); });
}

TEST(AbstractMesh, MovesBetweenAbstractMeshesOverTheSameDevices) {
  const Array x = on(abstract({{"data", 8}}), {8, 8}, P{"data"});
  CommLedger ledger;
  const Array y = device_put(x, NamedSharding(abstract({{"a", 4}, {"b", 2}}), P{"b", "a"}));
  EXPECT_EQ(y.type_string(), "float32[8@b,8@a]");
  EXPECT_EQ(ledger.count("block_exchange"), 1);
}

TEST(AbstractMesh, CostsNoMoreOnAMillionDevices) {
  const auto seconds = [](const Mesh& mesh) {
    const std::clock_t start = std::clock();
    const Array x = on(mesh, {1 << 20, 64}, P{"data"}), w = on(mesh, {64, 1 << 10}, P{none, "model"});
    for (int i = 0; i < 20; ++i) sum(gelu(matmul(x, w)));
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  const Mesh small = abstract({{"data", 2}, {"model", 2}}), large = abstract({{"data", 1 << 12}, {"model", 1 << 9}});
  seconds(small);
  EXPECT_LT(seconds(large), 10 * seconds(small) + 0.05);
}

TEST(AbstractMesh, EvaluatesNoLazyInitializer) {
  const Forecast forecast;
  const Mesh mesh = abstract({{"data", 1024}});
  const Array x = device_put(normal(Key(0), {1 << 20, 1 << 16}), NamedSharding(mesh, P{"data"}));
  EXPECT_EQ(x.shape(), (Shape{1 << 20, 1 << 16}));
  EXPECT_EQ(forecast.live_bytes(), (int64_t{1} << 26) * 4);
}

// ---- the same program on devices

// The observable results of a program.
struct Trace {
  std::vector<std::string> types;
  std::vector<std::string> records;
};

std::string text_of(const CommRecord& r) {
  return fmt::format("{} {} {} {} {} {} {} '{}' {} {}:{}", r.kind, r.mesh_axes, r.num_devices, r.bytes, r.operation,
                     r.operand, r.result, r.reason, r.backward ? "backward" : "forward", r.path, r.where.line());
}

using Program = std::function<Array(const std::vector<Array>&)>;

struct Case {
  const char* name;
  std::vector<Shape> parameters;
  Program loss;
};

Array ids_like(const Array& x, Shape shape) {
  return device_put(zeros(std::move(shape), int32), NamedSharding(x.sharding().mesh(), P{"a"}));
}

const std::vector<Case> programs = {
    {"mlp",
     {{8, 4}, {4, 8}, {8}, {8, 4}},
     [](const auto& p) { return mean(square(matmul(gelu(matmul(p[0], p[1]) + p[2]), p[3]))); }},
    {"norms",
     {{8, 8}, {8}, {8}, {8}},
     [](const auto& p) { return sum(rms_norm(layer_norm(p[0], p[1], p[2]), p[3]) * softmax(p[0], -1)); }},
    {"shapes",
     {{8, 8}, {4, 16}},
     [](const auto& p) {
       return sum(reshape(transpose(p[0]), {4, 16}) / (exp(p[1]) + 1.0)) + mean(p[1]);
     }},
    {"lookup",
     {{8, 8}, {8, 8}},
     [](const auto& p) {
       return cross_entropy(matmul(embedding(p[0], ids_like(p[0], {4, 2})), p[1]), ids_like(p[0], {4, 2}));
     }},
    {"attention",
     {{2, 8, 4, 4}, {2, 8, 2, 4}, {2, 8, 2, 4}},
     [](const auto& p) {
       return mean(
           dot_product_attention(rotary_embedding(p[0], {.base = 100}), rotary_embedding(p[1], {.base = 100}), p[2]));
     }},
    {"convolution",
     {{4, 4, 8, 8}, {8, 4, 3, 3}, {8, 2, 1, 3}},
     [](const auto& p) {
       const Array y = conv_general_dilated(p[0], p[1], {2, 1}, "SAME");
       return mean(square(conv_general_dilated(y, p[2], {1, 2}, {{1, 0}, {0, 2}},
                                               {.rhs_dilation = {1, 2}, .feature_group_count = 4})));
     }},
    {"diagonal", {{8, 8}, {8}}, [](const auto& p) { return sum(einsum("ii->i", {p[0]}) * exp(p[1])); }},
    {"nothing_taken",
     {{8, 4}, {4, 8, 2}},
     [](const auto& p) {
       const Array none = zeros({0}, int32);
       return sum(take(p[0], none, 0)) + sum(take(p[0], none, 1)) + sum(take(p[1], none, 1)) + mean(p[0]);
     }},
};

Trace run(const Case& program, const Mesh& mesh, const std::vector<PartitionSpec>& specs) {
  CommLedger ledger;
  std::vector<Array> parameters;
  for (size_t i = 0; i < specs.size(); ++i)
    parameters.push_back(
        place_parameter(zeros(program.parameters[i]), NamedSharding(mesh, specs[i]), fmt::format("p{}", i)));
  Trace trace;
  Tape tape(parameters);
  const Array loss = program.loss(tape.shadows());
  trace.types.push_back(loss.type_string());
  for (const Array& g : tape.gradients(loss)) trace.types.push_back(g.type_string());
  for (const CommRecord& r : ledger.records()) trace.records.push_back(text_of(r));
  return trace;
}

class AbstractPrograms : public ::testing::TestWithParam<Case> {};

TEST_P(AbstractPrograms, HaveTheTypesAndTheLedgerOfRealOnes) {
  const std::vector<MeshAxis> axes{{"a", 2}, {"b", 2}};
  const Mesh shared = make_mesh(axes), owned = make_mesh(axes, {.private_replicas = true}), none = abstract(axes);
  std::mt19937 random(7);
  int64_t records = 0;
  for (int i = 0; i < 24; ++i) {
    std::vector<PartitionSpec> specs;
    for (const Shape& shape : GetParam().parameters) {
      const auto all = testing::placements(shared, shape);
      PartitionSpec spec = testing::without_sets(all[random() % all.size()]);
      specs.push_back(spec);
    }
    const Trace forecast = run(GetParam(), none, specs);
    for (const Mesh& mesh : {shared, owned}) {
      const Trace real = run(GetParam(), mesh, specs);
      EXPECT_EQ(forecast.types, real.types);
      EXPECT_EQ(forecast.records, real.records);
    }
    records += static_cast<int64_t>(forecast.records.size());
  }
  EXPECT_GT(records, 24);
}

INSTANTIATE_TEST_SUITE_P(Programs, AbstractPrograms, ::testing::ValuesIn(programs),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(AbstractMesh, HeadsOfADeviceMayCrossGroups) {
  const std::vector<MeshAxis> axes{{"a", 4}};
  const auto types = [&](const Mesh& mesh) {
    const NamedSharding by_heads(mesh, P{none, none, "a"});
    const Array query = device_put(ones({2, 4, 12, 4}), by_heads),
                key = device_put(ones({2, 4, 6, 4}), NamedSharding(mesh, P{}));
    Tape tape({query, key});
    const Array result = dot_product_attention(tape.shadows()[0], tape.shadows()[1], tape.shadows()[1]);
    std::string text = result.type_string();
    for (const Array& g : tape.gradients(sum(square(result)))) text += " " + g.type_string();
    return text;
  };
  EXPECT_EQ(types(abstract(axes)), types(make_mesh(axes)));
}

TEST(AbstractMesh, ConvolutionsCostWhatTheyMultiply) {
  const Mesh mesh = abstract({{"a", 4}});
  const Array x = on(mesh, {8, 3, 16, 16}, P{"a"}), w = on(mesh, {5, 3, 3, 3}, P{});
  const Forecast forecast;
  const Array y = conv_general_dilated(x, w, {1, 1}, "SAME");
  EXPECT_EQ(y.type_string(), "float32[8@a,5,16,16]");
  EXPECT_EQ(forecast.live_bytes(), 2 * 5 * 16 * 16 * 4);
  EXPECT_EQ(forecast.flops(), 2.0 * 2 * 5 * 16 * 16 * 3 * 3 * 3);
}

// ---- forecasts

TEST(Forecast, CountsWhatLivesOnOneDevice) {
  const Mesh mesh = abstract({{"data", 4}, {"model", 2}});
  const Forecast forecast;
  {
    const Array x = on(mesh, {64, 32}, P{"data"}), w = on(mesh, {32, 16}, P{none, "model"});
    EXPECT_EQ(forecast.live_bytes(), 16 * 32 * 4 + 32 * 8 * 4);
    const Array y = matmul(x, w);
    EXPECT_EQ(forecast.live_bytes(), 16 * 32 * 4 + 32 * 8 * 4 + 16 * 8 * 4);
    EXPECT_EQ(forecast.flops(), 2.0 * 16 * 32 * 8);
    const Array whole = redistribute(y, NamedSharding(mesh, P{}));
    EXPECT_EQ(whole.type_string(), "float32[64,16]");
  }
  EXPECT_EQ(forecast.live_bytes(), 0);
  EXPECT_GE(forecast.peak_bytes(), (16 * 32 + 32 * 8 + 16 * 8 + 64 * 16) * 4);
  EXPECT_EQ(forecast.ledger().count("all_gather"), 2);
}

TEST(Forecast, ScopesNest) {
  const Mesh mesh = abstract({{"data", 4}});
  const Forecast outer;
  const Array x = on(mesh, {8}, P{"data"});
  {
    const Forecast inner;
    const Array y = x + x;
    EXPECT_EQ(inner.live_bytes(), 8);
  }
  EXPECT_EQ(outer.live_bytes(), 8);
  EXPECT_EQ(outer.peak_bytes(), 16);
}

TEST(Forecast, SeesWhatTheGraphKeeps) {
  const Mesh mesh = abstract({{"data", 4}});
  const Array w = place_parameter(zeros({32, 32}), NamedSharding(mesh, P{}), "w");
  const Array x = on(mesh, {64, 32}, P{"data"});
  const Forecast forecast;
  Tape tape({w});
  Array y = x;
  for (int i = 0; i < 3; ++i) y = gelu(matmul(y, tape.shadows()[0]));
  const Array loss = mean(y);
  const int64_t activation = 16 * 32 * 4;
  EXPECT_GE(forecast.live_bytes(), 6 * activation);
  EXPECT_LE(forecast.live_bytes(), 6 * activation + 16);
  tape.gradients(loss);
  EXPECT_GE(forecast.activation_bytes(), 6 * activation);
  EXPECT_LE(forecast.activation_bytes(), 6 * activation + 64);
  EXPECT_EQ(forecast.flops(), 2.0 * 16 * 32 * 32 * (3 + 3 + 2))
      << "forward, of the weights, of the inputs but the first";
}

TEST(AbstractMesh, SearchesOverShardedDimsHaveATypeAndShardsHaveNoValues) {
  const Mesh mesh = abstract({{"a", 4}});
  const Array x = on(mesh, {8, 12}, P{"a"});
  EXPECT_EQ(argmax(x, 0).type_string(), "int32[12]");
  EXPECT_EQ(argmin(x).type_string(), "int32[]");
  EXPECT_EQ(categorical(Key(1), x, 0).type_string(), "int32[12]");
  const Array shard = x.addressable_shards()[0].data;
  EXPECT_EQ(shard.type_string(), "float32[2,12]");
  expect_error(ErrorKind::invalid_argument, "float32[2,12] comes from an abstract mesh",
               [&] { shard.to_host<float>(); });
}

}  // namespace
}  // namespace tessera::abstract_tensor_test
