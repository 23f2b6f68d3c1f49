// Partition, accumulate, apply_if_finite, injected hyperparameters, Muon's distribution, errors, losses.
#include "optim/wrappers/wrappers.h"

#include <fstream>
#include <functional>
#include <iterator>
#include <map>

#include "nn/transformations/value_and_grad.h"
#include "nn/tree/filter.h"
#include "nn/tree/tree_scalars.h"
#include "optim/formulas/muon.h"
#include "optim/optimizer/contrib.h"
#include "optim/schedules/losses.h"
#include "sharding/accounting/forecast.h"
#include "tests/optim/own_optimizer.h"
#include "tests/optim/support.h"

namespace tessera::optim::wrappers_test {
namespace {

using Tree = std::map<std::string, Array>;

Tree some_params() { return {{"b", array<float>({1, -2})}, {"w", array<float>({1, 2, 3, 4}, {2, 2})}}; }
std::string message(const std::function<void()>& f) { return error_of(ErrorKind::invalid_argument, f); }

template <class Tx>
Tree after(const Tx& tx, int steps, Tree params = some_params()) {
  Optimizer optimizer(params, tx);
  for (int i = 0; i < steps; ++i) optimizer.update(params, Tree(params));
  return params;
}

TEST(Partition, EachPartIsItsOptimizers) {
  const auto tx = partition(by_dims, "matrix", adam({.learning_rate = 0.1}), "vector", sgd({.learning_rate = 0.5}));
  const Tree both = after(tx, 2), adams = after(adam({.learning_rate = 0.1}), 2),
             sgds = after(sgd({.learning_rate = 0.5}), 2);
  expect_near(both.at("w"), host(adams.at("w")), 1e-6);
  expect_near(both.at("b"), host(sgds.at("b")), 1e-6);
  auto state = tx.init(some_params());
  const nn::Leaves all = nn::leaves(state);
  EXPECT_EQ(all[1].path, "matrix.0.mu.w");
  EXPECT_TRUE(all[0].value->is_absent());  // matrix.0.mu.b
}

TEST(Partition, FiltersAreLabelsToo) {
  const auto tx = partition(
      Labels{{"frozen", nn::Filter([](const std::string& path, const Array&) { return path == "b"; })}, {"rest", {}}},
      "rest", sgd({.learning_rate = 0.5}), "frozen", set_to_zero());
  const Tree got = after(tx, 1);
  expect_near(got.at("b"), {1, -2}, 0);
  expect_near(got.at("w"), {.5, 1, 1.5, 2}, 1e-6);
  expect_near(after(selective_transform(sgd({.learning_rate = 0.5}), matrices_only), 1).at("w"), {1, 2, 3, 4}, 0);
}

TEST(Partition, UnknownLabelsAreErrors) {
  EXPECT_EQ(
      message([] { partition(by_dims, "matrix", identity(), "rest", identity()).init(some_params()); }),
      "[partition] b: its label is \"vector\", expected one of the transforms' (matrix, rest). Add a transform of "
      "this label; set_to_zero() leaves its parameters as they are.");
  EXPECT_EQ(message([] { partition(by_dims, "a", identity(), "a", identity()); }),
            "[partition] \"a\" given twice, expected each name once.");
  EXPECT_EQ(message([] {
              partition(Labels{{"m", matrices_only}}, "m", identity()).init(some_params());
            }),
            "[partition] b: none of the filters (m) takes it. Add a last one that takes all: {\"rest\", {}}.");
  EXPECT_EQ(message([] { named_chain("a", identity(), "a", identity()); }),
            "[named_chain] \"a\" given twice, expected each name once.");
}

TEST(Accumulate, EqualsOneUpdateOfTheMean) {
  Tree a = some_params(), b = some_params();
  Optimizer every(a, accumulate(adamw({.learning_rate = 0.1}), 3));
  Optimizer once(b, adamw({.learning_rate = 0.1}));
  const Tree g1 = some_params(), g2 = after(sgd({.learning_rate = 0.5}), 1), g3 = after(sgd({.learning_rate = 2}), 1);
  every.update(a, g1), every.update(a, g2);
  expect_tree_near(a, some_params(), 0);
  EXPECT_EQ(every.state().gradient_step, 0);
  every.update(a, g3);
  Tree mean = g1;
  for (auto& [name, g] : mean) g = (g + g2.at(name) + g3.at(name)) / 3.0;
  once.update(b, mean);
  expect_tree_near(a, b, 1e-6);
  EXPECT_EQ(every.state().gradient_step, 1);
  EXPECT_EQ(every.state().mini_step, 0);
}

// A frozen parameter has no gradient: it gets no weight decay and no momentum.
TEST(Accumulate, ParametersWithoutAnyGradientStay) {
  Tree params = some_params(), other = params;
  const Tree of_w{{"b", Array()}, {"w", params.at("w")}};
  Optimizer two(params, accumulate(adamw({.learning_rate = 0.1, .weight_decay = 0.5}), 2));
  Optimizer one(other, adamw({.learning_rate = 0.1, .weight_decay = 0.5}));
  for (int i = 0; i < 4; ++i) two.update(params, of_w);
  for (int i = 0; i < 2; ++i) one.update(other, of_w);
  expect_near(params.at("b"), {1, -2}, 0);
  expect_tree_near(params, other, 1e-6);
}

// A loss that does not depend on the parameter has gradient 0.
TEST(Accumulate, GradientsAbsentAmongOthersAreZeros) {
  const Tree none{{"b", Array()}, {"w", array<float>({4, 4, 4, 4}, {2, 2})}};
  const Tree both{{"b", array<float>({3, 6})}, {"w", array<float>({4, 4, 4, 4}, {2, 2})}};
  for (const bool use_grad_mean : {true, false})
    for (int with = 0; with < 3; ++with) {
      Tree params = some_params();
      Optimizer optimizer(params, accumulate(sgd({.learning_rate = 1}), 3, {.use_grad_mean = use_grad_mean}));
      for (int i = 0; i < 3; ++i) optimizer.update(params, i == with ? both : none);
      const float n = use_grad_mean ? 3 : 1;
      expect_near(params.at("b"), {1 - 3 / n, -2 - 6 / n}, 1e-6);
      EXPECT_EQ(optimizer.state().grad_counts, (std::vector<int64_t>{0, 0}));
    }
}

TEST(Accumulate, AStateOfAnotherModelIsRefused) {
  const auto tx = accumulate(sgd({.learning_rate = 1}), 3);
  auto state = tx.init(some_params());
  state.grad_counts = {1};
  EXPECT_EQ(message([&] { tx.update(some_params(), state, some_params()); }),
            "[accumulate] the state counts the gradients of 1 arrays, expected 2, as many as the model has. Make a new "
            "state.");
}

// Data parallel: nothing is communicated until the boundary, where all gradients are reduced once.
TEST(Accumulate, PartialSumsAreReducedAtTheBoundary) {
  const MeshRules mesh_rules{make_mesh({{"data", 4}}),
                             {{"in", replicated}, {"out", replicated}, {"vocab", replicated}}};
  Toy model = nn::filter_shard(Toy::init(1), mesh_rules), plain = model;
  const auto tx = sgd({.learning_rate = 0.1});
  Optimizer optimizer(model, accumulate(tx, 2)), reference(plain, accumulate(tx, 2));
  const NamedSharding rows(mesh_rules.mesh(), P{"data"});
  CommLedger ledger;
  for (uint32_t step = 0; step < 2; ++step) {
    const Array x = device_put(normal(Key(step), {8, 8}), rows);
    auto grads = nn::value_and_grad(toy_loss, {.reduce = false})(model, x).second;
    const size_t before = ledger.records().size();
    optimizer.update(model, grads);
    EXPECT_EQ(ledger.records().size() - before, step == 0 ? 0u : 1u);
  }
  for (uint32_t step = 0; step < 2; ++step) {
    const Array x = device_put(normal(Key(step), {8, 8}), rows);
    reference.update(plain, nn::value_and_grad(toy_loss)(plain, x).second);
  }
  expect_tree_near(model, plain, 1e-6);
}

TEST(ApplyIfFinite, SkipsAndThenGivesIn) {
  Tree params{{"p", array<float>({1, 2})}};
  Optimizer optimizer(params, apply_if_finite(sgd({.learning_rate = 1}), 2));
  const Tree bad{{"p", array<float>({NAN, 1})}}, good{{"p", array<float>({1, 1})}};
  optimizer.update(params, bad);
  optimizer.update(params, bad);
  expect_near(params.at("p"), {1, 2}, 0);
  EXPECT_EQ(optimizer.state().notfinite_count, 2);
  optimizer.update(params, good);
  expect_near(params.at("p"), {0, 1}, 0);
  EXPECT_EQ(optimizer.state().notfinite_count, 0);
  EXPECT_EQ(optimizer.state().total_notfinite, 2);
  for (int i = 0; i < 3; ++i) optimizer.update(params, bad);
  EXPECT_TRUE(std::isnan(host(params.at("p"))[0]));
}

TEST(ApplyIfFinite, OneShardWithANanStopsAll) {
  on_all_meshes([](const Case&, const MeshRules& mesh_rules) {
    Toy model = nn::filter_shard(Toy::init(1), mesh_rules), before = model, grads = model;
    std::vector<float> values(8 * 16, 1);
    values.back() = INFINITY;
    grads.kernel.value = device_put(array<float>(values, {8, 16}), model.kernel.value.sharding());
    Optimizer optimizer(model, apply_if_finite(sgd({.learning_rate = 1}), 5));
    optimizer.update(model, grads);
    expect_tree_near(model, before, 0);
    EXPECT_FALSE(optimizer.state().last_finite);
  });
}

TEST(Lookahead, MovesTheSlowWeightsEveryKUpdates) {
  Tree params{{"p", array<float>({1})}};
  const Tree g{{"p", array<float>({1})}};
  Optimizer optimizer(params, lookahead(sgd({.learning_rate = 1}), 2, 0.5));
  optimizer.update(params, g);
  expect_near(params.at("p"), {0}, 1e-6);
  optimizer.update(params, g);
  expect_near(params.at("p"), {0}, 1e-6);  // 1 + 0.5 (-1 - 1)
  expect_near(optimizer.state().slow.at("p"), {0}, 1e-6);
}

// Resetting the state also resets its count, and therefore the schedule.
TEST(Lookahead, AStateThatIsResetCountsFromZero) {
  Tree params{{"p", array<float>({0})}};
  const Tree g{{"p", array<float>({1})}};
  const Schedule rate = [](int64_t count) { return count == 0 ? 1.0 : 10.0; };
  Optimizer optimizer(params, lookahead(sgd({.learning_rate = rate}), 2, 1, true));
  for (const float expected : {-1, -11, -12, -22}) {
    optimizer.update(params, g);
    expect_near(params.at("p"), {expected}, 1e-5);
  }
}

TEST(ParamsEma, AveragesWhatTheParametersBecome) {
  Tree params{{"p", array<float>({1})}};
  Optimizer optimizer(params, chain(sgd({.learning_rate = 1}), params_ema(0.5)));
  optimizer.update(params, Tree{{"p", array<float>({1})}});
  expect_near(params.at("p"), {0}, 1e-6);
  expect_near(std::get<2>(optimizer.state()).ema.at("p"), {0.5}, 1e-6);
}

struct WithStatistics {
  nn::Param kernel;
  nn::Buffer mean;
  Array steps;
};

TEST(ParamsEma, GivesAWholeModelWithTheBuffersOfTheTrainedOne) {
  WithStatistics model{
      .kernel = {array<float>({1}), {none}}, .mean = {array<float>({2}), {none}}, .steps = array<int32_t>({3})};
  Optimizer optimizer(model, chain(sgd({.learning_rate = 1}), params_ema(0.5)));
  model.mean.value = array<float>({5});
  optimizer.update(model, {.kernel = {array<float>({1}), {none}}, .mean = {}, .steps = {}});
  const auto whole = nn::combine(std::get<ParamsEmaState<WithStatistics>>(optimizer.state()).ema, model);
  expect_near(whole.kernel.value, {0.5}, 1e-6);
  expect_near(whole.mean.value, {5}, 0);
  EXPECT_EQ(whole.steps.item<int32_t>(), 3);
}

TEST(InjectHyperparams, NumbersAreReadAndChanged) {
  Tree params{{"p", array<float>({0})}};
  const Tree g{{"p", array<float>({1})}};
  Optimizer optimizer(
      params, inject_hyperparams([](const Hyperparams& h) { return chain(scale(-h["rate"]), scale(h["factor"])); },
                                 {{"rate", 0.5}, {"factor", [](int64_t count) { return 1.0 + count; }}}));
  EXPECT_EQ(optimizer.state().hyperparams["rate"], 0.5);
  optimizer.update(params, g);
  expect_near(params.at("p"), {-0.5}, 1e-6);
  optimizer.state().hyperparams["rate"] = 0.25;
  optimizer.update(params, g);
  expect_near(params.at("p"), {-1}, 1e-6);
  EXPECT_EQ(optimizer.state().hyperparams["factor"], 2);
  EXPECT_EQ(message([&] { optimizer.state().hyperparams["lr"] = 1; }),
            "[inject_hyperparams] \"lr\" given, expected one of the hyperparameters (factor, rate).");
}

TEST(ReduceOnPlateau, FallsWhereTheLossStays) {
  Tree params{{"p", array<float>({0})}};
  const Tree g{{"p", array<float>({1})}};
  Optimizer optimizer(params, chain(sgd({.learning_rate = 1}), reduce_on_plateau({.factor = 0.5, .patience = 2})));
  EXPECT_EQ(message([&] { optimizer.update(params, g); }),
            "[reduce_on_plateau] no value given, expected the loss: optimizer.update(model, grads, {.value = loss}).");
  expect_near(params.at("p"), {0}, 0);
  for (const double loss : {3.0, 3.0, 3.0}) optimizer.update(params, g, {.value = loss});
  EXPECT_EQ(std::get<2>(optimizer.state()).scale, 0.5);
  expect_near(params.at("p"), {-2.5}, 1e-6);
}

// Eight matrices on eight devices: each device computes one eighth of the FLOPs of a single device.
TEST(Muon, DifferentMatricesGoToDifferentDevices) {
  const auto flops_of = [](int64_t devices) {
    const Mesh mesh = make_mesh({{"data", devices}}, {.abstract = true});
    std::vector<Array> model, grads;
    for (int i = 0; i < 8; ++i) {
      model.push_back(device_put(zeros({64, 64}), NamedSharding(mesh, P{"data"})));
      grads.push_back(model.back());
    }
    const auto tx = scale_by_muon();
    const auto state = tx.init(model);
    Forecast forecast;
    tx.update(grads, state, model);
    return forecast.flops();
  };
  EXPECT_GT(flops_of(1), 0);
  EXPECT_DOUBLE_EQ(flops_of(8) * 8, flops_of(1));
}

TEST(Muon, MatricesAreExchangedNotGathered) {
  const Mesh mesh = make_mesh({{"data", 4}});
  std::vector<Array> model;
  for (int i = 0; i < 4; ++i) model.push_back(device_put(normal(Key(i), {16, 8}), NamedSharding(mesh, P{"data"})));
  const auto tx = scale_by_muon();
  const auto state = tx.init(model);
  CommLedger ledger;
  tx.update(model, state, model);
  ASSERT_EQ(ledger.records().size(), 2u) << ledger.to_text();
  for (const auto& record : ledger.records()) EXPECT_EQ(record.kind, "all_to_all");
  const std::vector<Array> vectors{zeros({2})};
  EXPECT_NE(error_of(ErrorKind::shape_mismatch, [&] { tx.update(vectors, tx.init(vectors), vectors); })
                .find("expected two dims"),
            std::string::npos);
}

// Kernels of experts: matrices that are sharded over experts only are not communicated.
TEST(Muon, StacksOfMatricesStayWithTheirExperts) {
  const Mesh mesh = make_mesh({{"expert", 2}, {"data", 2}});
  const auto tx = scale_by_muon({.eps = 0, .weight_dimension_numbers = stacked_matrices});
  const auto updated = [&](const Array& x) {
    const std::vector<Array> stack{x};
    return tx.update(stack, tx.init(stack), stack).first[0];
  };
  const auto collectives = [&](const Array& x, const PartitionSpec& spec) {
    const Array placed = device_put(x, NamedSharding(mesh, spec));
    CommLedger ledger;
    expect_near(updated(placed), host(updated(x)), 1e-5, spec.to_string());
    std::vector<std::string> kinds;
    for (const auto& record : ledger.records()) kinds.push_back(record.kind);
    return kinds;
  };
  using Kinds = std::vector<std::string>;
  const Array even = normal(Key(1), {4, 8, 6}), odd = normal(Key(2), {3, 6, 8});
  EXPECT_EQ(collectives(even, P{"expert"}), Kinds());
  EXPECT_EQ(collectives(even, P{"expert", "data"}), (Kinds{"all_to_all", "all_to_all"}));
  EXPECT_EQ(collectives(odd, P{none, none, "data"}), (Kinds{"all_gather"}));
  EXPECT_EQ(collectives(odd, P{none, "expert", "data"}).size(), 2);
  expect_near(updated(even).index({2}), host(updated(even.index({2}))), 1e-5);
  const MeshRules padding{mesh, {{"experts", "expert", Uneven::pad}, {"in", "data"}}};
  const Array padded = updated(device_put(odd, {"experts", "in", none}, padding));
  expect_near(sum(padded, {0}), host(sum(updated(odd), {0})), 1e-5);
}

TEST(Muon, DimensionNumbersThatDoNotFitAreErrors) {
  const auto update = [](MuonDimensionNumbers numbers) {
    const std::vector<Array> stack{zeros({2, 3, 4})};
    const auto tx =
        scale_by_muon({.weight_dimension_numbers = [=](const std::string&, const nn::Leaf&) { return numbers; }});
    tx.update(stack, tx.init(stack), stack);
  };
  for (const MuonDimensionNumbers& wrong : {MuonDimensionNumbers{0, 3}, {1, -2}, {Dims{0, 1, 0}, 2}, {-4, 1}})
    EXPECT_NE(message([&] { update(wrong); }).find("expected each of -3 to 2 of float32[2,3,4] at most once"),
              std::string::npos);
}

TEST(Options, WrongOnesAreErrorsWhereTheyAreGiven) {
  EXPECT_EQ(message([] { adamw({.learning_rate = NAN}); }), "[adamw] learning_rate: nan given, expected a number.");
  EXPECT_EQ(message([] { adam({.learning_rate = 0.1, .b1 = 1}); }), "[adam] b1: 1 given, expected 0 <= b1 < 1.");
  EXPECT_EQ(message([] { lion({.learning_rate = 0.1, .b2 = -0.1}); }), "[lion] b2: -0.1 given, expected 0 <= b2 < 1.");
  EXPECT_EQ(message([] { adam({.learning_rate = 0.1, .eps = -1}); }), "[adam] eps: -1 given, expected eps >= 0.");
  EXPECT_EQ(message([] { adamw({.learning_rate = 0.1, .weight_decay = NAN}); }),
            "[adamw] weight_decay: nan given, expected a number.");
  EXPECT_EQ(message([] { accumulate(identity(), 0); }), "[accumulate] every_k: 0 given, expected at least 1.");
  EXPECT_EQ(message([] { linear_schedule({.init_value = 1, .end_value = 0}); }),
            "[linear_schedule] transition_steps: 0 given, expected at least 1.");
  EXPECT_EQ(message([] { cosine_decay_schedule({.decay_steps = 10}); }),
            "[cosine_decay_schedule] no init_value given, expected a number.");
  EXPECT_EQ(message([] {
              join_schedules({1.0, 2.0}, {5, 7});
            }),
            "[join_schedules] 2 schedules and 2 boundaries given, expected one schedule more than boundaries.");
  EXPECT_EQ(message([] { muon({.learning_rate = 0.1, .ns_coeffs = {}}); }),
            "[muon] ns_coeffs: 0 triples given, expected one, or at least ns_steps = 5.");
}

TEST(Options, AScheduleThatIsNoNumberChangesNothing) {
  Tree params = some_params();
  Optimizer optimizer(params, adamw({.learning_rate = [](int64_t count) { return count == 1 ? NAN : 0.1; }}));
  optimizer.update(params, some_params());
  const Tree before = params;
  const std::vector<float> mu = host(std::get<0>(optimizer.state()).mu.at("w"));
  EXPECT_EQ(message([&] { optimizer.update(params, some_params()); }),
            "[scale_by_learning_rate] learning_rate: the schedule is nan at count 1, expected a number. Nothing was "
            "updated.");
  expect_tree_near(params, before, 0);
  EXPECT_EQ(host(std::get<0>(optimizer.state()).mu.at("w")), mu);
  EXPECT_EQ(optimizer.count(), 1);
}

TEST(Options, AModelOnAnotherMeshIsAnError) {
  const Mesh one = make_mesh({{"data", 2}}), other = make_mesh({{"rows", 2}});
  Tree params{{"p", device_put(ones({4}), NamedSharding(one, P{"data"}))}};
  Optimizer optimizer(params, adam({.learning_rate = 0.1}));
  Tree moved{{"p", device_put(ones({4}), NamedSharding(other, P{"rows"}))}};
  const std::string words = error_of(ErrorKind::device_mismatch, [&] { optimizer.update(moved, Tree(moved)); });
  EXPECT_TRUE(words.starts_with("[Optimizer.update] state.0.mu.p: the state is on ")) << words;
}

TEST(OwnOptimizer, LearnsAndIsInTheDocumentation) {
  Tree params{{"p", array<float>({1, -1})}};
  Optimizer optimizer(params, own::tiger(0.5, 0));
  optimizer.update(params, Tree{{"p", array<float>({3, -2})}});
  expect_near(params.at("p"), {0.5, -0.5}, 1e-6);
  const auto read = [](const std::string& path) {
    std::ifstream in(std::string(TESSERA_SOURCE_DIR) + path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string code = read("/tests/optim/own_optimizer.h"), page = read("/docs/optimizers.md");
  const size_t begin = code.find("// m = beta"), end = code.find("}  // namespace own") - 1;
  ASSERT_NE(begin, std::string::npos);
  EXPECT_NE(page.find(code.substr(begin, end - begin)), std::string::npos);
}

TEST(Losses, AreOptaxs) {
  const Array logits = array<float>({1, 2, 3, 0.5, -1, 0.25}, {2, 3});
  const Array labels = array<float>({0, 0.5, 0.5, 1, 0, 0}, {2, 3});
  expect_near(softmax_cross_entropy(logits, labels), {0.9076059f, 0.6941122f}, 1e-5);
  expect_near(softmax_cross_entropy_with_integer_labels(logits, array<int32_t>({1, 0})), {1.4076059f, 0.6941122f},
              1e-5);
  const Array impossible = array<float>({1, 2, 3, 0.5, -INFINITY, 0.25}, {2, 3});
  expect_near(safe_softmax_cross_entropy(impossible, labels), {0.9076059f, 0.5759394f}, 1e-5);
  expect_near(multiclass_hinge_loss(logits, array<int32_t>({1, 0})), {2, 0.75f}, 1e-6);
  const Array x = array<float>({-2, 0.5, 3}), y = array<float>({0, 1, 1});
  expect_near(sigmoid_binary_cross_entropy(x, y), {0.126928f, 0.474077f, 0.0485874f}, 1e-5);
  expect_near(squared_error(x, y), {4, 0.25f, 4}, 1e-6);
  expect_near(l2_loss(x, y), {2, 0.125f, 2}, 1e-6);
  expect_near(huber_loss(x, y), {1.5f, 0.125f, 1.5f}, 1e-6);
  expect_near(sigmoid_focal_loss(x, y), {0.00180356f, 0.06757349f, 0.00010928f}, 1e-6);
  expect_near(sigmoid_focal_loss(x, y, 1.5, 0.25), {0.00391786f, 0.02749378f, 0.00012545f}, 1e-6);
  expect_near(poly_loss_cross_entropy(logits, labels), {1.9976366f, 1.6950767f}, 1e-5);
  expect_near(hinge_loss(x, array<float>({-1, 1, 1})), {0, 0.5f, 0}, 1e-6);
  expect_near(log_cosh(x, y), {1.3250027f, 0.1201145f, 1.3250027f}, 1e-5);
  expect_near(smooth_labels(labels, 0.3), {0.1f, 0.45f, 0.45f, 0.8f, 0.1f, 0.1f}, 1e-6);
  expect_near(cosine_similarity(x, array<float>({2, 0, 1})), {-0.122859f}, 1e-5);
  const Array p = array<float>({0.25, 0.75}), q = array<float>({0, 1});
  expect_near(kl_divergence(log(p), q), {0.2876821f}, 1e-5);
  expect_near(generalized_kl_divergence(log(array<float>({0.25, 0.5})), array<float>({0, 1.5})), {0.8979185f}, 1e-5);
  EXPECT_NE(error_of(ErrorKind::shape_mismatch, [&] { squared_error(x, array<float>({1})); }).find("[squared_error]"),
            std::string::npos);
  error_of(ErrorKind::dtype_mismatch, [&] { softmax_cross_entropy_with_integer_labels(logits, labels); });
}

struct Counted {
  nn::Param w;
  int64_t count = 3;
};

TEST(ApplyIfFinite, CountsOfTheModelAreNotTheOptimizers) {
  const Counted model{.w = {ones({2}), {"in"}}};
  auto state = named_chain("clip", clip_by_global_norm(1), "adam", adam({.learning_rate = 1})).init(model);
  detail::subtract_from_counts(state, 5);
  std::map<std::string, std::string> counts;
  for (const nn::Scalar& scalar : nn::scalars(state)) counts[scalar.path] = scalar.to_json();
  EXPECT_EQ(counts.at("adam.0.count"), "-5");
  EXPECT_EQ(counts.at("adam.0.mu.count"), "3");
  EXPECT_EQ(counts.at("adam.0.nu.count"), "3");
}

// The state has a copy for each parameter, even if two parameters get the same gradient.
TEST(Accumulate, OneGradientForTwoParametersIsHeldTwice) {
  const MeshRules mesh_rules{make_mesh({{"data", 2}}), {{"in", replicated}}};
  std::vector<nn::Param> params{{ones({2}), {"in"}}, {zeros({2}), {"in"}}};
  const Array g = ones({2});
  Optimizer optimizer(params, accumulate(sgd({.learning_rate = 1}), 2));
  optimizer.update(params, {{g, {"in"}}, {g, {"in"}}});
  EXPECT_NO_THROW(nn::filter_shard(optimizer, mesh_rules));
}

}  // namespace
}  // namespace tessera::optim::wrappers_test
