// shard_map: the function's arguments and results, collectives and their gradients, and errors.
#include "sharding/shard_map/shard_map.h"

#include "sharding/random/random.h"
#include "sharding/redistribution/varying.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/step.h"

namespace tessera::shard_map_test {
namespace {

using namespace tessera::testing;
using Arrays = const std::vector<Array>&;
using Blocks = std::vector<Array>;

const std::vector<MeshAxis> two_axes{{"x", 2}, {"y", 4}};

Array tensor(const Shape& shape, uint64_t seed) { return from_tensor(random_tensor(shape, seed)); }

// ---- arguments of the function

TEST(ShardMap, ArgumentsAreBlocksThatVaryAlongTheAxesOfTheirSpec) {
  for (const Mesh mesh : shared_and_private(two_axes)) {
    std::vector<std::string> seen;
    const auto f = [&](const Array& a, const Array& b, const Array& c) {
      for (const Array& x : {a, b, c, a + b, b * 2, sum(a), b + c}) seen.push_back(x.type_string());
      return a;
    };
    const Array y = shard_map(f, mesh, {P{"x", "y"}, P{none, "y"}, P{}}, P{"x", "y"})(
        tensor({4, 8}, 1), tensor({2, 8}, 2), tensor({2, 2}, 3));
    EXPECT_EQ(seen, (std::vector<std::string>{"float64[2,2]{V:x,y}", "float64[2,2]{V:y}", "float64[2,2]",
                                              "float64[2,2]{V:x,y}", "float64[2,2]{V:y}", "float64[]{V:x,y}",
                                              "float64[2,2]{V:y}"}));
    EXPECT_EQ(y.type_string(), "float64[4@x,8@y]");
  }
}

TEST(ShardMap, AValueThatVariesIsNotReadOnTheHost) {
  const Mesh mesh = make_mesh({{"x", 4}});
  shard_map(
      [](const Array& a) {
        std::ostringstream text;
        text << a;
        EXPECT_EQ(text.str(), "float64[2]{V:x} different on each device");
        expect_error(ErrorKind::varying_axis, "float64[2]{V:x} has a different value on each device",
                     [&] { to_tensor(a); });
        return a;
      },
      mesh, P{"x"}, P{"x"})(tensor({8}, 1));
}

TEST(ShardMap, ResultsKeepTheFormInWhichTheyAreReturned) {
  const Mesh mesh = make_mesh({{"x", 4}});
  const Array a = tensor({8}, 1);
  const Specs specs{P{"x"}, P{}};
  const auto f = [](const Array& b) { return std::tuple(b * 2, psum(b, "x")); };
  const auto [twice, total] = shard_map(f, mesh, P{"x"}, specs)(a);
  EXPECT_LE(difference(to_tensor(twice), 2 * to_tensor(a)), 1e-15);
  EXPECT_LE(difference(to_tensor(total), to_tensor(a).view({4, 2}).sum(0)), 1e-15);
  const auto pair = [](const Array& b) { return std::pair(b, psum(b, "x")); };
  EXPECT_EQ(shard_map(pair, mesh, P{"x"}, specs)(a).second.type_string(), "float64[2]");
  const auto both = [](const Array& b) { return std::array{b, psum(b, "x")}; };
  EXPECT_EQ(shard_map(both, mesh, P{"x"}, specs)(a)[0].type_string(), "float64[8@x]");
  const auto many = [](const Array& b) { return Blocks{b, b, b}; };
  EXPECT_EQ(shard_map(many, mesh, P{"x"}, P{"x"})(a).size(), 3u);
}

TEST(ShardMap, OtherAxesStayAutomatic) {
  for (const Mesh mesh : shared_and_private(two_axes)) {
    const Array a = placed(random_tensor({4, 8}, 1), mesh, P{"x", "y"});
    const Array w = placed(random_tensor({8, 8}, 2), mesh, P{"y"});
    std::string seen;
    const auto f = [&](const Array& b, const Array& v) {
      const Array y = matmul(b, v);
      seen = b.type_string() + " " + y.type_string();
      return psum(tanh(y), "x");
    };
    const Array y = shard_map(f, mesh, {P{"x"}, P{}}, P{}, {.axis_names = {"x"}})(a, w);
    EXPECT_EQ(seen, "float64[2,8@y]{V:x} float64[2,8]{U:y V:x}");
    const at::Tensor expected = at::matmul(to_tensor(a), to_tensor(w)).tanh().view({2, 2, 8}).sum(0);
    EXPECT_LE(difference(to_tensor(y), expected), 1e-14);
  }
}

TEST(ShardMap, OneInsideAnotherMakesMoreAxesManual) {
  for (const Mesh mesh : shared_and_private(two_axes)) {
    const Array a = tensor({4, 8}, 1);
    std::string seen;
    const auto inner = [&](const Array& b) {
      seen = b.type_string();
      return psum(b, "y") + axis_index("x");
    };
    const auto outer = [&](const Array& b) {
      return shard_map(inner, mesh, P{none, "y"}, P{}, {.axis_names = {"y"}})(b);
    };
    const Array y = shard_map(outer, mesh, P{"x"}, P{"x"}, {.axis_names = {"x"}})(a);
    EXPECT_EQ(seen, "float64[2,2]{V:x,y}");
    const at::Tensor rows = at::arange(4, at::kDouble).div(2, "floor").unsqueeze(1);
    EXPECT_LE(difference(to_tensor(y), to_tensor(a).view({4, 4, 2}).sum(1) + rows), 1e-14);
  }
}

TEST(ShardMap, EveryDeviceSlicesAtItsOwnIndex) {
  for (const Mesh mesh : shared_and_private({{"x", 4}})) {
    const Array table = placed(random_tensor({8, 3}, 1), mesh, P{});
    const at::Tensor expected = to_tensor(table);
    const auto start = [] { return stack({2 * axis_index("x"), 0 * axis_index("x")}); };
    const Array rows = shard_map(
        [&](const Array& t) {
          return dynamic_slice(t, start(), {2, 3});
        },
        mesh, P{}, P{"x"})(table);
    EXPECT_TRUE(at::equal(to_tensor(rows), expected));
    const Array last = shard_map([](const Array& t) { return dynamic_index_in_dim(t, 2 * axis_index("x") + 1, 0); },
                                 mesh, P{}, P{"x"})(table);
    EXPECT_TRUE(at::equal(to_tensor(last), expected.slice(0, 1, 8, 2)));
    const auto write = [&](const Array& t, const Array& mine) {
      return psum(dynamic_update_slice(zeros_like(pvary(t, {"x"})), mine, start()), "x");
    };
    EXPECT_TRUE(at::equal(to_tensor(shard_map(write, mesh, {P{}, P{"x"}}, P{})(table, rows)), expected));
  }
}

TEST(ShardMap, TheGradientOfASliceIsWhereEveryDeviceTookIt) {
  for (const Mesh mesh : shared_and_private({{"x", 4}})) {
    const at::Tensor table = random_tensor({8, 3}, 1);
    const auto loss = [&](Arrays w) {
      const auto row = [](const Array& t) {
        const Array one = dynamic_index_in_dim(t, 2 * axis_index("x"));
        return psum(sum(one * one), "x");
      };
      return shard_map(row, mesh, P{}, P{})(w[0]);
    };
    at::Tensor expected = 2 * table;
    expected.slice(0, 1, 8, 2).zero_();
    const auto got = step({placed(table, mesh, P{})}, loss);
    EXPECT_LE(difference(to_tensor(got.gradients[0]), expected), 1e-14);
  }
}

TEST(ShardMap, AResultMayBeTheTermsOfASum) {
  const Mesh mesh = make_mesh({{"x", 4}});
  const Array a = tensor({8}, 1);
  const Array y = shard_map([](const Array& b) { return b * b; }, mesh, P{"x"}, P{}.unreduced({"x"}))(a);
  EXPECT_EQ(y.type_string(), "float64[2]{U:x}");
  EXPECT_LE(difference(to_tensor(y), to_tensor(a).square().view({4, 2}).sum(0)), 1e-14);
}

// ---- gradients

// Gradients of sum(f(x)^2) taken outside shard_map, compared with unsharded tensors.
TEST(ShardMap, GradientsFromOutside) {
  for (const Mesh mesh : shared_and_private(two_axes)) {
    const at::Tensor x = random_tensor({8, 8}, 1), w = random_tensor({8, 4}, 2), v = random_tensor({4, 8}, 3);
    const auto mlp = [](const Array& a, const Array& up, const Array& down) {
      return psum(matmul(tanh(matmul(a, up)), down), "y") + a;
    };
    const Specs in{P{"x"}, P{none, "y"}, P{"y"}};
    for (const PartitionSpec& at : {P{}, P{none, "y"}, P{"y", "x"}}) {
      const auto got = step({placed(w, mesh, at), placed(v, mesh, {}), placed(x, mesh, {})},
                            [&](Arrays p) { return sum(square(shard_map(mlp, mesh, in, P{"x"})(p[2], p[0], p[1]))); });
      const auto expected = step({from_tensor(w), from_tensor(v), from_tensor(x)},
                                 [&](Arrays p) { return sum(square(matmul(tanh(matmul(p[2], p[0])), p[1]) + p[2])); });
      for (int i = 0; i < 3; ++i)
        EXPECT_LE(difference(to_tensor(got.gradients[i]), to_tensor(expected.gradients[i])), 1e-13) << i;
      EXPECT_EQ(got.gradients[0].type_string(), placed(w, mesh, at).type_string());
    }
  }
}

// A captured parameter is invariant: its gradient is summed over the devices.
TEST(ShardMap, CapturedParametersAreInvariant) {
  for (const Mesh mesh : shared_and_private({{"x", 4}})) {
    const at::Tensor x = random_tensor({8, 3}, 1), w = random_tensor({3}, 2);
    const Array data = placed(x, mesh, P{"x"});
    const auto got = step({placed(w, mesh, {})}, [&](Arrays p) {
      const auto f = [&](const Array& a) { return psum(sum(tanh(a * p[0])), "x") + sum(p[0]); };
      return shard_map(f, mesh, P{"x"}, P{})(data);
    });
    EXPECT_LE(difference(to_tensor(got.gradients[0]), ((1 - (x * w).tanh().square()) * x).sum(0) + 1), 1e-13);
    EXPECT_EQ(got.communication, "<all_reduce x 24; all_reduce x 8");
  }
}

// {.reduce = false} applies only to the other axes.
TEST(ShardMap, GradientsInsideAreSummedOverManualAxes) {
  for (const Mesh mesh : shared_and_private(two_axes)) {
    const at::Tensor x = random_tensor({8, 3}, 1), w = random_tensor({3}, 2);
    const Array data = placed(x, mesh, P{"x"});
    for (const bool reduce : {true, false}) {
      const auto f = [&](const Array& a, const Array& b) {
        Tape inner({b}, {.reduce = reduce});
        const Array gradient = inner.gradients(sum(tanh(a * inner.shadows()[0])))[0];
        EXPECT_EQ(gradient.type_string(), "float64[3]") << reduce;
        return gradient;
      };
      const Array got = shard_map(f, mesh, {P{"x"}, P{}}, P{})(data, placed(w, mesh, {}));
      EXPECT_LE(difference(to_tensor(got), ((1 - (x * w).tanh().square()) * x).sum(0)), 1e-13) << reduce;
    }
  }
}

TEST(ShardMap, SecondDerivativesPassThroughCollectives) {
  for (const Mesh mesh : shared_and_private({{"x", 4}})) {
    const at::Tensor x = random_tensor({8, 3}, 1), w = random_tensor({3}, 2), u = random_tensor({3}, 3);
    const auto f = [](const Array& a, const Array& b) {
      Tape inner({b}, {.differentiable = true});
      return inner.gradients(psum(sum(tanh(a * inner.shadows()[0])), "x"))[0];
    };
    const auto got = step({placed(w, mesh, {}), placed(x, mesh, P{"x"})}, [&](Arrays p) {
      return sum(shard_map(f, mesh, {P{"x"}, P{}}, P{})(p[1], p[0]) * from_tensor(u));
    });
    const at::Tensor t = (x * w).tanh(), slope = 1 - t.square();
    EXPECT_LE(difference(to_tensor(got.gradients[0]), (-2 * t * slope * x * x * u).sum(0)), 1e-13);
    EXPECT_LE(difference(to_tensor(got.gradients[1]), (slope - 2 * t * slope * x * w) * u), 1e-13);
  }
}

// The gradient g of sum(f(x) w) for a linear f satisfies sum(x g) = sum(f(x) w), for any order of axes.
TEST(Collectives, LinearOnesHaveTheirTransposes) {
  struct Linear {
    const char* name;
    std::function<Array(const Array&)> f;
    PartitionSpec out;
  };
  const SpecEntry both{"x", "y"}, reversed{"y", "x"};
  const std::vector<std::pair<int, int>> pairs{{0, 3}, {3, 5}, {7, 0}, {2, 2}};
  const std::vector<Linear> table{
      {"psum", [&](const Array& a) { return psum(a, both); }, {}},
      {"pmean", [](const Array& a) { return pmean(a, "y"); }, P{"x"}},
      {"gather", [&](const Array& a) { return all_gather(a, both); }, P{both}},
      {"gather reversed", [&](const Array& a) { return all_gather(a, reversed, {.dim = 1, .tiled = true}); }, P{both}},
      {"gather invarying",
       [&](const Array& a) { return all_gather(a, reversed, {.tiled = true, .to = Vma::invarying}); },
       {}},
      {"scatter", [&](const Array& a) { return psum_scatter(a, both); }, P{both}},
      {"scatter reversed", [&](const Array& a) { return psum_scatter(a, reversed, {.scatter_dim = 1, .tiled = true}); },
       P{both}},
      {"permute", [&](const Array& a) { return ppermute(a, both, pairs); }, P{both}},
      {"permute reversed", [&](const Array& a) { return ppermute(a, reversed, pairs); }, P{both}},
      {"all_to_all", [&](const Array& a) { return all_to_all(a, both, 1, 0, {.tiled = true}); }, P{both}},
      {"all_to_all reversed", [&](const Array& a) { return all_to_all(a, reversed, 0, 1); }, P{both}},
      {"all_to_all one dim", [&](const Array& a) { return all_to_all(a, "y", 0, 0, {.tiled = true}); }, P{both}},
  };
  for (const Mesh mesh : shared_and_private(two_axes)) {
    for (const Linear& c : table) {
      const Array x = tensor({64, 8}, 1);
      double value = 0;
      const auto got = step({x}, [&](Arrays p) {
        const Array y = shard_map(c.f, mesh, P{both}, c.out)(p[0]);
        const Array loss = sum(y * tensor(y.shape(), 2));
        return value = to_tensor(loss).item<double>(), loss;
      });
      EXPECT_NEAR((to_tensor(x) * to_tensor(got.gradients[0])).sum().item<double>(), value, 1e-10) << c.name;
      EXPECT_NE(value, 0) << c.name;
    }
  }
}

TEST(Collectives, AnExtremumsGradientIsSharedByThoseWhoHoldIt) {
  for (const Mesh mesh : shared_and_private({{"x", 4}})) {
    const Array x = array<double>({1, 5, 5, 3, 5, 2, -1, 0});  // blocks of the devices: (1 5) (5 3) (5 2) (-1 0)
    const auto got = step({x}, [&](Arrays p) {
      return sum(shard_map([](const Array& a) { return pmax(a, "x") + 10 * pmin(a, "x"); }, mesh, P{"x"}, P{})(p[0]));
    });
    const at::Tensor expected = at::tensor({0., 1., 0.5, 0., 0.5, 0., 10., 10.});
    EXPECT_LE(difference(to_tensor(got.gradients[0]), expected), 1e-15);
  }
}

// ---- the ledger

TEST(Collectives, AreInTheLedgerWithTheirLine) {
  for (const Mesh mesh : shared_and_private({{"x", 4}})) {
    const CommLedger ledger;
    int line = 0;
    Tape tape({tensor({16, 4}, 1)});
    const auto f = [&](const Array& a) {
      line = __LINE__ + 1;
      return psum(sum(all_gather(a, "x") * 2.0), "x");
    };
    tape.gradients(shard_map(f, mesh, P{"x"}, P{})(tape.shadows()[0]));
    EXPECT_EQ(summary(ledger), "<all_gather x 512; <reduce_scatter x 128; all_gather x 512; all_reduce x 8");
    for (const CommRecord& r : ledger.records()) {
      if (std::string(r.operation) == "shard_map") continue;  // the all_gather of the sharded argument's gradient
      EXPECT_EQ(r.where.line(), static_cast<unsigned>(line)) << r.operation;
      EXPECT_EQ(r.reason, "explicit");
    }
    EXPECT_EQ(ledger.records()[0].operand, "float64[1,4,4]{V:x}");
  }
}

// ---- keys

TEST(Collectives, EveryDeviceHasItsKey) {
  for (const Mesh mesh : shared_and_private(two_axes)) {
    const auto f = [](const Array& a) {
      const DeviceKeys keys = split(fold_in_axis(Key(7), "y"), 2)[1];
      return a + per_device(keys, [](const Key& k) { return normal(k, {1, 2}); });
    };
    const Array y = shard_map(f, mesh, P{"x", "y"}, P{"x", "y"})(zeros({2, 8}));
    for (int64_t i = 0; i < 4; ++i) {
      const at::Tensor expected = to_tensor(normal(split(fold_in(Key(7), static_cast<uint32_t>(i)), 2)[1], {2}));
      for (int64_t row = 0; row < 2; ++row)
        EXPECT_TRUE(at::equal(to_tensor(y)[row].narrow(0, 2 * i, 2), expected)) << i;
    }
  }
}

// ---- errors

TEST(ShardMap, RefusesWhatItCannotCut) {
  const Mesh mesh = make_mesh(two_axes);
  const auto same = [](const Array& a) { return a; };
  const auto run = [&](const Specs& in, const Specs& out, const Shape& shape, const ShardMapOptions& options = {}) {
    return shard_map(same, mesh, in, out, options)(zeros(shape));
  };
  expect_error(ErrorKind::not_divisible,
               "argument 0, float32[4,6]: dim 1 = 6 is not divisible by 4, the devices along \"y\"",
               [&] { run(P{"x", "y"}, P{"x", "y"}, {4, 6}); });
  expect_error(ErrorKind::rank_mismatch, "argument 0, float32[8]: P('x', None) names 2 dims", [&] {
    run(P{"x", none}, P{"x"}, {8});
  });
  expect_error(ErrorKind::rank_mismatch, "result 0, float32[4]{V:x}: ", [&] { run(P{"x"}, P{"x", none}, {8}); });
  expect_error(ErrorKind::unknown_axis, "mesh axis \"z\"", [&] { run(P{"z"}, P{"x"}, {8}); });
  expect_error(ErrorKind::unknown_axis, "mesh axis \"y\" of P('y') is not manual here, only \"x\"",
               [&] { run(P{"y"}, P{"y"}, {8}, {.axis_names = {"x"}}); });
  const auto again = [&](const Array& a) { return shard_map(same, mesh, P{"x"}, P{"x"})(a); };
  expect_error(ErrorKind::unknown_axis, "mesh axis \"x\" of P('x') is manual already, by the shard_map around",
               [&] { shard_map(again, mesh, P{"x"}, P{"x"})(zeros({8})); });
  expect_error(ErrorKind::unknown_axis, "axis_names: \"z\"", [&] { run(P{}, P{}, {8}, {.axis_names = {"z"}}); });
  expect_error(ErrorKind::duplicate_axis, "axis_names: \"x\" given twice",
               [&] { run(P{}, P{}, {8}, {.axis_names = {"x", "x"}}); });
  expect_error(ErrorKind::duplicate_axis, "mesh axis \"x\" appears twice", [&] { run(P{"x", "x"}, P{}, {8, 8}); });
  expect_error(ErrorKind::invalid_argument, "2 in_specs for 1 arguments", [&] { run({P{"x"}, P{}}, P{"x"}, {8}); });
  expect_error(ErrorKind::varying_axis, "result 0, float32[4]{V:x}: P() claims that it is equal along \"x\"",
               [&] { run(P{"x"}, P{}, {8}); });
  expect_error(ErrorKind::missing_array, "argument 0 is absent", [&] { shard_map(same, mesh, P{}, P{})(Array()); });
}

TEST(ShardMap, RefusesCapturedShardedArrays) {
  const Mesh mesh = make_mesh(two_axes);
  const Array captured = placed(random_tensor({8}, 1), mesh, P{"x"});
  const auto run = [&](const std::function<Array(const Array&)>& f) {
    return shard_map(f, mesh, P{"x"}, P{"x"})(zeros({8}, float64));
  };
  expect_error(ErrorKind::varying_axis, "float64[]{U:x} is not replicated over \"x\"",
               [&] { run([&](Array a) { return sum(captured) * a; }); });
  expect_error(ErrorKind::varying_axis, "Pass it through in_specs",
               [&] { run([&](Array) { return psum(captured, "x"); }); });
  expect_error(ErrorKind::varying_axis, "Pass it through in_specs", [&] { run([&](Array) { return captured; }); });
}

TEST(Collectives, RefuseWrongAxesAndSizes) {
  const Mesh mesh = make_mesh(two_axes);
  const auto run = [&](const std::function<Array(const Array&)>& f) {
    return shard_map(f, mesh, P{"x"}, P{"x"}, {.axis_names = {"x"}})(zeros({8, 6}));
  };
  expect_error(ErrorKind::unknown_axis, "outside shard_map", [] { psum(zeros({2}), "x"); });
  expect_error(ErrorKind::unknown_axis, "\"z\" is not in the mesh", [&] { run([](Array a) { return psum(a, "z"); }); });
  expect_error(ErrorKind::unknown_axis, "\"y\" is not manual", [&] { run([](Array a) { return psum(a, "y"); }); });
  expect_error(ErrorKind::duplicate_axis, "named twice", [&] { run([](Array a) { return psum(a, {"x", "x"}); }); });
  expect_error(ErrorKind::size_mismatch, "dim 0 of float32[4,6]{V:x} = 4, expected 2",
               [&] { run([](Array a) { return psum_scatter(a, "x"); }); });
  expect_error(ErrorKind::not_divisible, "dim 1 of float32[4,3]{V:x} = 3 is not divisible by 2",
               [&] { run([](Array a) { return all_to_all(slice_in_dim(a, 0, 3, 1), "x", 1, 0, {.tiled = true}); }); });
  expect_error(ErrorKind::duplicate_pair, "device 1 gets already", [&] {
    run([](Array a) { return ppermute(a, "x", {{0, 1}, {1, 1}}); });
  });
  expect_error(ErrorKind::invalid_argument, "the pair (0, 2)",
               [&] { run([](Array a) { return ppermute(a, "x", {{0, 2}}); }); });
  expect_error(ErrorKind::varying_axis, "[pvary] float32[4,6]{V:x} varies along \"x\" already",
               [&] { run([](Array a) { return pvary(a, "x"); }); });
  expect_error(ErrorKind::varying_axis, "[pcast] float32[4,6]{V:x} varies along \"x\" already",
               [&] { run([](Array a) { return pcast(a, "x"); }); });
  expect_error(ErrorKind::varying_axis, "to invarying",
               [&] { run([](Array a) { return pcast(a, "x", Vma::invarying); }); });
}

TEST(ShardMap, PlacementsInsideAreOfTheOtherAxes) {
  for (const Mesh mesh : shared_and_private(two_axes)) {
    const Array x = tensor({4, 8}, 1);
    std::vector<std::string> seen;
    const auto f = [&](const Array& a) {
      seen.push_back(with_sharding_constraint(a, P{none, "y"}).type_string());
      expect_error(ErrorKind::varying_axis, "\"x\" is manual inside shard_map",
                   [&] { with_sharding_constraint(a, P{"x"}); });
      return sum(with_sharding_constraint(a, P{none, "y"}), {1});
    };
    const Array y = shard_map(f, mesh, P{"x"}, P{"x"}, {.axis_names = {"x"}})(placed(to_tensor(x), mesh, P{}));
    EXPECT_EQ(seen, std::vector<std::string>{"float64[2,8@y]{V:x}"});
    EXPECT_LE(difference(to_tensor(y), to_tensor(x).sum(1)), 1e-14);
  }
}

// Varying and invariant values are concatenated and sliced together.
TEST(ShardMap, OperationsOnShapesWorkOnValuesThatVary) {
  for (const Mesh mesh : shared_and_private({{"x", 4}})) {
    const Array x = tensor({8, 3}, 1), edge = tensor({1, 3}, 2);
    const auto f = [&](const Array& a) {
      return slice_in_dim(concatenate({edge, swapaxes(reshape(a, {3, 2}), 0, 1), a}), 0, 3, 0);
    };
    const Array y = shard_map(f, mesh, P{"x"}, P{"x"})(x);
    const at::Tensor first = to_tensor(x).narrow(0, 0, 2).reshape({3, 2}).t();
    EXPECT_LE(difference(to_tensor(y).narrow(0, 0, 3), at::cat({to_tensor(edge), first})), 1e-15);
  }
}

// After an error inside, this thread is outside shard_map again.
TEST(ShardMap, AnErrorInsideEndsIt) {
  const Mesh mesh = make_mesh(two_axes);
  const auto fails = [](const Array& a) { return psum(a, "z"); };
  EXPECT_THROW(shard_map(fails, mesh, P{"x"}, P{"x"})(zeros({8})), Error);
  EXPECT_EQ(detail::manual_axes().mesh, nullptr);
}

TEST(ShardMap, ArgumentsAreOnItsMesh) {
  const Mesh mesh = make_mesh({{"x", 2}}), other = make_mesh({{"p", 3}});
  const auto same = [](const Array& a) { return a; };
  expect_error(ErrorKind::device_mismatch,
               "[shard_map] argument 0, float32[6] is on the mesh (p=3), shard_map runs over (x=2).",
               [&] { shard_map(same, mesh, P{"x"}, P{"x"})(device_put(ones({6}), NamedSharding(other, {}))); });
  expect_error(ErrorKind::invalid_argument, "unconstrained in P(",
               [&] { shard_map(same, mesh, P{unconstrained}, P{"x"})(ones({6})); });
  expect_error(ErrorKind::invalid_argument, "[psum] unconstrained given, expected mesh axes", [&] {
    shard_map([](const Array& a) { return psum(a, unconstrained); }, mesh, P{"x"}, P{"x"})(ones({6}));
  });
}

TEST(PerDevice, TakesOneKeyForEachDevice) {
  const Mesh mesh = make_mesh({{"x", 2}}), other = make_mesh({{"x", 4}});
  const auto draw = [](const Key& k) { return normal(k, {2}); };
  DeviceKeys keys;
  shard_map([&](const Array& a) { return keys = fold_in_axis(Key(1), "x"), a; }, mesh, P{"x"}, P{"x"})(ones({4}));
  const auto elsewhere = [&](const Array&) { return per_device(keys, draw); };
  expect_error(ErrorKind::size_mismatch, "[per_device] 2 keys for 4 devices along (x).",
               [&] { shard_map(elsewhere, other, P{"x"}, P{"x"})(ones({4})); });
  expect_error(ErrorKind::size_mismatch, "[per_device] 0 keys for 1 devices", [&] { per_device({}, draw); });
  expect_error(ErrorKind::unknown_axis, "[per_device] outside shard_map", [&] { per_device({{}, {Key(1)}}, draw); });
}

TEST(ShardMapTest, AloneADeviceThatGetsNothingHasZerosOfItsType) {
  const Mesh mesh = make_mesh({{"x", 1}});
  const auto shifted = shard_map([](Array a) { return ppermute(a, "x", {}); }, mesh, {P{"x"}}, P{"x"});
  const Array whole = shifted(array<int32_t>({1, 2})), infinite = shifted(array<float>({1, INFINITY}));
  EXPECT_EQ(whole.to_host<int32_t>(), (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(infinite.to_host<float>(), (std::vector<float>{0, 0}));
}

// Each of two blocks has five elements over two devices, so its last block is padded.
TEST(ShardMapTest, PaddedPartsArePutTogetherWithoutTheirPadding) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  const auto padded = [](const Array& a) { return with_sharding_constraint(a, P{{"model", Uneven::pad}}); };
  const Array x = arange(10.0);
  EXPECT_EQ(shard_map(padded, mesh, P{"data"}, P{"data"}, {.axis_names = {"data"}})(x).to_host<float>(),
            x.to_host<float>());
}

}  // namespace
}  // namespace tessera::shard_map_test
