// Operations defined by a program: checked by the law, attributed to the caller's line, and errors.
#include "sharding/operations/define_operation.h"

#include "tests/sharding/expect_error.h"
#include "tests/sharding/law.h"

namespace tessera::testing::define_operation_test {
namespace {

const std::vector<MeshAxis> mesh_axes = {{"x", 2}, {"y", 2}};

at::Tensor gated(const at::Tensor& x) { return x * at::tanh(at::softplus(x)); }

TEST(DefineOperation, ElementwiseObeysTheLaw) {
  const auto op = define_operation("mish", "*", gated);
  const Function f{"mish",
                   {random_tensor({4, 4}, 1)},
                   [&](const auto& x) { return op(x[0]); },
                   [](const auto& t) { return gated(t[0]); },
                   1e-12,
                   true};
  EXPECT_GT(expect_law(f, mesh_axes, 200), 50);
}

TEST(DefineOperation, ContractionObeysTheLaw) {
  const auto op = define_operation("distances", "i k, j k -> i j", [](const at::Tensor& a, const at::Tensor& b) {
    return (a.unsqueeze(1) - b.unsqueeze(0)).square().sum(-1);
  });
  const Function f{"distances",
                   {random_tensor({4, 4}, 1), random_tensor({4, 4}, 2)},
                   [&](const auto& x) { return op(x[0], x[1]); },
                   [](const auto& t) { return (t[0].unsqueeze(1) - t[1].unsqueeze(0)).square().sum(-1); }};
  EXPECT_GT(expect_law(f, mesh_axes, 200), 50);
}

TEST(DefineOperation, TheFunctionGetsThePositionOfItsBlock) {
  const auto op = define_operation("add_positions", "b t -> b t", [](const at::Tensor& x, const BlockContext& block) {
    return x + at::arange(block.offset("t"), block.offset("t") + x.size(1), x.options());
  });
  const Function f{"add_positions",
                   {random_tensor({4, 4}, 1)},
                   [&](const auto& x) { return op(x[0]); },
                   [](const auto& t) { return t[0] + at::arange(4, t[0].options()); },
                   1e-12,
                   true};
  expect_law(f, mesh_axes, 200);
}

TEST(DefineOperation, ALinearOneKeepsPartialSums) {
  const auto op =
      define_operation("twice", "*", [](const at::Tensor& x) { return x + x; }, {.linearity = Linearity::additive});
  const Mesh mesh = make_mesh(mesh_axes);
  const Array x = placed(random_tensor({4}, 1), mesh, P{}.unreduced({"x"}));
  CommLedger ledger;
  EXPECT_EQ(op(x).type_string(), "float64[4]{U:x}");
  EXPECT_EQ(ledger.count(), 0);
}

TEST(DefineOperation, TheSameDefinitionIsTheSameOperation) {
  EXPECT_EQ(&detail::interned_operation("mish", "*", Linearity::nonlinear),
            &detail::interned_operation("mish", "*", Linearity::nonlinear));
}

TEST(DefineOperation, WrongDefinitionsAreNamed) {
  const Array x = from_tensor(random_tensor({4, 2}, 1));
  expect_error(ErrorKind::invalid_argument, "has no ->", [&] { define_operation("f", "i j", gated); });
  const std::pair<const char*, const char*> rules[] = {
      {"i j -> k", "the result has \"k\", which no operand has"},
      {"i j -> ... i j", "the result has ..., which no operand has"},
      {"i j -> [i", "\"[i\" is not closed"},
      {"{i j -> i", "a { is not closed"},
      {"i j} -> i", "a } too many"},
      {"i j -> i j -> i j", "it has two arrows"},
      {"i j -> i, j", "it has two results"},
      {"{i j} -> {i j}", "the size of \"i\" does not follow from the shapes"},
      {"i j -> i j=0", "\"j=0\" gives no size"},
      {"i (j) -> i", "\"(j)\" is not a dim"},
      {"... ... -> ...", "an ellipsis may occur once"},
      {"i j, i i -> i", "\"i\" occurs twice in \"i i\". Name each dim once; diagonals are einsum's."},
      {"i {i=2 j} -> j", "\"i\" occurs twice in \"i {i=2 j}\""},
      {"i -> i i", "\"i\" occurs twice in \"i i\""},
  };
  for (const auto& [rule, words] : rules)
    expect_error(ErrorKind::invalid_argument, std::string("[define_operation] f: the rule \"") + rule + "\": " + words,
                 [&] { define_operation("f", rule, gated); });
  for (const char* rule : {"*", "{i=2 j} -> i j", "i, {i j} -> j", "... [i] -> ... n=4", "1 i -> i", " -> "})
    define_operation("readable", rule, gated);
  const auto wrong_shape = define_operation("wrong_shape", "i j -> i", gated);
  expect_error(ErrorKind::shape_mismatch, "the function gave (4, 2), the rule gives (4)", [&] { wrong_shape(x); });
  const auto wrong_type = define_operation("wrong_type", "*", [](const at::Tensor& t) { return t > 0; });
  expect_error(ErrorKind::dtype_mismatch, ".out_dtype", [&] { wrong_type(x); });
  const auto two =
      define_operation("two", "i j, j -> i", [](const at::Tensor& a, const at::Tensor& b) { return a.mv(b); });
  expect_error(ErrorKind::shape_mismatch, "[two]", [&] { two(x, x); });
}

}  // namespace
}  // namespace tessera::testing::define_operation_test
