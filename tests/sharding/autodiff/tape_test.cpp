// Gradients of error-prone cases, and the communication of a step for each strategy.
#include "sharding/autodiff/tape.h"

#include <ATen/core/grad_mode.h>

#include "tests/sharding/expect_error.h"
#include "tests/sharding/expressions.h"
#include "tests/sharding/step.h"

namespace tessera::tape_test {
namespace {

using namespace tessera::testing;
using Arrays = const std::vector<Array>&;

// x[0]: data (6, 6); x[1]: the weight (6, 6).
TEST(Traps, WeightsUsedInSeveralWays) {
  const std::vector<at::Tensor> xw{random_tensor({6, 6}, 1), random_tensor({6, 6}, 2)};
  const std::vector<Function> table{
      {"decay", xw, BOTH(mean(square(matmul(x[0], x[1]))) + 0.1 * sum(x[1] * x[1]))},
      {"decay of a scaled view", xw, OURS(sum(matmul(x[0], 0.5 * transpose(x[1]))) + sum(square(transpose(x[1])))),
       THEIRS(at::matmul(x[0], 0.5 * x[1].t()).sum() + x[1].square().sum())},
      {"w @ w", xw, BOTH(sum(matmul(matmul(x[0], x[1]), matmul(x[1], x[1])) * x[0]) + sum(x[1]))},
      {"w plus its image", xw, BOTH(matmul(tanh(matmul(x[0], x[1]) + x[1]), x[1]))},
      {"float32 cast", xw, OURS(astype(matmul(astype(x[0], float32), astype(x[1], float32)), float64) + x[1]),
       THEIRS(at::matmul(x[0].to(at::kFloat), x[1].to(at::kFloat)).to(at::kDouble) + x[1]), 1e-6},
      {"norm of both", xw, BOTH(sqrt(sum(square(x[0])) + sum(square(x[1]))))},
      {"view of a cast of a slice", xw,
       OURS(matmul(x[0], reshape(slice_in_dim(0.5 * x[1], 0, 3, 0), {6, 3})) + sum(x[1])),
       THEIRS(at::matmul(x[0], (0.5 * x[1]).narrow(0, 0, 3).reshape({6, 3})) + x[1].sum())},
  };
  int cases = 0;
  for (const Function& f : table) cases += expect_law(f, {{"a", 2}, {"b", 3}}, 200, /*with_reduced=*/true);
  std::cout << cases << " cases\n";
}

// ---- communication of one step

constexpr int b = 4, t = 3, d = 8, f = 16;  // float64: b*d is 256 bytes, d*f is 1024

at::Tensor batch() { return random_tensor({b, d}, 1); }

// Two blocks x + gelu(x up + bias) down.
Array blocks(Array x, const std::vector<Array>& w) {
  for (int i = 0; i < 2; ++i) x = x + matmul(gelu(matmul(x, w[3 * i]) + w[3 * i + 1]), w[3 * i + 2]);
  return mean(square(x));
}

TEST(Communication, OfAnMlpInEveryStrategy) {
  struct Case {
    const char* name;
    std::vector<MeshAxis> axes;
    PartitionSpec data, up, bias, down;
    std::string expected;
  };
  const Case cases[] = {
      {"one", {{"data", 1}, {"model", 1}}, P{"data"}, P{none, "model"}, P{"model"}, P{"model"}, ""},
      {"nothing is sharded", {{"data", 2}, {"model", 2}}, {}, {}, {}, {}, ""},
      // One bucket of all gradients, 2 * (1024 + 128 + 1024), and the loss.
      {"data", {{"data", 4}}, P{"data"}, {}, {}, {}, "<all_reduce data 4352; all_reduce data 8"},
      // Each matrix is gathered once forward and once backward; the biases are one bucket.
      {"fsdp",
       {{"data", 4}},
       P{"data"},
       P{"data"},
       {},
       P{"data"},
       "<all_gather data 1024 x3; <all_reduce data 256; <reduce_scatter data 256 x4; all_gather data 1024 x4; "
       "all_reduce data 8"},
      // Megatron: one all_reduce per block in the forward pass, and one in the backward pass except into the data.
      {"model",
       {{"model", 4}},
       {},
       P{none, "model"},
       P{"model"},
       P{"model"},
       "<all_reduce model 256; all_reduce model 256 x2"},
      {"both",
       {{"data", 2}, {"model", 2}},
       P{"data"},
       P{none, "model"},
       P{"model"},
       P{"model"},
       "<all_reduce data 2176; <all_reduce model 128; all_reduce data 8; all_reduce model 128 x2"},
      {"fsdp and model",
       {{"data", 2}, {"model", 2}},
       P{"data"},
       P{"data", "model"},
       P{"model"},
       P{"model", "data"},
       "<all_gather data 512 x3; <all_reduce data 128; <all_reduce model 128; <reduce_scatter data 256 x4; all_gather "
       "data 512 x4; all_reduce "
       "data 8; "
       "all_reduce model 128 x2"},
  };
  const Mesh one = make_mesh({{"x", 1}});
  const Array x = from_tensor(batch());
  const Step expected = step(block_weights(one, {}, {}, {}), [&](Arrays w) { return blocks(x, w); });
  for (const Case& c : cases)
    for (const bool private_replicas : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, {} replicas", c.name, private_replicas ? "private" : "shared"));
      const Mesh mesh = make_mesh(c.axes, {.private_replicas = private_replicas});
      const Array local = placed(batch(), mesh, c.data);
      const Step got = step(block_weights(mesh, c.up, c.bias, c.down), [&](Arrays w) { return blocks(local, w); });
      EXPECT_EQ(got.communication, c.expected);
      EXPECT_LE(difference(got.loss, expected.loss), 1e-14);
      for (size_t i = 0; i < got.gradients.size(); ++i)
        EXPECT_LE(difference(to_tensor(got.gradients[i]), to_tensor(expected.gradients[i])), 1e-14) << i;
    }
}

TEST(Communication, ProjectionsOfOneInputShareABackwardSum) {
  for (const Mesh mesh : shared_and_private({{"model", 4}})) {
    std::vector<Array> w{placed(random_tensor({d}, 1), mesh, {}), placed(random_tensor({d}, 2), mesh, {})};
    for (int i = 0; i < 3; ++i) w.push_back(placed(random_tensor({d, f}, 3 + i), mesh, P{none, "model"}));
    const Array x = from_tensor(random_tensor({b, t, d}, 9));
    const Step got = step(w, [&](Arrays w) {
      const Array h = layer_norm(x, w[0], w[1]);
      const auto heads = [&](int i) { return reshape(matmul(h, w[i]), {b, t, 4, 4}); };
      return sum(dot_product_attention(heads(2), heads(3), heads(4), {.causal = true}));
    });
    EXPECT_EQ(got.communication, fmt::format("<all_reduce model {}; all_reduce model 8", b * t * d * 8));
  }
}

TEST(Communication, AWeightUsedTwiceIsGatheredForEachUseAndACastReducedOnce) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const Array x = placed(random_tensor({8, 8}, 1), mesh, P{"data"});
  const Step sharded = step({placed(random_tensor({8, 8}, 2), mesh, P{"data"})},
                            [&](Arrays w) { return sum(matmul(tanh(matmul(x, w[0])), w[0])); });
  EXPECT_EQ(sharded.communication,
            "<all_gather data 512; <reduce_scatter data 128 x2; all_gather data 512 x2; all_reduce data 8");
  // A float32 weight with two casts: one reduction, in the weight's own type.
  const Step cast = step({placed(random_tensor({8, 8}, 2, at::kFloat), mesh, {})}, [&](Arrays w) {
    return sum(astype(matmul(astype(x, bfloat16), astype(w[0], bfloat16)), float32)) +
           sum(matmul(astype(x, bfloat16), transpose(astype(w[0], bfloat16))));
  });
  EXPECT_EQ(cast.communication, "<all_reduce data 256; all_reduce data 4");
  EXPECT_EQ(cast.gradients[0].type_string(), "float32[8,8]");
}

TEST(Communication, AnAxisThatNothingUsesIsNeverNamed) {
  for (const Mesh mesh : shared_and_private({{"data", 2}, {"pipe", 2}, {"model", 2}})) {
    const Array x = placed(batch(), mesh, P{"data"});
    const Step got =
        step(block_weights(mesh, P{none, "model"}, P{"model"}, P{"model"}), [&](Arrays w) { return blocks(x, w); });
    EXPECT_EQ(got.communication.find("pipe"), std::string::npos) << got.communication;
  }
}

// ---- inputs and errors of a tape

TEST(TapeTest, GradientsHaveTheParametersSharding) {
  const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}});
  const std::vector<Array> parameters{placed(random_tensor({4, 4}, 1), mesh, P{"data", "model"}),
                                      placed(random_tensor({4, 4}, 2), mesh, P{none, {"model", "data"}}),
                                      from_tensor(random_tensor({4, 4}, 3)), placed(random_tensor({}, 4), mesh, {}),
                                      normal(Key(1), {4, 4}, float64)};
  const Array x = placed(random_tensor({4, 4}, 5), mesh, P{"data"});
  const Step got = step(parameters, [&](Arrays w) { return sum(x * w[0] * w[1] * w[2] * w[3] * w[4]); });
  for (size_t i = 0; i < parameters.size(); ++i) EXPECT_EQ(got.gradients[i].type_string(), parameters[i].type_string());
  at::Tensor product = to_tensor(x);
  for (const Array& p : parameters) product = product * to_tensor(p);
  EXPECT_LE(difference(to_tensor(got.gradients[3]), (product / to_tensor(parameters[3])).sum()), 1e-14);
  EXPECT_LE(difference(to_tensor(got.gradients[2]), product / to_tensor(parameters[2])), 1e-12);
}

TEST(TapeTest, UncommittedParametersAndDataMeetPlacedOnes) {
  const at::Tensor x = random_tensor({4, 6}, 1), w = random_tensor({6, 2}, 2);
  const at::Tensor expected = at::matmul(x.t(), 2 * at::matmul(x, w));
  const auto loss = [](const Array& x, const Array& w) { return sum(square(matmul(x, w))); };
  for (const Mesh mesh : shared_and_private({{"a", 2}})) {
    const Array data = placed(x, mesh, P{"a"});
    const Step uncommitted = step({from_tensor(w)}, [&](Arrays p) { return loss(data, p[0]); });
    EXPECT_LE(difference(to_tensor(uncommitted.gradients[0]), expected), 1e-14);
    EXPECT_FALSE(uncommitted.gradients[0].is_committed());
    const Step committed = step({placed(w, mesh, P{"a"})}, [&](Arrays p) { return loss(from_tensor(x), p[0]); });
    EXPECT_LE(difference(to_tensor(committed.gradients[0]), expected), 1e-14);
  }
}

TEST(TapeTest, UnusedIntegerAndAbsentParameters) {
  const Mesh mesh = make_mesh({{"a", 2}});
  const Array ids = array<int32_t>({0, 1});
  const Step got =
      step({placed(random_tensor({4}, 1), mesh, P{"a"}), placed(random_tensor({4}, 2), mesh, P{"a"}), ids, Array()},
           [&](Arrays p) { return sum(p[0] * p[0]) + mean(astype(p[2], float64)); });
  EXPECT_EQ(got.gradients[1].type_string(), "float64[4@a]");
  EXPECT_TRUE(at::equal(to_tensor(got.gradients[1]), at::zeros({4}, at::kDouble)));
  EXPECT_TRUE(got.gradients[2].is_absent() && got.gradients[3].is_absent());
}

TEST(TapeTest, AConversionMadeWithoutATapeIsNotUsedUnderOne) {
  const Mesh mesh = make_mesh({{"a", 2}});
  const at::Tensor x = random_tensor({4, 4}, 1), w = random_tensor({4, 4}, 2);
  const Array data = placed(x, mesh, P{"a"}), weight = placed(w, mesh, P{none, "a"});
  redistribute(data, NamedSharding(mesh, {}));  // before the tape
  redistribute(weight, NamedSharding(mesh, {}));
  const Array one = from_tensor(at::ones({}, at::kDouble));  // results of weights alone cache no conversions
  const Step got = step({data, weight}, [&](Arrays p) {
    const Array h = tanh(p[1] * one);
    {
      at::NoGradGuard off;
      redistribute(h, NamedSharding(mesh, {}));
      matmul(p[0], h);
      matmul(p[0], p[1]);
    }
    return sum(matmul(p[0], h)) + sum(redistribute(h, NamedSharding(mesh, {}))) + sum(matmul(data, p[1]));
  });
  const at::Tensor columns = x.sum(0).unsqueeze(1);
  EXPECT_LE(difference(to_tensor(got.gradients[1]), (columns + 1) * (1 - w.tanh().square()) + columns), 1e-14);
  EXPECT_LE(difference(to_tensor(got.gradients[0]), w.tanh().sum(1).unsqueeze(0).expand({4, 4})), 1e-14);
}

TEST(TapeTest, NestedTapesDoNotMixWhereTheInnerOnesGradientsAreConstants) {
  for (const Mesh mesh : shared_and_private({{"a", 2}})) {
    const at::Tensor x = random_tensor({4, 4}, 1), w = random_tensor({4, 4}, 2);
    const Array data = placed(x, mesh, P{"a"});
    Tape outer({placed(w, mesh, {})});
    const Array& shadow = outer.shadows()[0];
    const Array before = sum(square(matmul(data, shadow)));
    at::Tensor inner_gradient;
    Array stepped;
    {
      Tape inner({shadow}, {.differentiable = false});
      const Array captured = matmul(data, shadow);  // recorded by the outer tape: a constant here
      const Array loss = sum(matmul(data, inner.shadows()[0]) * captured);
      const Array gradient = inner.gradients(loss)[0];
      inner_gradient = to_tensor(gradient);
      stepped = shadow - 0.1 * gradient;
    }
    EXPECT_LE(difference(inner_gradient, at::matmul(x.t(), at::matmul(x, w))), 1e-14);
    const Array loss = before + sum(square(stepped));
    const at::Tensor expected = 2 * at::matmul(x.t(), at::matmul(x, w)) + 2 * (w - 0.1 * inner_gradient);
    EXPECT_LE(difference(to_tensor(outer.gradients(loss)[0]), expected), 1e-14);
  }
}

TEST(TapeTest, WhatATapeLeavesBehindIsAPlainValue) {
  const Mesh mesh = make_mesh({{"a", 2}});
  const Array w = placed(random_tensor({4}, 1), mesh, {}), x = placed(random_tensor({4}, 2), mesh, P{"a"});
  Array shadow, hidden;
  step({w}, [&](Arrays p) { return shadow = p[0], hidden = 2.0 * p[0], sum(x * hidden); });
  const Step again = step({w}, [&](Arrays p) { return sum(x * p[0] * hidden * shadow); });
  EXPECT_LE(difference(to_tensor(again.gradients[0]), to_tensor(x) * 2 * to_tensor(w).square()), 1e-14);
}

TEST(TapeTest, RefusesWhatHasNoGradient) {
  const Mesh mesh = make_mesh({{"a", 2}});
  const Array w = placed(random_tensor({4}, 1), mesh, P{"a"});
  struct Case {
    Model model;
    ErrorKind kind;
    const char* text;
  };
  const Case cases[] = {
      {[&](Arrays) { return sum(w * w); }, ErrorKind::no_gradient,
       "[value_and_grad] no gradient reaches the model: the loss does not depend on the model that the function "
       "received. "
       "Compute it from the argument, not from a captured model."},
      {[&](Arrays p) { return sum(stop_gradient(p[0])); }, ErrorKind::no_gradient, "no gradient reaches the model"},
      {[&](Arrays p) { return sum(w * stop_gradient(p[0])); }, ErrorKind::no_gradient, "no gradient reaches the model"},
      {[&](Arrays p) { return p[0] * p[0]; }, ErrorKind::shape_mismatch,
       "[value_and_grad] the loss is float64[4@a], expected a floating scalar. Reduce it, for example with mean."},
      {[&](Arrays) { return sum(array<int32_t>({1, 2})); }, ErrorKind::dtype_mismatch,
       "the loss is int32[], expected a floating scalar. Cast it with astype."},
      {[&](Arrays) { return Array(); }, ErrorKind::missing_array, "the loss is an absent array"},
  };
  for (const Case& c : cases) try {
      step({w}, c.model);
      ADD_FAILURE() << "no error, expected: " << c.text;
    } catch (const Error& e) {
      EXPECT_EQ(e.kind(), c.kind) << e.what();
      EXPECT_NE(std::string(e.what()).find(c.text), std::string::npos) << e.what();
    }
  // After an error the tape works as before.
  EXPECT_NO_THROW(step({w}, OURS(sum(x[0]))));
}

// Each scaling stores its original parameter and does not search the chain for it. The chain is too long for recursion.
TEST(TapeTest, ALongChainOfScalingsTakesLinearTime) {
  const Array w = array<float>({1, 2});
  const Step chain = step({w}, [](Arrays p) {
    Array x = p[0];
    for (int i = 0; i < 100'000; ++i) x = x * 1.0;
    return sum(x);
  });
  EXPECT_EQ(chain.gradients[0].to_host<float>(), (std::vector<float>{1, 1}));
}

TEST(TapeTest, AParameterItselfMayBeTheLoss) {
  for (const std::vector<MeshAxis>& axes : {std::vector<MeshAxis>{{"a", 1}}, {{"a", 3}}})
    for (const Mesh mesh : shared_and_private(axes)) {
      for (const Array& w : {placed(random_tensor({}, 1), mesh, {}), from_tensor(random_tensor({}, 1))})
        EXPECT_EQ(to_tensor(step({w}, OURS(x[0])).gradients[0]).item<double>(), 1.0);
    }
}

TEST(TapeTest, GradientsAreComputedOnce) {
  Tape tape({ones({2})});
  const Array loss = sum(square(tape.shadows()[0]));
  tape.gradients(loss);
  expect_error(ErrorKind::no_gradient, "the gradients of this tape were computed already",
               [&] { tape.gradients(loss); });
}

}  // namespace
}  // namespace tessera::tape_test
