// value_and_grad: values and gradients compared with LibTorch's autograd, on every mesh, and errors.
#include "nn/transformations/value_and_grad.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "nn/layers/embedding.h"
#include "nn/transformations/accumulate_gradients.h"
#include "sharding/accounting/ledger.h"
#include "sharding/shard_map.h"
#include "tests/nn/transformations/models.h"
#include "tests/sharding/meshes.h"

namespace tessera::nn::value_and_grad_test {
namespace {

using namespace testing;

constexpr double tolerance = 3e-6;

// The gradient of a loss of a model's arrays by LibTorch's autograd on unsharded tensors.
template <class Model, class Loss>
std::pair<at::Tensor, Model> plain_value_and_grad(const Model& model, Loss loss) {
  std::vector<at::Tensor> inputs;
  for (const Leaf& leaf : leaves(model)) inputs.push_back(to_tensor(*leaf.value).clone().requires_grad_());
  const at::Tensor value = loss(inputs);
  const auto grads = torch::autograd::grad({value}, inputs, {}, std::nullopt, false, true);
  Model gradient = model;
  const Leaves all = leaves(gradient);
  for (size_t i = 0; i < all.size(); ++i)
    *all[i].value = from_tensor(grads[i].defined() ? grads[i].contiguous() : at::zeros_like(inputs[i]));
  return {value.detach(), gradient};
}

at::Tensor plain_mlp(const std::vector<at::Tensor>& p, const at::Tensor& x) {
  return at::matmul(at::gelu(at::matmul(x, p[0]) + p[1], "tanh"), p[2]) + p[3];
}

at::Tensor plain_mse(const std::vector<at::Tensor>& p, const Batch& batch) {
  return (plain_mlp(p, to_tensor(batch.x)) - to_tensor(batch.y)).square().mean();
}

TEST(ValueAndGrad, equals_libtorch_on_every_mesh) {
  const Batch batch = make_batch();
  const auto [value, gradient] = plain_value_and_grad(make_mlp(), [&](const auto& p) { return plain_mse(p, batch); });
  const auto [unplaced, unplaced_grads] = nn::value_and_grad(mse)(make_mlp(), batch);
  expect_near(unplaced, from_tensor(value), tolerance, "not placed");
  expect_trees_near(unplaced_grads, gradient, tolerance, "not placed");
  for (const auto& [name, mesh_rules] : strategies()) {
    const Mlp model = filter_shard(make_mlp(), mesh_rules);
    const auto [loss, grads] = nn::value_and_grad(mse)(model, filter_shard(batch, mesh_rules));
    expect_near(loss, from_tensor(value), tolerance, name);
    expect_trees_near(grads, gradient, tolerance, name);
  }
}

TEST(ValueAndGrad, a_gradient_lies_where_its_parameter_lies) {
  for (const auto& [name, mesh_rules] : strategies()) {
    const Mlp model = filter_shard(make_mlp(), mesh_rules);
    const auto [loss, grads] = nn::value_and_grad(mse)(model, filter_shard(make_batch(), mesh_rules));
    const Leaves all = leaves(model), gradients = leaves(grads);
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(gradients[i].value->sharding(), all[i].value->sharding()) << name << ' ' << all[i].path;
      EXPECT_EQ(gradients[i].value->path(), all[i].path) << name;
      EXPECT_EQ(gradients[i].axes->to_string(), all[i].axes->to_string()) << name;
    }
    EXPECT_TRUE(loss.sharding().is_fully_replicated()) << name;
  }
}

TEST(ValueAndGrad, weight_decay_counts_once) {
  const auto decayed = [](const Mlp& model, const Batch& batch) {
    return mse(model, batch) + 0.1 * sum(square(model.up.kernel)) + 0.1 * sum(square(model.down.kernel));
  };
  const Batch batch = make_batch();
  const auto [value, gradient] = plain_value_and_grad(make_mlp(), [&](const auto& p) {
    return plain_mse(p, batch) + 0.1 * p[0].square().sum() + 0.1 * p[2].square().sum();
  });
  for (const auto& [name, mesh_rules] : strategies()) {
    const auto [loss, grads] =
        nn::value_and_grad(decayed)(filter_shard(make_mlp(), mesh_rules), filter_shard(batch, mesh_rules));
    expect_near(loss, from_tensor(value), tolerance, name);
    expect_trees_near(grads, gradient, tolerance, name);
  }
}

TEST(ValueAndGrad, a_tied_head_gets_both_gradients) {
  const Array ids = array<int32_t>({0, 5, 3, 3, 1, 2, 4, 5}, {4, 2}),
              labels = array<int32_t>({5, 3, 3, 0, 2, 4, 5, 1}, {4, 2});
  const Embedding model = Embedding::init(Key(0), {"vocab", 6}, {"embed", 4}, init::normal(1));
  const auto tied = [](const Embedding& m, const Array& in, const Array& out) {
    return cross_entropy(m.attend(m(in)), out);
  };
  const auto [value, gradient] = plain_value_and_grad(model, [&](const auto& p) {
    const at::Tensor logits = at::matmul(p[0].index({to_tensor(ids).to(at::kLong)}), p[0].t());
    return at::cross_entropy_loss(logits.reshape({8, 6}), to_tensor(labels).to(at::kLong).reshape({8}));
  });
  for (const auto& [name, mesh_rules] : strategies()) {
    const Embedding placed = filter_shard(model, mesh_rules);
    const auto [loss, grads] = nn::value_and_grad(tied)(placed, device_put(ids, {"batch", "seq"}, mesh_rules),
                                                        device_put(labels, {"batch", "seq"}, mesh_rules));
    expect_near(loss, from_tensor(value), tolerance, name);
    expect_trees_near(grads, gradient, tolerance, name);
  }
}

TEST(ValueAndGrad, a_bfloat16_copy_of_a_weight_trains_the_weight) {
  const auto half = [](const Mlp& model, const Batch& batch) {
    const Array h = matmul(astype(batch.x, bfloat16), astype(model.up.kernel, bfloat16));
    return mean(astype(square(h), float32));
  };
  const Batch batch = make_batch();
  const auto [value, gradient] = plain_value_and_grad(make_mlp(), [&](const auto& p) {
    return at::matmul(to_tensor(batch.x).to(at::kBFloat16), p[0].to(at::kBFloat16)).square().to(at::kFloat).mean();
  });
  for (const auto& [name, mesh_rules] : strategies()) {
    const auto [loss, grads] =
        nn::value_and_grad(half)(filter_shard(make_mlp(), mesh_rules), filter_shard(batch, mesh_rules));
    EXPECT_EQ(grads.up.kernel.value.dtype(), float32);
    expect_near(loss, from_tensor(value), 2e-2, name);
    expect_trees_near(grads, gradient, 2e-2, name);
  }
}

TEST(ValueAndGrad, aux_comes_back_with_the_loss) {
  struct Aux {
    Array prediction;
    int64_t rows = 0;
  };
  const auto with_aux = [](const Mlp& model, const Batch& batch) {
    const Array prediction = model(batch.x);
    return std::pair(mean(square(prediction - batch.y)), Aux{sum(prediction, {0}), prediction.shape(0)});
  };
  const Batch batch = make_batch();
  const Array expected = sum(make_mlp()(batch.x), {0});
  for (const auto& [name, mesh_rules] : strategies()) {
    const Mlp model = filter_shard(make_mlp(), mesh_rules);
    const auto [result, grads] = nn::value_and_grad(with_aux)(model, filter_shard(batch, mesh_rules));
    const auto& [loss, aux] = result;
    const auto [plain_loss, plain_grads] = nn::value_and_grad(mse)(model, filter_shard(batch, mesh_rules));
    expect_near(loss, plain_loss, 0, name);
    expect_trees_near(grads, plain_grads, tolerance, name);
    expect_near(aux.prediction, expected, tolerance, name);
    EXPECT_EQ(aux.rows, 8);
    EXPECT_FALSE(is_recorded(aux.prediction)) << name;
  }
}

struct Scalar {
  Array x;
};

Array affine_sum(const Array& x, const Linear& layer, const Array& b) { return sum(square(layer(x) + b)); }

TEST(ValueAndGrad, of_arguments_by_their_numbers) {
  const Linear layer = Linear::init(Key(0), {"in", 3}, {"out", 2});
  const Array x = normal(Key(1), {4, 3}), b = normal(Key(2), {2});
  const auto [loss, of_layer] = value_and_grad<1>(affine_sum)(x, layer, b);
  const auto [dx, db] = grad<0, 2>(affine_sum)(x, layer, b);
  const Array residual = 2 * (layer(x) + b);
  expect_near(db, sum(residual, {0}), tolerance, "b");
  expect_near(dx, matmul(residual, transpose(layer.kernel)), tolerance, "x");
  expect_near(of_layer.bias->value, db, tolerance, "bias");
  expect_near(loss, affine_sum(x, layer, b), tolerance, "loss");
  const auto backwards = grad<2, 0>(affine_sum)(x, layer, b);
  expect_near(std::get<0>(backwards), db, tolerance, "in the order of the numbers");
  const auto with_aux = [](const Array& a, const Array& c) { return std::pair(sum(a * c), c); };
  const auto [gradient, aux] = grad<1>(with_aux)(b, b + 1);
  expect_near(gradient, b, tolerance, "with aux");
  expect_near(aux, b + 1, tolerance, "aux");
}

TEST(ValueAndGrad, one_array_may_be_several_arguments) {
  const Array x = normal(Key(1), {4});
  const auto f = [](const Array& a, const Array& b) { return sum(a * b * b); };
  for (const auto& [name, mesh_rules] : strategies()) {
    const Array y = device_put(x, NamedSharding(mesh_rules.mesh(), {}));
    const auto [of_a, of_b] = grad<0, 1>(f)(y, y);
    expect_near(of_a, x * x, tolerance, name);
    expect_near(of_b, 2 * x * x, tolerance, name);
  }
  const auto inner = [&](const Array& w) {  // the sum of w^2 and 2 w^2
    const auto [of_a, of_b] = grad<0, 1>(f)(w, w);
    return sum(of_a + of_b);
  };
  expect_near(grad(inner)(x), 6 * x, tolerance, "a second derivative");
  const auto of_pairs = [&](const std::pair<Array, Array>& p, const Array& b) { return f(p.first, p.second) + sum(b); };
  testing::expect_error_with(ErrorKind::invalid_argument, {"0.0 and 0.1 are one and the same array"},
                             [&] { grad<0, 1>(of_pairs)(std::pair(x, x), x); });
}

TEST(ValueAndGrad, nests_without_mixing) {
  const auto cube = [](const Scalar& s) { return s.x * s.x * s.x; };
  const auto slope_squared = [&](const Scalar& s) {
    const auto [value, gradient] = nn::value_and_grad(cube)(Scalar{stop_gradient(s.x) * 1.0});
    return square(gradient.x) * s.x;  // the inner gradient is a value: d/dx = (3 x^2)^2
  };
  const auto [value, gradient] = nn::value_and_grad(slope_squared)(Scalar{full({}, 2)});
  EXPECT_EQ(value.item<float>(), 12 * 12 * 2);
  EXPECT_EQ(gradient.x.item<float>(), 12 * 12);
}

TEST(ValueAndGrad, an_inner_call_on_the_outer_model_gives_constants_if_asked) {
  const Batch batch = make_batch();
  for (const auto& [name, mesh_rules] : strategies()) {
    const Batch placed = filter_shard(batch, mesh_rules);
    const Mlp model = filter_shard(make_mlp(), mesh_rules);
    const auto [inner_loss, inner_grads] = nn::value_and_grad(mse)(model, placed);
    const auto nested = [](const Mlp& m, const Batch& b) {
      const auto [loss, grads] = nn::value_and_grad(mse, {.differentiable = false})(m, b);
      return mse(m, b) * 2 + sum(grads.up.kernel);
    };
    const auto [loss, grads] = nn::value_and_grad(nested)(model, placed);
    expect_near(loss, inner_loss * 2 + sum(inner_grads.up.kernel), tolerance, name);
    expect_trees_near(grads, tree_map([](const std::string&, const Array& g) { return g * 2; }, inner_grads), tolerance,
                      name);
  }
}

struct Partial {
  Linear used, unused;
  Array steps;
  Param absent;
};

TEST(ValueAndGrad, unused_is_zero_and_what_is_not_floating_is_absent) {
  const auto loss_of = [](const Partial& m, const Batch& batch) { return mean(m.used(batch.x)); };
  for (const auto& [name, mesh_rules] : strategies()) {
    const Partial model = filter_shard(Partial{.used = Linear::init(Key(0), {"embed", 4}, {"hidden", 8}),
                                               .unused = Linear::init(Key(1), {"embed", 4}, {"hidden", 8}),
                                               .steps = zeros({}, int32),
                                               .absent = {}},
                                       mesh_rules);
    const auto [loss, grads] = nn::value_and_grad(loss_of)(model, filter_shard(make_batch(), mesh_rules));
    EXPECT_TRUE(grads.steps.is_absent()) << name;
    EXPECT_TRUE(grads.absent.value.is_absent()) << name;
    EXPECT_EQ(grads.unused.kernel.value.to_host<float>(), std::vector<float>(32, 0)) << name;
    EXPECT_EQ(grads.unused.kernel.value.sharding(), model.unused.kernel.value.sharding()) << name;
    EXPECT_NE(grads.used.kernel.value.to_host<float>(), std::vector<float>(32, 0)) << name;
  }
}

TEST(ValueAndGrad, the_models_own_arrays_are_untouched) {
  for (const auto& [name, mesh_rules] : strategies()) {
    const Mlp model = filter_shard(make_mlp(), mesh_rules);
    const Batch batch = filter_shard(make_batch(), mesh_rules);
    const std::vector<float> before = model.up.kernel.value.to_host<float>();
    const auto [first, grads] = nn::value_and_grad(mse)(model, batch);
    const auto [second, again] = nn::value_and_grad(mse)(model, batch);
    EXPECT_EQ(model.up.kernel.value.to_host<float>(), before) << name;
    EXPECT_EQ(first.item<float>(), second.item<float>()) << name;
    expect_trees_near(again, grads, 0, name);
    for (const Leaf& leaf : leaves(model)) {
      EXPECT_FALSE(is_recorded(*leaf.value)) << name << ' ' << leaf.path;
      EXPECT_EQ(leaf.value->path(), leaf.path) << name;
    }
    for (const Leaf& leaf : leaves(grads)) EXPECT_FALSE(is_recorded(*leaf.value)) << name;
    EXPECT_FALSE(is_recorded(mse(model, batch))) << name;
  }
}

TEST(ValueAndGrad, an_array_converted_before_may_be_used_inside) {
  for (const auto& [name, mesh_rules] : strategies()) {
    const Mlp model = filter_shard(make_mlp(), mesh_rules);
    const Batch batch = filter_shard(make_batch(), mesh_rules);
    const auto [loss, grads] = nn::value_and_grad(mse)(model, batch);
    mse(model, batch).item<float>();  // caches conversions, without a tape
    const auto [second, again] = nn::value_and_grad(mse)(model, batch);
    EXPECT_EQ(loss.item<float>(), second.item<float>()) << name;
    expect_trees_near(again, grads, 0, name);
  }
}

TEST(ValueAndGrad, OfAPairByItsNumber) {
  const Array w = normal(Key(1), {3}), b = normal(Key(2), {3}), x = normal(Key(3), {3});
  const auto loss = [](const std::pair<Array, Array>& line, const Array& x) {
    return sum(line.first * x + square(line.second));
  };
  const auto [value, gradient] = nn::value_and_grad<0>(loss)(std::pair(w, b), x);
  expect_near(gradient.first, x, 1e-6, "w");
  expect_near(gradient.second, 2 * b, 1e-6, "b");
  const auto [again, both] = nn::value_and_grad<0, 1>(loss)(std::pair(w, b), x);
  expect_near(std::get<0>(both).second, 2 * b, 1e-6, "b");
  expect_near(std::get<1>(both), w, 1e-6, "x");
}

// ---- errors ---------------------------------------------------------------------------------------------------------

const auto no_gradient =
    "[value_and_grad] no gradient reaches the model: the loss does not depend on the model that the function received. "
    "Compute it from the argument, not from a captured model.";

TEST(ValueAndGradErrors, a_captured_model) {
  for (const auto& [name, mesh_rules] : strategies()) {
    const Mlp model = filter_shard(make_mlp(), mesh_rules);
    const Batch batch = filter_shard(make_batch(), mesh_rules);
    expect_error(ErrorKind::no_gradient, no_gradient,
                 [&] { nn::value_and_grad([&](const Mlp&) { return mse(model, batch); })(model); });
  }
}

struct Counts {
  Array seen = zeros({3}, int32);
};

TEST(ValueAndGradErrors, a_model_without_parameters) {
  expect_error(ErrorKind::no_gradient,
               "[value_and_grad] the model has no array that can be trained, expected a floating one that is no Buffer "
               "and that no filter took out.",
               [] { nn::value_and_grad([](const Counts& c) { return sum(astype(c.seen, float32)); })(Counts{}); });
}

TEST(ValueAndGradErrors, a_constant_loss) {
  expect_error(ErrorKind::no_gradient, no_gradient,
               [] { nn::value_and_grad([](const Mlp&) { return ones({}); })(make_mlp()); });
}

TEST(ValueAndGradErrors, a_model_in_memory_beside_a_batch_on_an_abstract_mesh) {
  const Mesh mesh = make_mesh({{"data", 4}}, {.abstract = true});
  const Array x = device_put(ones({8, 4}), NamedSharding(mesh, P{"data"}));
  const Param weight{ones({4, 2}), {none, none}};
  expect_error(ErrorKind::device_mismatch,
               "[matmul] the parameter float32[4,2] is not on a mesh, other operands are on the abstract mesh "
               "(data=4), where gradients have no values. Place the model there with filter_shard.",
               [&] { value_and_grad([&](const Param& w) { return mean(matmul(x, w.value)); })(weight); });
}

TEST(ValueAndGradErrors, a_loss_that_is_no_floating_scalar) {
  testing::expect_error_with(
      ErrorKind::shape_mismatch, {"[value_and_grad]", "float32[8,4]", "expected a floating scalar"}, [] {
        nn::value_and_grad([](const Mlp& m, const Batch& b) { return square(m(b.x)); })(make_mlp(), make_batch());
      });
}

std::vector<std::string> unplaced_in(const CommLedger& ledger) {
  std::vector<std::string> all;
  for (const UnplacedArray& x : ledger.unplaced()) all.push_back(x.path + ' ' + x.type);
  return all;
}

TEST(ValueAndGrad, what_was_never_placed_beside_a_mesh_is_in_the_ledger) {
  const MeshRules mesh_rules{make_mesh({{"data", 4}, {"model", 2}}),
                             {{"batch", "data"}, {"hidden", "model"}, {"embed", replicated}}};
  const Mlp model = filter_shard(make_mlp(), mesh_rules);
  const Batch batch = filter_shard(make_batch(), mesh_rules);
  const CommLedger ledger;
  nn::value_and_grad(mse)(model, batch);
  EXPECT_EQ(unplaced_in(ledger), std::vector<std::string>());
  EXPECT_EQ(ledger.to_text().find("never placed"), std::string::npos) << ledger.to_text();

  const auto line = std::source_location::current().line() + 2;
  for (int step = 0; step < 2; ++step)  // reported once per line
    nn::value_and_grad(mse)(model, make_batch());
  EXPECT_EQ(unplaced_in(ledger), (std::vector<std::string>{"Batch.x float32[8,4]", "Batch.y float32[8,4]"}));
  const std::string words = fmt::format(
      "never placed, so each device computes with all of it: Batch.x float32[8,4], Batch.y float32[8,4] "
      "(value_and_grad_test.cpp:{})\n",
      line);
  EXPECT_TRUE(ledger.to_text().ends_with(words)) << ledger.to_text();
  EXPECT_TRUE(ledger.to_text_by_line().ends_with(words)) << ledger.to_text_by_line();
  EXPECT_NE(ledger.to_json().find(R"("unplaced":[{"path":"Batch.x","type":"float32[8,4]","file")"), std::string::npos);
}

TEST(ValueAndGrad, a_model_and_single_arrays_that_were_never_placed_are_named_too) {
  const MeshRules mesh_rules{make_mesh({{"data", 8}}), {{"batch", "data"}}};
  const Batch batch = filter_shard(make_batch(), mesh_rules);
  const Array scales = ones({4}), number = ones({});
  const auto scaled = [](const Mlp& model, const Batch& batch, const Array& scales, const Array& number,
                         const std::vector<Array>& more,
                         int power) { return mse(model, batch) + sum(scales * more[0]) * number + power; };
  CommLedger ledger;
  nn::value_and_grad(scaled)(make_mlp(), batch, scales, number, std::vector{scales}, 2);
  EXPECT_EQ(unplaced_in(ledger), (std::vector<std::string>{"Mlp.up.kernel float32[4,8]", "Mlp.up.bias float32[8]",
                                                           "Mlp.down.kernel float32[8,4]", "Mlp.down.bias float32[4]",
                                                           "argument 3 float32[4]", "argument 5.0 float32[4]"}));
  EXPECT_NE(ledger.to_text().find("Mlp.down.kernel float32[8,4] and 3 more ("), std::string::npos) << ledger.to_text();
  ledger.clear();
  nn::value_and_grad(mse)(make_mlp(), make_batch());  // no array is on a mesh
  EXPECT_EQ(unplaced_in(ledger), std::vector<std::string>());
}

// ---- gradients of gradients

TEST(ValueAndGrad, a_gradient_inside_is_differentiated_too) {
  const auto cube = [](const Array& x) { return sum(x * x * x); };
  const Array x = array<float>({1, -2, 3});
  const auto slopes = [&](const Array& x) { return sum(nn::grad(cube)(x)); };
  EXPECT_EQ(nn::grad(slopes)(x).to_host<float>(), (std::vector<float>{6, -12, 18}));
  const auto beside = [&](const Array& x) { return sum(x) + slopes(x); };
  EXPECT_EQ(nn::grad(beside)(x).to_host<float>(), (std::vector<float>{7, -11, 19}));
  const auto constant = [&](const Array& x) { return sum(x) + sum(nn::grad(cube, {.differentiable = false})(x)); };
  EXPECT_EQ(nn::grad(constant)(x).to_host<float>(), (std::vector<float>{1, 1, 1}));
}

// A penalty on the gradient with respect to the data. Its derivative reaches the parameters that the inner function
// captures.
TEST(ValueAndGrad, a_gradient_of_the_data_is_differentiated_by_the_model) {
  const MeshRules mesh_rules{make_mesh({{"data", 4}, {"model", 2}}), {{"in", replicated}, {"out", "model"}}};
  const Array w = array<float>({1, 2, -1, 3}), x = array<float>({0.5, -0.25, 1, 2});
  for (const Array& placed : {w, device_put(w, NamedSharding(mesh_rules.mesh(), P{"model"}))}) {
    const auto penalty = [&](const Array& w) {
      return sum(square(nn::grad([&](const Array& x) { return sum(x * x * w); })(x)));  // the inner gradient is 2 x w
    };
    EXPECT_EQ(nn::grad(penalty)(placed).to_host<float>(), (8 * x * x * w).to_host<float>());
  }
}

// A step of meta-learning: the inner gradient is taken with respect to views, scalings and casts of a parameter.
TEST(ValueAndGrad, a_gradient_inside_is_of_what_was_made_from_a_parameter) {
  for (const Mesh& mesh : tessera::testing::shared_and_private({{"a", 2}}))
    for (const PartitionSpec& spec : {P{}, P{"a"}}) {
      const Array w = device_put(ones({4, 4}, float64), NamedSharding(mesh, spec));
      const Array x = device_put(ones({4, 4}, float64), NamedSharding(mesh, P{"a"}));
      const auto after_a_step = [&](const auto& of) {
        return nn::grad([&](const Array& w) {
                 const Array made = of(w);
                 const auto loss = [&](const Array& z) { return mean(square(matmul(x, z))); };
                 return sum(square(made - 0.1 * nn::grad(loss)(made)));
               })(w)
            .template to_host<double>()[0];
      };
      const double direct = after_a_step([](const Array& w) { return w; });
      EXPECT_NEAR(after_a_step([](const Array& w) { return transpose(w); }), direct, 1e-12) << spec;
      EXPECT_NEAR(after_a_step([](const Array& w) { return w * 2; }), 4 * direct, 1e-12) << spec;
      EXPECT_NEAR(after_a_step([](const Array& w) { return astype(astype(w, float32), float64); }), direct, 1e-6)
          << spec;
      const auto summed = shard_map(
          [](const Array& x) { return nn::grad([](const Array& z) { return sum(square(psum(z, "a"))); })(x); }, mesh,
          P{}, P{});
      const auto twice = [&](const Array& w) { return sum(square(summed(transpose(w)))); };
      // psum of two equal values: the gradient of (2 z)^2 is 8 z, the gradient of (8 z)^2 is 128 z.
      EXPECT_EQ(nn::grad(twice)(w).to_host<double>(), std::vector<double>(16, 128)) << spec;
    }
}

// ---- a parameter that was never placed, used with arrays on a mesh and alone

TEST(ValueAndGrad, an_unplaced_parameter_is_added_up_once_however_gradients_stay_apart) {
  struct Model {
    Param w;
  };
  const Model model{{array<double>({1, 2, 3, 4})}};
  const std::vector<double> expected{3, 5, 7, 9};
  const auto first = [](const Model& m, const Array& x) { return mean(matmul(x, m.w)) + sum(square(m.w)); };
  const auto last = [](const Model& m, const Array& x) { return sum(square(m.w)) + mean(matmul(x, m.w)); };
  for (const Mesh& mesh : tessera::testing::shared_and_private({{"a", 8}})) {
    const Array x = device_put(ones({16, 4}, float64), NamedSharding(mesh, P{"a"}));
    const auto expect = [&](const auto& loss) {
      for (const GradientOptions& options :
           std::vector<GradientOptions>{{}, {.reduce = false}, {.shard_gradients_over = {"a"}}}) {
        const auto grads = [&](const auto& call) {
          return reduce_partial_sum(call(model, x).second.w.value).template to_host<double>();
        };
        EXPECT_EQ(grads(nn::value_and_grad(loss, options)), expected);
        for (const int n : {1, 2}) EXPECT_EQ(grads(nn::accumulate_gradients(loss, n, options)), expected) << n;
      }
    };
    expect(first);
    expect(last);
  }
}

TEST(ValueAndGrad, an_unplaced_parameter_has_second_derivatives) {
  const Array w = array<double>({1, 2});
  for (const Mesh& mesh : tessera::testing::shared_and_private({{"a", 2}}))
    for (const bool is_first : {true, false}) {
      const Array x = device_put(array<double>({1, 2, 3, 4}, {4, 1}), NamedSharding(mesh, P{"a"}));
      // d/dz (sum(z^3) + sum((x z)^2)) = 3 z^2 + 2 z sum(x^2), whose sum has the derivative 6 w + 60.
      const auto inner = [&](const Array& z) {
        const Array alone = sum(power(z, 3)), with = sum(square(x * z));
        return is_first ? alone + with : with + alone;
      };
      const auto slopes = [&](const Array& w) { return sum(nn::grad(inner)(w)); };
      EXPECT_EQ(nn::grad(slopes)(w).to_host<double>(), (std::vector<double>{66, 72}));
    }
}

}  // namespace
}  // namespace tessera::nn::value_and_grad_test
