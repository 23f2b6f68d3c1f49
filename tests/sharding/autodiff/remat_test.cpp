// remat: recomputation, gradients that are added to the gradients of other uses, and lower memory.
#include "sharding/autodiff/remat.h"

#include <ATen/core/grad_mode.h>

#include "tests/sharding/allocations.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/step.h"

namespace tessera::remat_test {
namespace {

using namespace tessera::testing;
using Arrays = const std::vector<Array>&;
using List = std::vector<Array>;
using F = std::function<List(Arrays)>;

// Calls f(x) without or with remat, so that a model can be written once.
using Call = std::function<List(const F&, Arrays)>;
List plainly(const F& f, Arrays x) { return f(x); }
List again(const F& f, Arrays x) { return remat(f, x); }

const F block = [](Arrays x) -> List { return {x[0] + matmul(tanh(matmul(x[0], x[1])), x[2])}; };
const F product = [](Arrays x) -> List { return {matmul(x[0], x[1])}; };

// ---- communication

constexpr int b = 4, d = 8, f = 16;  // float64: b*d is 256 bytes, d*f is 1024

const F mlp = [](Arrays x) -> List { return {x[0] + matmul(gelu(matmul(x[0], x[1]) + x[2]), x[3])}; };

Array blocks(Array x, const List& w, const Call& call) {
  for (int i = 0; i < 2; ++i) x = call(mlp, {x, w[3 * i], w[3 * i + 1], w[3 * i + 2]})[0];
  return mean(square(x));
}

TEST(Remat, CommunicatesWhatTheSecondRunNeedsAndReducesOnce) {
  const struct {
    const char* name;
    std::vector<MeshAxis> axes;
    PartitionSpec data, up, bias, down;
    GradientOptions options;
    std::string expected;
  } table[] = {
      {"one", {{"data", 1}}, P{"data"}, {}, {}, {}, {}, ""},
      // One bucket of all gradients, 2 * (1024 + 128 + 1024), and the loss.
      {"data", {{"data", 4}}, P{"data"}, {}, {}, {}, {}, "<all_reduce data 4352; all_reduce data 8"},
      // Each matrix is gathered for both runs, and again where the backward pass reads it: all but the first.
      {"fsdp",
       {{"data", 4}},
       P{"data"},
       P{"data"},
       {},
       P{"data"},
       {},
       "<all_gather data 1024 x3; <all_reduce data 256; <reduce_scatter data 256 x4; all_gather data 1024 x8; "
       "all_reduce data 8"},
      {"fsdp, weights kept",
       {{"data", 4}},
       P{"data"},
       P{"data"},
       {},
       P{"data"},
       {.reshard_after_forward = false},
       "<all_reduce data 256; <reduce_scatter data 256 x4; all_gather data 1024 x8; all_reduce data 8"},
      // Megatron: each block's all_reduce in both runs.
      {"model",
       {{"model", 4}},
       {},
       P{none, "model"},
       P{"model"},
       P{"model"},
       {},
       "<all_reduce model 256; all_reduce model 256 x4"},
      {"both",
       {{"data", 2}, {"model", 2}},
       P{"data"},
       P{none, "model"},
       P{"model"},
       P{"model"},
       {},
       "<all_reduce data 2176; <all_reduce model 128; all_reduce data 8; all_reduce model 128 x4"},
  };
  for (const auto& row : table)
    for (const bool private_replicas : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, {} replicas", row.name, private_replicas ? "private" : "shared"));
      const Mesh mesh = make_mesh(row.axes, {.private_replicas = private_replicas});
      const Array x = placed(random_tensor({b, d}, 1), mesh, row.data);
      const List w = block_weights(mesh, row.up, row.bias, row.down);
      const Step got = step(
          w, [&](Arrays p) { return blocks(x, p, again); }, row.options);
      EXPECT_EQ(got.communication, row.expected);
      EXPECT_TRUE(are_equal(got, step(
                                     w, [&](Arrays p) { return blocks(x, p, plainly); }, row.options)));
    }
}

// A float32 weight with casts inside and outside remat: one reduction, in the weight's own type.
TEST(Remat, CastsOfAWeightAreReducedOnce) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const Array x = placed(random_tensor({8, 8}, 1, at::kFloat), mesh, P{"data"});
  for (const Call call : {plainly, again}) {
    const Step got = step({placed(random_tensor({8, 8}, 2, at::kFloat), mesh, {})}, [&](Arrays p) {
      const Array w = astype(p[0], bfloat16);
      return sum(astype(call(product, {astype(x, bfloat16), w})[0], float32)) +
             sum(call(product, {x, 0.5 * transpose(p[0])})[0]) + sum(square(p[0]));
    });
    EXPECT_EQ(got.communication, "<all_reduce data 256; all_reduce data 4");
    EXPECT_EQ(got.gradients[0].type_string(), "float32[8,8]");
  }
}

TEST(Remat, GradientsMayStayPartialSums) {
  for (const Mesh mesh : shared_and_private({{"data", 4}})) {
    const Array x = placed(random_tensor({b, d}, 1), mesh, P{"data"});
    const List w = block_weights(mesh, {}, {}, {});
    const auto model = [&](const Call& call) { return [&](Arrays p) { return blocks(x, p, call); }; };
    const Step got = step(w, model(again), {.reduce = false}), expected = step(w, model(plainly), {.reduce = false});
    EXPECT_EQ(got.communication, "all_reduce data 8");
    EXPECT_EQ(got.gradients[0].type_string(), "float64[8,16]{U:data}");
    EXPECT_LE(difference(got, expected), 1e-15);
  }
}

// ---- runs of f and their arguments

TEST(Remat, RunsTwiceWhereAGradientIsWantedAndOnceElsewhere) {
  int runs = 0;
  const F counted = [&](Arrays x) -> List { return ++runs, product(x); };
  const Mesh mesh = make_mesh({{"data", 2}});
  const Array x = placed(random_tensor({4, 4}, 1), mesh, P{"data"}), w = placed(random_tensor({4, 4}, 2), mesh, {});
  remat(counted, {x, w});
  EXPECT_EQ(std::exchange(runs, 0), 1) << "without a tape";
  step({w}, [&](Arrays p) { return sum(remat(counted, {x, x})[0]) + sum(p[0]); });
  EXPECT_EQ(std::exchange(runs, 0), 1) << "of constants";
  step({w}, [&](Arrays p) { return sum(remat(counted, {x, p[0]})[0]); });
  EXPECT_EQ(std::exchange(runs, 0), 2) << "of a parameter";
  step({w}, [&](Arrays p) { return remat(counted, {x, p[0]}), sum(p[0]); });
  EXPECT_EQ(std::exchange(runs, 0), 1) << "of a result that the loss does not need";
  step({w}, [&](Arrays p) { return sum(stop_gradient(remat(counted, {x, p[0]})[0])) + sum(p[0]); });
  EXPECT_EQ(std::exchange(runs, 0), 1) << "of a result without a gradient";
  const F nested = [&](Arrays a) -> List { return remat(counted, a); };
  step({w}, [&](Arrays p) { return sum(remat(nested, {x, p[0]})[0]); });
  EXPECT_EQ(std::exchange(runs, 0), 3) << "in remat";
  {
    const Tape tape({w});
    const at::NoGradGuard off;
    remat(counted, {x, tape.shadows()[0]});
  }
  EXPECT_EQ(std::exchange(runs, 0), 1) << "without gradients";
}

TEST(Remat, AbsentArraysAndNoArraysGoThrough) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const Array w = placed(random_tensor({4, 4}, 2), mesh, P{"data"});
  const F f = [](Arrays x) -> List { return {x[0], square(x[1]), Array()}; };
  List results;
  const Step got = step({w}, [&](Arrays p) { return sum((results = remat(f, {Array(), p[0]}))[1]); });
  EXPECT_TRUE(results[0].is_absent() && results[2].is_absent());
  EXPECT_LE(difference(to_tensor(got.gradients[0]), 2 * to_tensor(w)), 1e-15);
  EXPECT_TRUE(remat([](Arrays) { return List(); }, {w}).empty());
  step({w}, [&](Arrays p) { return remat([](Arrays) { return List(); }, {p[0]}), sum(p[0]); });
}

TEST(Remat, ResultsThatDependOnNothingHaveNoPartInTheGradient) {
  const Array w = placed(random_tensor({4, 4}, 2), make_mesh({{"data", 2}}), P{"data"});
  const F f = [](Arrays x) -> List { return {zeros({3}), square(x[0]), ones({}, float64)}; };
  const Step got = step({w}, [&](Arrays p) {
    const List results = remat(f, {p[0]});
    return sum(results[1]) + 5.0 * results[2] + sum(results[0]);
  });
  EXPECT_LE(difference(to_tensor(got.gradients[0]), 2 * to_tensor(w)), 1e-15);
}

TEST(Remat, WhatIsCapturedIsAConstant) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const Array x = placed(random_tensor({4, 4}, 1), mesh, P{"data"}), w = placed(random_tensor({4, 4}, 2), mesh, {});
  const Step got = step({w, w * 1.0}, [&](Arrays p) {
    const Array captured = p[1];
    return sum(remat([x, captured](Arrays a) -> List { return {matmul(x, a[0]) * captured}; }, {p[0]})[0]) + sum(p[1]);
  });
  EXPECT_LE(difference(to_tensor(got.gradients[1]), at::ones({4, 4})), 1e-15);
}

TEST(Remat, AnErrorInEitherRunIsTheCallersError) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const Array w = placed(random_tensor({4, 4}, 2), mesh, P{"data"});
  int runs = 0;
  const auto fails_in = [&](int run) -> Model {
    return [&, run](Arrays p) {
      return sum(remat(
          [&runs, run](Arrays a) -> List { return {++runs == run ? matmul(a[0], sum(a[0])) : a[0] * a[0]}; }, p)[0]);
    };
  };
  for (const int run : {1, 2}) {
    runs = 0;
    expect_error(ErrorKind::shape_mismatch, "[matmul]", [&] { step({w}, fails_in(run)); });
    EXPECT_EQ(runs, run);
  }
  EXPECT_LE(difference(to_tensor(step({w}, fails_in(0)).gradients[0]), 2 * to_tensor(w)), 1e-15);
}

// ---- nested tapes

// Neither backward pass adds to the gradients of the other tape's parameters.
TEST(Remat, NestedTapesDoNotMix) {
  const at::Tensor x = random_tensor({8, 8}, 1), w = random_tensor({8, 8}, 2), v = random_tensor({8, 8}, 3);
  const F both = [](Arrays a) -> List { return {tanh(matmul(matmul(a[0], a[1]), a[2]))}; };
  for (const bool private_replicas : {false, true})
    for (const PartitionSpec& at : {P{}, P{"data"}, P{none, "data"}}) {
      const Mesh mesh = make_mesh({{"data", 4}}, {.private_replicas = private_replicas});
      const Array batch = placed(x, mesh, P{"data"});
      std::vector<Step> steps;
      for (const Call call : {plainly, again})
        steps.push_back(step({placed(w, mesh, at)}, [&](Arrays outer) {
          Array gradient, before = call(both, {batch, outer[0], outer[0]})[0], captured;
          {
            Tape tape({placed(v, mesh, at)});
            captured = call(both, {batch, tape.shadows()[0], outer[0]})[0];
            gradient = tape.gradients(sum(captured))[0];
            captured = call(both, {batch, tape.shadows()[0], outer[0]})[0];
          }
          return sum(outer[0] * gradient) + sum(before) + sum(square(captured));
        }));
      EXPECT_LE(difference(steps[1], steps[0]), 1e-14);
    }
}

// A gradient inside a function under remat is recomputed.
TEST(Remat, AGradientInsideIsAValue) {
  const at::Tensor x = random_tensor({8, 8}, 1), w = random_tensor({8, 8}, 2);
  const F inner = [](Arrays a) -> List {
    Tape tape({a[1]});
    const Array gradient = tape.gradients(sum(tanh(remat(product, {a[0], tape.shadows()[0]})[0])))[0];
    return {matmul(a[0], a[1] * gradient)};
  };
  for (const bool private_replicas : {false, true})
    for (const PartitionSpec& at : {P{}, P{"data"}}) {
      const Mesh mesh = make_mesh({{"data", 4}}, {.private_replicas = private_replicas});
      const Array batch = placed(x, mesh, P{"data"});
      const auto model = [&](const Call& call) { return [&](Arrays p) { return sum(call(inner, {batch, p[0]})[0]); }; };
      EXPECT_LE(difference(step({placed(w, mesh, at)}, model(again)), step({placed(w, mesh, at)}, model(plainly))),
                1e-14);
    }
}

// ---- memory

constexpr int64_t n = 64, rows = 256, activation = rows * n * 8;

TEST(Remat, KeepsTheInputsAlone) {
  constexpr int layers = 6;
  constexpr int64_t gradients = 2 * layers * n * n * 8;
  for (const int64_t devices : {1, 4}) {
    const Mesh mesh = make_mesh({{"data", devices}});
    const Array x = placed(random_tensor({rows, n}, 9), mesh, P{"data"});
    List w;
    for (int i = 0; i < 2 * layers; ++i) w.push_back(placed(random_tensor({n, n}, i), mesh, {}));
    int64_t held[2], peak[2];
    for (const bool rematerialized : {false, true}) {
      const Allocations memory;
      Tape tape(w);
      Array h = x;
      for (int i = 0; i < layers; ++i)
        h = (rematerialized ? again : plainly)(block, {h, tape.shadows()[2 * i], tape.shadows()[2 * i + 1]})[0];
      const Array loss = mean(h);
      held[rematerialized] = memory.live();
      const List kept = tape.gradients(loss);
      peak[rematerialized] = memory.peak();
      EXPECT_LE(memory.live(), gradients + 2 * activation) << "the last result, and the gradients";
    }
    EXPECT_GE(held[false], 2 * layers * activation);
    EXPECT_LE(held[true], layers * activation + activation / 16);
    // The recomputed activations of one block, and its gradients.
    EXPECT_LE(peak[true], held[true] + 6 * activation + gradients);
    EXPECT_LE(peak[true], peak[false] - (layers - 4) * activation);
  }
}

TEST(Remat, FormsOfAnArgumentAreGoneWithTheFirstRun) {
  const Mesh mesh = make_mesh({{"model", 4}});
  const F gathers = [](Arrays a) -> List {
    return {sum(redistribute(a[0], NamedSharding(a[0].sharding().mesh(), {})) * a[1])};
  };
  Tape tape({placed(at::ones({}, at::kDouble), mesh, {})});
  const Allocations memory;
  const Array h = placed(random_tensor({rows, n}, 9), mesh, P{"model"}) * tape.shadows()[0];
  const Array y = remat(gathers, {h, tape.shadows()[0]})[0];
  EXPECT_LE(memory.live(), activation * 5 / 2);  // h and its operands
  tape.gradients(y);
}

// Second derivatives need the activations that remat would discard, so there remat calls the function directly.
TEST(Remat, InsideADifferentiatedGradientIsTheFunctionItself) {
  const at::Tensor x = random_tensor({8, 8}, 1), w = random_tensor({8, 8}, 2);
  const Mesh mesh = make_mesh({{"data", 4}});
  const Array batch = placed(x, mesh, P{"data"});
  const auto slope = [&](const Call& call) {
    return [&, call](Arrays a) -> List {
      Tape tape({a[0]}, {.differentiable = true});
      return {tape.gradients(sum(tanh(call(product, {batch, tape.shadows()[0]})[0])))[0]};
    };
  };
  const auto model = [&](const F& f, const Call& call) {
    return [&](Arrays p) { return sum(square(call(f, {p[0]})[0])); };
  };
  const F plain = slope(plainly), inner = slope(again);
  const Step expected = step({placed(w, mesh, {})}, model(plain, plainly));
  EXPECT_LE(difference(step({placed(w, mesh, {})}, model(inner, plainly)), expected), 1e-13);
  EXPECT_LE(difference(step({placed(w, mesh, {})}, model(inner, again)), expected), 1e-13) << "remat around both";
}

}  // namespace
}  // namespace tessera::remat_test
