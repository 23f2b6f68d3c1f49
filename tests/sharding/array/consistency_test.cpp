// TESSERA_CHECK: violated invariants are detected, and correct programs pass.
#include <ATen/ops/rand.h>

#include "sharding/base/environment.h"
#include "sharding/propagation/run.h"
#include "tests/sharding/expect_error.h"
#include "tests/sharding/law.h"

namespace tessera::consistency_test {
namespace {

using namespace tessera::testing;
using detail::CheckScope;

// float32[4@a,2] on 2 x 2 devices with private replicas: two copies of each block.
Array with_replicas(const std::vector<at::Tensor>& locals) {
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}}, {.private_replicas = true});
  const detail::Type* type = detail::placed_type(DType::float32, {4, 2}, NamedSharding(mesh, P{"a"}));
  detail::Tensors tensors(locals.begin(), locals.end());
  return Array(detail::make_array(type, mesh.impl()->all(), std::move(tensors)));
}

TEST(Check, ReplicasThatDifferAreFoundAtTheNextUse) {
  const at::Tensor x = at::rand({2, 2}), y = at::rand({2, 2});
  at::Tensor other = y.clone();
  other[1][0].add_(1e-6);
  const Array whole = with_replicas({x, x.clone(), y, y.clone()}), torn = with_replicas({x, x.clone(), y, other});
  EXPECT_NO_THROW(exp(torn));
  const CheckScope checking;
  EXPECT_NO_THROW(exp(whole));
  expect_error(ErrorKind::inconsistent,
               "[exp] float32[4@a,2]: devices 2 and 3 hold different values of the same block (checksums ",
               [&] { exp(torn); });
  expect_error(ErrorKind::inconsistent, "[to_tensor] float32[4@a,2]: devices 2 and 3", [&] { to_tensor(torn); });
  {
    const CheckScope not_checking(false);
    EXPECT_NO_THROW(exp(torn));
  }
}

TEST(Check, AParameterIsNamedByItsPath) {
  const Mesh mesh = make_mesh({{"a", 2}}, {.private_replicas = true});
  const Array w = place_parameter(ones({2}), NamedSharding(mesh, P{}), "layers.0.scale");
  w.impl()->local[1].zero_();
  const CheckScope checking;
  expect_error(ErrorKind::inconsistent, "[mul] layers.0.scale: float32[2]: devices 0 and 1 hold different values",
               [&] { w* w; });
}

TEST(Check, TensorsThatAreNotWhatTheTypeSays) {
  const at::Tensor x = at::rand({2, 2});
  const CheckScope checking;
  expect_error(ErrorKind::inconsistent, "has 3 local tensors, expected 4.", [&] { exp(with_replicas({x, x, x})); });
  expect_error(ErrorKind::inconsistent, "has a local tensor Float(2, 3), expected float32(2, 2).", [&] {
    exp(with_replicas({x, x, x, at::rand({2, 3})}));
  });
  expect_error(ErrorKind::inconsistent, "has a local tensor Double(2, 2), expected float32(2, 2).", [&] {
    exp(with_replicas({x, x, x, x.to(at::kDouble)}));
  });
}

TEST(Check, APartialSumIsNeverReadAsAValue) {
  using namespace detail;
  const Mesh mesh = make_mesh({{"a", 2}, {"b", 2}});
  const Type* value = placed_type(DType::float32, {4}, NamedSharding(mesh, P{}));
  const Type *over_a = with_unreduced(value, 1), *over_b = with_unreduced(value, 2);
  static const Operation nonlinear{"test_nonlinear", "*"}, additive{"test_additive", "*", Linearity::additive},
      multilinear{"test_multilinear", "*", Linearity::multilinear},
      first{"test_first", "*", Linearity::linear_in_first};
  const auto passes = [](const Operation& op, std::vector<const Type*> types) {
    EXPECT_NO_THROW(check_operands(op, types)) << op.name;
  };
  const auto is_found = [](const Operation& op, std::vector<const Type*> types) {
    expect_error(ErrorKind::inconsistent, "is a partial sum, which this operation would read as a value",
                 [&] { check_operands(op, types); });
  };
  passes(nonlinear, {value, value}), is_found(nonlinear, {over_a}), is_found(nonlinear, {value, over_b});
  passes(additive, {over_a, over_a}), is_found(additive, {over_a, value}), is_found(additive, {over_a, over_b});
  passes(multilinear, {over_a, over_b}), is_found(multilinear, {over_a, over_a});
  passes(first, {over_a, value}), is_found(first, {value, over_a});
}

// A complete step with private replicas and all checks.
TEST(Check, AStepPasses) {
  const CheckScope checking;
  for (const Mesh mesh : shared_and_private({{"a", 2}, {"b", 2}})) {
    const Array x = placed(random_tensor({8, 4}, 1), mesh, P{"a"}),
                w = placed(random_tensor({4, 4}, 2), mesh, P{"a", "b"});
    Tape tape({w});
    const Array y = matmul(x, tape.shadows()[0]);
    const Array loss = mean(square(softmax(y) + layer_norm(y, ones({4}), zeros({4}))));
    EXPECT_EQ(tape.gradients(loss)[0].type_string(), w.type_string());
  }
}

}  // namespace
}  // namespace tessera::consistency_test
