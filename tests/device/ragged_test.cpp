// ragged_dot, ragged_mlp and MoeMlp on an accelerator, in tiles and by grouped products, compared with the CPU.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "nn/layers/moe.h"
#include "nn/transformations/cast.h"
#include "nn/transformations/graphed_step.h"
#include "nn/transformations/value_and_grad.h"
#include "sharding/operations/ragged/ragged_tiles.h"
#include "sharding/runtime/hardware.h"
#include "tests/device/graphs.h"
#include "tests/device/pretended_device.h"
#include "tests/device/waits.h"
#include "tests/optim/support.h"

namespace tessera::ragged_test {
namespace {

using testing::expect_error;
using testing::Waits;

const std::string there = testing::pretended_device();

// The pretended device has grouped products while this object exists.
class GroupedProducts {
 public:
  GroupedProducts() = default;

 private:
  std::shared_ptr<void> kernel_ = testing::register_grouped_products();
  detail::ScopedValue<detail::CapabilityQuery> query_{detail::compute_capability_of(c10::kPrivateUse1),
                                                      [](c10::DeviceIndex) { return 90; }};
};

std::unique_ptr<GroupedProducts> grouped_products(bool exist) {
  return exist ? std::make_unique<GroupedProducts>() : nullptr;
}

// Counts all kernels, and those of grouped products.
class Kernels : public testing::DeviceWatcher {
 public:
  Kernels() { testing::watch_device(this); }
  ~Kernels() override { testing::watch_device(nullptr); }
  void kernel(const std::string& name, std::function<void()>) override {
    ++all, grouped += name == "aten::_grouped_mm";
  }
  void allocation(const at::Tensor&) override {}

  int64_t all = 0, grouped = 0;
};

MeshRules four_slots(Rules rules) {
  for (const char* name : {"batch", "group", "out", "embed", "hidden", "experts"}) rules.push_back({name, replicated});
  return MeshRules(make_mesh({{"data", 2}, {"model", 2}}, {.device = there}), rules);
}

bool shards(const Rules& rules, const std::string& name) { return !rules.empty() && rules.back().logical == name; }

// Returns the gradients of sum(f(arrays) * weights) for all arrays, then f(arrays).
template <class F>
std::vector<Array> gradients_and_value(const F& f, const std::vector<Array>& arrays, const Array& weights) {
  const auto loss = [&](const std::vector<Array>& given) { return sum(f(given) * weights); };
  std::vector<Array> all = nn::value_and_grad(loss)(arrays).second;
  all.push_back(f(arrays));
  return all;
}

std::vector<Array> ragged_dot_and_gradients(const Array& x, const Array& kernels, const Array& sizes,
                                            const Array& weights) {
  return gradients_and_value([&](const std::vector<Array>& given) { return ragged_dot(given[0], given[1], sizes); },
                             {x, kernels}, weights);
}

void expect_all_near(const std::vector<Array>& got, const std::vector<Array>& expected, double tolerance,
                     const std::string& what) {
  for (size_t i = 0; i < expected.size(); ++i)
    expect_near(got[i], host(expected[i]), tolerance, fmt::format("{}: {}", what, i));
}

// Sizes of 4 groups for each of 2 matrices with 12 rows: equal, uneven, empty and of a single row.
const std::vector<std::vector<int32_t>> tables{
    {3, 3, 3, 3, 3, 3, 3, 3}, {12, 0, 0, 0, 0, 0, 0, 12}, {0, 12, 0, 0, 0, 12, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0},
    {1, 2, 0, 9, 7, 0, 1, 1}, {0, 0, 5, 0, 0, 0, 6, 0},   {0, 1, 0, 0, 0, 0, 1, 0}};

// A device without grouped products reads the sizes if groups are sharded. Otherwise the host waits for nothing.
TEST(DeviceRagged, RowsByGroupAreThoseOfTheHost) {
  struct Kind {
    DType dtype;
    int64_t rows, in, out;
    bool exist, used;
  };
  const std::vector<Kind> kinds{{float32, 12, 3, 5, false, false},  {bfloat16, 12, 3, 5, false, false},
                                {bfloat16, 12, 8, 16, true, true},  {bfloat16, 12, 8, 16, false, false},
                                {float32, 12, 8, 16, true, false},  {bfloat16, 12, 8, 12, true, false},
                                {bfloat16, 12, 12, 16, true, false}};
  for (const Kind& k : kinds)
    for (const std::vector<int32_t>& table : tables)
      for (const Rules& rules : {Rules{}, Rules{{"group", "model"}}, Rules{{"batch", "data"}, {"group", "model"}},
                                 Rules{{"batch", "data"}, {"out", "model"}}}) {
        if (shards(rules, "out") && k.out % 2) continue;
        const std::string what = fmt::format("{}[{}, {}], grouped {}, sizes {}, {} rules", name_of(k.dtype), k.in,
                                             k.out, k.exist, table, rules.size());
        const auto grouped = grouped_products(k.exist);
        const Array x = astype(normal(Key(1), {2, k.rows, k.in}), k.dtype),
                    w = astype(normal(Key(2), {4, k.in, k.out}), k.dtype), sizes = array(table, {2, 4}),
                    weights = normal(Key(3), {2, k.rows, k.out});
        const MeshRules mesh_rules = four_slots(rules);
        const Array far_x = device_put(x, {"batch", none, none}, mesh_rules),
                    far_w = device_put(w, {"group", none, "out"}, mesh_rules),
                    far_sizes = device_put(sizes, {"batch", none}, mesh_rules),
                    far_weights = device_put(weights, {"batch", none, none}, mesh_rules);
        auto waits = std::make_unique<Waits>();
        auto kernels = std::make_unique<Kernels>();
        const std::vector<Array> far = ragged_dot_and_gradients(far_x, far_w, far_sizes, far_weights);
        EXPECT_EQ(kernels->grouped > 0, k.used) << what;
        EXPECT_EQ(waits->all() > 0, shards(rules, "group") && !k.used) << what << waits->text();
        kernels.reset();
        waits.reset();
        expect_all_near(far, ragged_dot_and_gradients(x, w, sizes, weights), k.dtype == float32 ? 1e-5 : 0.1, what);
      }
}

TEST(DeviceRagged, AnMlpByGroupIsThatOfTheHost) {
  for (const bool exist : {false, true})
    for (const std::vector<int32_t>& table : tables)
      for (const Rules& rules : {Rules{}, Rules{{"hidden", "model"}}, Rules{{"batch", "data"}, {"group", "model"}}}) {
        const std::string what = fmt::format("grouped {}, sizes {}, {} rules", exist, table, rules.size());
        const auto grouped = grouped_products(exist);
        const Array sizes = array(table, {2, 4}), weights = normal(Key(5), {2, 12, 8});
        const std::vector<Array> arrays{
            astype(normal(Key(1), {2, 12, 8}), bfloat16), astype(0.3 * normal(Key(2), {4, 8, 16}), bfloat16),
            astype(0.3 * normal(Key(3), {4, 8, 16}), bfloat16), astype(0.3 * normal(Key(4), {4, 16, 8}), bfloat16)};
        const auto results = [&](const std::vector<Array>& given, const Array& counts, const Array& factors) {
          const auto mlp = [&](const std::vector<Array>& a) { return ragged_mlp(a[0], a[1], a[2], a[3], counts); };
          return gradients_and_value(mlp, given, factors);
        };
        const MeshRules mesh_rules = four_slots(rules);
        const auto put = [&](const Array& a, const Axes& axes) { return device_put(a, axes, mesh_rules); };
        const std::vector<Array> far_arrays{
            put(arrays[0], {"batch", none, none}), put(arrays[1], {"group", none, "hidden"}),
            put(arrays[2], {"group", none, "hidden"}), put(arrays[3], {"group", "hidden", none})};
        const Array far_sizes = put(sizes, {"batch", none}), far_weights = put(weights, {"batch", none, none});
        auto waits = std::make_unique<Waits>();
        auto kernels = std::make_unique<Kernels>();
        const std::vector<Array> far = results(far_arrays, far_sizes, far_weights);
        EXPECT_EQ(kernels->grouped > 0, exist) << what;
        EXPECT_EQ(waits->all() > 0, shards(rules, "group") && !exist) << what << waits->text();
        kernels.reset();
        waits.reset();
        expect_all_near(far, results(arrays, sizes, weights), 0.1, what);
      }
}

TEST(DeviceRagged, ExpertsWithoutACapacityAreThoseOfTheHost) {
  for (const bool exist : {false, true})
    for (const auto& [gated, has_biases] : {std::pair(false, false), std::pair(true, false), std::pair(true, true)})
      for (const Rules& rules :
           {Rules{{"batch", "data"}}, Rules{{"hidden", "model"}}, Rules{{"batch", "data"}, {"experts", "model"}}}) {
        const DType dtype = exist ? bfloat16 : float32;
        const int64_t embed = exist ? 8 : 4, hidden = exist ? 16 : 6;
        const double tolerance = exist ? 0.02 : 1e-5;
        SCOPED_TRACE(fmt::format("grouped {}, gated {}, biases {}, {} by {}", exist, gated, has_biases,
                                 rules.back().logical, rules.size()));
        const auto grouped = grouped_products(exist);
        const MeshRules mesh_rules = four_slots(rules);
        const auto loss = [](const nn::MoeMlp& m, const Array& x) { return mean(square(astype(m(x).out, float32))); };
        nn::MoeMlp layer = nn::MoeMlp::init(Key(0), {"embed", embed}, {"hidden", hidden}, {"experts", 4},
                                            {.capacity_factor = {}, .gated = gated, .expert_bias = has_biases});
        for (std::optional<nn::Param>* bias : {&layer.up_bias, &layer.gate_bias, &layer.down_bias})
          if (has_biases) (*bias)->value = normal(Key(2), (*bias)->value.shape());
        layer = nn::cast(layer, dtype);
        const Array x = astype(normal(Key(1), {2, 8, embed}), dtype);
        const auto [here, grads_here] = nn::value_and_grad(loss)(layer, x);
        layer = nn::filter_shard(layer, mesh_rules);
        const Array far_x = device_put(x, {"batch", none, none}, mesh_rules);
        nn::value_and_grad(loss)(layer, far_x);
        auto waits = std::make_unique<Waits>();
        auto kernels = std::make_unique<Kernels>();
        const auto [far, grads] = nn::value_and_grad(loss)(layer, far_x);
        EXPECT_EQ(kernels->grouped > 0, exist);
        EXPECT_EQ(waits->all() > 0, shards(rules, "experts") && !exist) << waits->text();
        kernels.reset();
        waits.reset();
        EXPECT_NEAR(far.item<float>(), here.item<float>(), tolerance);
        expect_tree_near(grads, grads_here, tolerance);
      }
}

// Operands of grouped products are dense and begin at multiples of 16 bytes; those of ragged_dot need not.
TEST(DeviceRagged, OperandsOfAnyMemoryFormatFit) {
  const GroupedProducts grouped;
  const Mesh mesh = make_mesh({{"data", 1}}, {.device = there});
  const auto far = [&](const Array& x) { return device_put(x, NamedSharding(mesh, P{})); };
  const Array wide = astype(normal(Key(1), {4, 24, 24}), bfloat16), long_x = astype(normal(Key(2), {5, 24}), bfloat16);
  const auto product = [](const Array& w, const Array& x, const Array& sizes) {
    const Array turned = swapaxes(w, 1, 2);
    const auto columns = [](const Array& a) { return a.index({ellipsis, range(3, 11)}); };
    return ragged_dot(columns(x), turned.index({{}, range(3, 11)}), sizes) +
           ragged_dot(columns(x), columns(w).index({{}, range(1, 9)}), sizes).index({{}, range(0, 1)});
  };
  for (const std::vector<int32_t>& sizes : {std::vector<int32_t>{1, 0, 3, 1}, {0, 0, 0, 0}}) {
    const Kernels kernels;
    expect_near(product(far(wide), far(long_x), far(array(sizes))), host(product(wide, long_x, array(sizes))), 0.1);
    EXPECT_EQ(kernels.grouped, 2);
  }
  const Array w = astype(normal(Key(3), {4, 8, 16}), bfloat16);
  for (const int64_t rows : {0, 1})
    for (const std::vector<int32_t>& sizes : {std::vector<int32_t>{0, 0, 1, 0}, {0, 0, 0, 0}}) {
      if (rows < sizes[2]) continue;
      const Array x = astype(ones({rows, 8}), bfloat16), weights = full({1, 16}, 0.5);
      const Kernels kernels;
      expect_all_near(ragged_dot_and_gradients(far(x), far(w), far(array(sizes)), far(weights)),
                      ragged_dot_and_gradients(x, w, array(sizes), weights), 0.1, fmt::format("{} rows", rows));
      EXPECT_EQ(kernels.grouped, rows ? 4 : 0);
    }
}

TEST(DeviceRagged, GroupsThatTheMeshAxisDoesNotDivideFit) {
  const GroupedProducts grouped;
  const Mesh mesh = make_mesh({{"model", 4}}, {.device = there});
  const Array x = astype(normal(Key(1), {7, 8}), bfloat16), w = astype(normal(Key(2), {5, 8, 16}), bfloat16),
              sizes = array<int32_t>({1, 0, 3, 1, 1}), weights = normal(Key(3), {7, 16});
  const auto far = [&](const Array& a) { return device_put(a, NamedSharding(mesh, P{})); };
  const Kernels kernels;
  const Array far_w = device_put(w, NamedSharding(mesh, P{{"model", Uneven::pad}}));
  expect_all_near(ragged_dot_and_gradients(far(x), far_w, far(sizes), far(weights)),
                  ragged_dot_and_gradients(x, w, sizes, weights), 0.1, "uneven groups");
  EXPECT_GT(kernels.grouped, 0);
}

TEST(DeviceRagged, SecondDerivativesAreThoseOfTheHost) {
  const GroupedProducts grouped;
  const Mesh mesh = make_mesh({{"data", 1}}, {.device = there});
  const auto far = [&](const Array& x) { return device_put(x, NamedSharding(mesh, P{})); };
  const Array x = astype(normal(Key(1), {6, 8}), bfloat16), w = astype(0.3 * normal(Key(2), {3, 8, 8}), bfloat16),
              sizes = array<int32_t>({2, 0, 3});
  const auto second = [](const Array& kernels, const Array& rows, const Array& counts) {
    const auto first = [&](const Array& given) {
      return sum(square(astype(ragged_dot(given, kernels, counts), float32)));
    };
    const auto norm = [&](const Array& given) {
      return sum(square(astype(nn::value_and_grad(first)(given).second, float32)));
    };
    return nn::value_and_grad(norm)(rows).second;
  };
  const Kernels kernels;
  expect_near(second(far(w), far(x), far(sizes)), host(second(w, x, sizes)), 0.5);
  EXPECT_EQ(kernels.grouped, 0);
}

TEST(DeviceRagged, GroupsOfTooManyRowsAreReportedWithTheNextValue) {
  const Mesh mesh = make_mesh({{"data", 1}}, {.device = there});
  const auto placed = [&](const Array& x) { return device_put(x, NamedSharding(mesh, P{})); };
  for (const bool exist : {false, true}) {
    const auto grouped = grouped_products(exist);
    const Array rows = placed(ones({4, 8}, bfloat16)), kernels = placed(ones({2, 8, 8}, bfloat16));
    for (const auto& [sizes, words] : {std::pair(std::vector<int32_t>{1, 4}, "ends of groups from 1 to 5 given"),
                                       {std::vector<int32_t>{-1, 4}, "sizes from -1 to 4 given"},
                                       {std::vector<int32_t>{5, -7}, "sizes from -7 to 5 given"}}) {
      const Array y = ragged_dot(rows, kernels, placed(array(sizes)));
      expect_error(ErrorKind::invalid_argument,
                   fmt::format("[ragged_dot] {}, expected 0 to 4. At ragged_test.cpp:", words),
                   [&] { y.to_host<float>(); });
    }
  }
}

TEST(DeviceRagged, AGraphHasTheGroupsOfEachReplay) {
  const auto graphs = testing::has_graphs();
  const GroupedProducts grouped;
  const MeshRules mesh_rules = four_slots({{"group", "model"}});
  const Array x = device_put(ones({3, 8}, bfloat16), {none, none}, mesh_rules),
              w = device_put(astype(array<float>({1, 3}, {2, 1, 1}), bfloat16) * ones({2, 8, 8}, bfloat16),
                             {"group", none, none}, mesh_rules);
  nn::GraphedStep step([](const Array& rows, const Array& kernels, const Array& sizes) {
    return sum(astype(ragged_dot(rows, kernels, sizes), float32));
  });
  for (int i = 0; i < 4; ++i) {
    const Array sizes = device_put(array<int32_t>({i, 3 - i}), {none}, mesh_rules);
    EXPECT_EQ(step(x, w, sizes).item<float>(), 64 * (i + 3 * (3 - i)));
  }
  EXPECT_EQ(step.recordings(), 1);
}

TEST(DeviceRagged, GroupedProductsHaveFewerKernels) {
  const MeshRules mesh_rules = four_slots({});
  const nn::MoeMlp layer =
      nn::filter_shard(nn::cast(nn::MoeMlp::init(Key(0), {"embed", 8}, {"hidden", 16}, {"experts", 4},
                                                 {.capacity_factor = {}, .gated = true}),
                                bfloat16),
                       mesh_rules);
  const Array x = device_put(astype(normal(Key(1), {2, 8, 8}), bfloat16), {"batch", none, none}, mesh_rules);
  const auto count = [&](bool exist) {
    const auto grouped = grouped_products(exist);
    const auto loss = [](const nn::MoeMlp& m, const Array& tokens) { return mean(square(m(tokens).out)); };
    nn::value_and_grad(loss)(layer, x);
    const Kernels kernels;
    nn::value_and_grad(loss)(layer, x);
    return std::pair(kernels.all, kernels.grouped);
  };
  EXPECT_LE(count(true).first, 228);
  EXPECT_EQ(count(true).second, 7);  // forward 3, kernels' gradients 3, and the gradient of the last product's rows
  EXPECT_LE(count(false).first, 274);
}

}  // namespace
}  // namespace tessera::ragged_test
