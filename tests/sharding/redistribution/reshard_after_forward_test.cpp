// reshard_after_forward: a weight is gathered again only if the backward pass reads it.
#include "tests/sharding/expressions.h"
#include "tests/sharding/step.h"

namespace tessera::reshard_after_forward_test {
namespace {

using namespace tessera::testing;
using Arrays = const std::vector<Array>&;
using Values = const std::vector<at::Tensor>&;

constexpr GradientOptions kept{.reshard_after_forward = false};

int gathers(const Step& s, bool backward) {
  int n = 0;
  for (size_t at = 0; (at = s.communication.find("all_gather", at)) != std::string::npos; ++at) {
    if ((at > 0 && s.communication[at - 1] == '<') != backward) continue;
    const std::string line = s.communication.substr(at, s.communication.find(';', at) - at);
    const size_t times = line.find(" x");
    n += times == std::string::npos ? 1 : std::stoi(line.substr(times + 2));
  }
  return n;
}

// ---- gathers per pass

// In the expressions, x[0] is an activation (the data times the first parameter); x[1], x[2] are `weights`.
struct Use {
  std::string name;
  std::vector<std::pair<Shape, PartitionSpec>> weights;
  int forward, backward, kept;  // gathers: per pass, and in total if weights are kept
  std::function<Array(Arrays)> ours;
  std::function<at::Tensor(Values)> theirs;
};

at::Tensor ids() { return random_integers({8}, 12, 7); }
Array placed_ids(const Array& like) {
  return device_put(from_tensor(ids()), NamedSharding(like.sharding().mesh(), P{"data"}));
}

std::vector<Use> uses() {
  const std::pair<Shape, PartitionSpec> matrix{{8, 8}, P{"data"}}, row{{8}, P{"data"}};
  const auto rms = [](const at::Tensor& x, const at::Tensor& scale) {
    return x * at::rsqrt((x * x).mean(-1, true) + 1e-5) * scale;
  };
  return {
      {"a bias", {row}, 1, 0, 1, BOTH(x[0] + x[1])},
      {"a factor", {row}, 1, 1, 1, BOTH(x[0] * x[1])},
      {"a product", {matrix}, 1, 1, 1, BOTH(matmul(x[0], x[1]))},
      {"a product with a column of blocks", {{{8, 8}, P{none, "data"}}}, 1, 1, 1, BOTH(matmul(x[0], x[1]))},
      {"a first layer",
       {matrix},
       1,
       0,
       1,
       OURS(matmul(stop_gradient(x[0]), x[1])),
       THEIRS(at::matmul(x[0].detach(), x[1]))},
      {"a table",
       {{{12, 8}, P{"data"}}},
       1,
       0,
       1,
       OURS(x[0] + embedding(x[1], placed_ids(x[0]))),
       THEIRS(x[0] + at::embedding(x[1], ids().to(at::kLong)))},
      {"a table and a tied head",
       {{{12, 8}, P{none, "data"}}},
       2,
       1,
       2,
       OURS(matmul(x[0] + embedding(x[1], placed_ids(x[0])), transpose(x[1]))),
       THEIRS(at::matmul(x[0] + at::embedding(x[1], ids().to(at::kLong)), x[1].t()))},
      {"the scale of an rms_norm", {row}, 1, 1, 1, OURS(rms_norm(x[0], x[1])), THEIRS(rms(x[0], x[1]))},
      // LibTorch's layer_norm saves its bias for the backward pass, too.
      {"scale and bias of a layer_norm",
       {row, row},
       2,
       2,
       2,
       OURS(layer_norm(x[0], x[1], x[2])),
       THEIRS(at::layer_norm(x[0], {8}, x[1], x[2]))},
      {"two operands of one operation",
       {row},
       1,
       1,
       1,
       OURS(layer_norm(x[0], x[1], x[1])),
       THEIRS(at::layer_norm(x[0], {8}, x[1], x[1]))},
      {"two operations", {matrix}, 2, 2, 1, BOTH(matmul(tanh(matmul(x[0], x[1])), x[1]))},
      {"two operations, one of which reads it", {row}, 2, 1, 1, BOTH(x[0] * x[1] + x[1])},
      {"w @ w", {matrix}, 2, 2, 2, BOTH(matmul(x[0], matmul(x[1], x[1])))},
      {"a scaled weight", {matrix}, 1, 1, 1, BOTH(matmul(x[0], 0.5 * x[1]))},
      {"a function of a weight", {matrix}, 1, 1, 1, BOTH(matmul(x[0], tanh(x[1])))},
      {"a transposed weight",
       {matrix},
       1,
       1,
       1,
       OURS(matmul(x[0], transpose(x[1]))),
       THEIRS(at::matmul(x[0], x[1].t()))},
      {"a slice whose blocks are exchanged",
       {{{16}, P{"data"}}},
       1,
       1,
       1,
       OURS(x[0] * slice_in_dim(x[1], 4, 12, 0)),
       THEIRS(x[0] * x[1].narrow(0, 4, 8))},
      // The backward pass reads a view of the gathered weight, which keeps the memory.
      {"a reshape",
       {{{6, 16}, P{none, "data"}}},
       1,
       0,
       1,
       OURS(matmul(x[0], reshape(x[1], {8, 12}))),
       THEIRS(at::matmul(x[0], x[1].reshape({8, 12})))},
      {"a reshape whose blocks are exchanged",
       {{{4, 16}, P{none, "data"}}},
       1,
       1,
       1,
       OURS(matmul(x[0], reshape(x[1], {8, 8}))),
       THEIRS(at::matmul(x[0], x[1].reshape({8, 8})))},
      {"no use at all", {matrix}, 0, 0, 0, BOTH(x[0] * 1.0)},
  };
}

at::Tensor data() { return random_tensor({8, 8}, 9); }

std::vector<at::Tensor> initial(const Use& use) {
  std::vector<at::Tensor> w{random_tensor({8}, 1)};
  for (const auto& [shape, spec] : use.weights) w.push_back(random_tensor(shape, 1 + w.size()));
  return w;
}

Step step_of(const Use& use, Mesh mesh, const GradientOptions& options = {}) {
  const std::vector<at::Tensor> values = initial(use);
  std::vector<Array> parameters{placed(values[0], mesh, {})};
  for (size_t i = 1; i < values.size(); ++i) parameters.push_back(placed(values[i], mesh, use.weights[i - 1].second));
  const Array x = placed(data(), mesh, P{"data"});
  const auto loss = [&](Arrays shadows) {
    std::vector<Array> w = shadows;
    w[0] = x * w[0];
    return mean(square(use.ours(w)));
  };
  return step(parameters, loss, options);
}

// Returns the same step by LibTorch's autograd on unsharded tensors.
Step plain_step_of(const Use& use) {
  std::vector<at::Tensor> leaves = initial(use);
  for (at::Tensor& t : leaves) t.requires_grad_();
  std::vector<at::Tensor> w = leaves;
  w[0] = data() * w[0];
  Step result;
  result.loss = use.theirs(w).square().mean();
  result.loss.backward();
  for (const at::Tensor& t : leaves)
    result.gradients.push_back(from_tensor(t.grad().defined() ? t.grad() : at::zeros_like(t)));
  return result;
}

TEST(ReshardAfterForward, OnlyWeightsThatTheBackwardPassReadsAreGatheredAgain) {
  for (const Use& use : uses()) {
    const Step plain = plain_step_of(use);
    for (const bool private_replicas : {false, true}) {
      SCOPED_TRACE(use.name + (private_replicas ? ", private replicas" : ", shared replicas"));
      const Mesh mesh = make_mesh({{"data", 4}}, {.private_replicas = private_replicas});
      const Step on = step_of(use, mesh), off = step_of(use, mesh, kept);
      EXPECT_EQ(gathers(on, false), use.forward) << on.communication;
      EXPECT_EQ(gathers(on, true), use.backward) << on.communication;
      EXPECT_EQ(gathers(off, false), use.kept) << off.communication;
      EXPECT_EQ(gathers(off, true), 0) << off.communication;
      // A weight that is used twice has two reduce_scatters; a kept weight has one, of the sum.
      EXPECT_TRUE(use.forward > 1 || are_equal(on, off));
      EXPECT_LE(difference(on, off), 1e-15);
      EXPECT_LE(difference(on, plain), 1e-13);
    }
  }
}

TEST(ReshardAfterForward, ASecondGatherRepeatsTheFirst) {
  const Mesh mesh = make_mesh({{"data", 4}});
  const Array x = placed(data(), mesh, P{"data"});
  CommLedger ledger;
  Tape tape({placed(random_tensor({8, 8}, 1), mesh, P{"data"})});
  tape.gradients(sum(square(matmul(tanh(x * mean(tape.shadows()[0])), tape.shadows()[0]))));
  std::vector<CommRecord> found;
  for (const CommRecord& r : ledger.records())
    if (r.kind == "all_gather") found.push_back(r);
  ASSERT_EQ(found.size(), 2);
  EXPECT_FALSE(found[0].backward);
  EXPECT_TRUE(found[1].backward);
  EXPECT_EQ(found[0].bytes, 8 * 8 * 8);
  for (const auto field : {&CommRecord::mesh_axes, &CommRecord::operation, &CommRecord::operand, &CommRecord::result,
                           &CommRecord::path, &CommRecord::reason})
    EXPECT_EQ(found[0].*field, found[1].*field);
  EXPECT_EQ(found[0].bytes, found[1].bytes);
  EXPECT_EQ(found[0].where.line(), found[1].where.line());
}

// ---- any sharding

std::vector<Function> functions_of_weights() {
  const at::Tensor x = random_tensor({12, 6}, 1), w = random_tensor({6, 6}, 2), v = random_tensor({6, 6}, 3);
  const at::Tensor row = random_tensor({6}, 4);
  return {
      {"residual blocks", {x, w, v}, BOTH(x[0] + matmul(tanh(matmul(x[0], x[1])), x[2]) * tanh(matmul(x[0], x[2])))},
      {"powers", {w, v}, BOTH(matmul(matmul(x[0], x[1]), matmul(x[1], x[1])) + x[1])},
      {"slices and reshapes",
       {x, w, row},
       [](Arrays w) {
         const Array part = slice_in_dim(w[1], 1, 4, 0);
         return rms_norm(matmul(w[0], reshape(transpose(reshape(w[1], {36})), {6, 6})), w[2]) +
                matmul(slice_in_dim(w[0], 0, 3, 1), part) + sum(part);
       },
       [](Values w) {
         const at::Tensor part = w[1].narrow(0, 1, 3), h = at::matmul(w[0], w[1]);
         return h * at::rsqrt((h * h).mean(-1, true) + 1e-5) * w[2] + at::matmul(w[0].narrow(1, 0, 3), part) +
                part.sum();
       }},
  };
}

TEST(ReshardAfterForward, AnyShardingGivesTheValueOfOneDevice) {
  int cases = 0;
  for (const Function& f : functions_of_weights())
    for (const GradientOptions& options : {GradientOptions(), kept})
      for (const std::vector<MeshAxis>& axes : {std::vector<MeshAxis>{{"a", 2}, {"b", 3}}, {{"a", 2}, {"b", 2}}})
        cases += expect_law(f, axes, 60, /*with_reduced=*/false, options);
  std::cout << cases << " cases\n";
}

// ---- nested tapes

TEST(ReshardAfterForward, TapesNest) {
  const at::Tensor x = data(), w = random_tensor({8, 8}, 1);
  const at::Tensor leaf = w.clone().requires_grad_();
  const at::Tensor inner = at::matmul(x.t(), 1 - at::tanh(at::matmul(x, w)).square());
  (at::tanh(at::matmul(x, leaf)).sum() + at::matmul(at::tanh(at::matmul(x, leaf)), leaf * inner).sum()).backward();
  for (const bool private_replicas : {false, true})
    for (GradientOptions inside : {GradientOptions(), kept})
      for (const GradientOptions& outside : {GradientOptions(), kept}) {
        const Mesh mesh = make_mesh({{"data", 4}}, {.private_replicas = private_replicas});
        const Array batch = placed(x, mesh, P{"data"});
        Tape outer({placed(w, mesh, P{"data"})}, outside);
        const Array& shadow = outer.shadows()[0];
        const Array h = tanh(matmul(batch, shadow));
        Array gradient;
        {
          inside.differentiable = false;
          Tape tape({shadow}, inside);
          const Array captured = matmul(h, shadow);  // recorded by the outer tape only
          gradient = tape.gradients(sum(tanh(matmul(batch, tape.shadows()[0]))) + 0.0 * sum(captured))[0];
        }
        EXPECT_LE(difference(to_tensor(gradient), inner), 1e-13);
        const Array loss = sum(h) + sum(matmul(h, shadow * gradient));
        EXPECT_LE(difference(to_tensor(outer.gradients(loss)[0]), leaf.grad()), 1e-13);
      }
}

// ---- tuples of axes

TEST(ReshardAfterForward, OverSeveralAxesAtOnce) {
  const at::Tensor w = random_tensor({8, 8}, 1);
  const at::Tensor leaf = w.clone().requires_grad_();
  at::matmul(at::tanh(at::matmul(data(), leaf)), leaf).square().sum().backward();
  const struct {
    PartitionSpec weight;
    const char* expected;
  } table[] = {
      {P{{"data", "model"}},
       "<all_gather data,model 512; <reduce_scatter data,model 128 x2; all_gather data,model 512 x2; all_reduce "
       "data,model 8"},
      {P{{"model", "data"}},
       "<all_gather data,model 512; <reduce_scatter data,model 128 x2; all_gather data,model 512 x2; all_reduce "
       "data,model 8"},
      {P{"data", "model"},
       "<all_gather data 256; <all_gather model 512; <reduce_scatter data 128 x2; <reduce_scatter model 256 x2; "
       "all_gather data 256 x2; all_gather model 512 x2; all_reduce data,model 8"},
  };
  for (const auto& row : table)
    for (const bool private_replicas : {false, true}) {
      SCOPED_TRACE(row.weight.to_string());
      const Mesh mesh = make_mesh({{"data", 2}, {"model", 2}}, {.private_replicas = private_replicas});
      const Array x = placed(data(), mesh, P{{"data", "model"}});
      const auto model = [&](Arrays p) { return sum(square(matmul(tanh(matmul(x, p[0])), p[0]))); };
      const Step on = step({placed(w, mesh, row.weight)}, model);
      EXPECT_EQ(on.communication, row.expected);
      EXPECT_LE(difference(on, step({placed(w, mesh, row.weight)}, model, kept)), 1e-15);
      EXPECT_LE(difference(to_tensor(on.gradients[0]), leaf.grad()), 1e-13);
    }
}

}  // namespace
}  // namespace tessera::reshard_after_forward_test
