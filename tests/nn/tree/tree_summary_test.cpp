// Trees counted and printed: num_parameters, num_bytes and operator<<.
#include "nn/tree/tree_summary.h"

#include <gtest/gtest.h>

#include <array>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "nn/layers/linear.h"
#include "nn/placement/filter_shard.h"
#include "nn/placement/table.h"
#include "nn/tree/filter.h"
#include "sharding/operations.h"
#include "sharding/random.h"

// A program's namespace: argument-dependent lookup does not find the operator<< of tessera::nn from here.
namespace tree_summary_test {
namespace {

using namespace tessera;

struct Model {
  std::vector<nn::Linear> layers;
  Array scale = array<float>({1, 2});
  Array counter = array<int64_t>({1});
  nn::Param codes{array<int64_t>({1, 2, 3}), {"codes"}};
  nn::Buffer mean{array<float>({1, 2, 3, 4, 5}), {"embed"}};

  static Model init() { return {.layers = {nn::Linear::init(Key(0), {"embed", 8}, {"hidden", 16})}}; }
};
struct PrintedByItself {
  Array x = array<float>({1});
  friend std::ostream& operator<<(std::ostream& out, const PrintedByItself&) { return out << "mine"; }
};
struct WithoutArrays {
  int count = 0;
};

template <class T>
constexpr bool is_printed = requires(std::ostream& out, const T& x) { out << x; };
static_assert(is_printed<Model>);
static_assert(is_printed<nn::Linear>);
static_assert(!is_printed<WithoutArrays>);
static_assert(!nn::detail::PrintedModule<std::array<Array, 2>>);
static_assert(!nn::detail::PrintedModule<std::vector<nn::Linear>>);
static_assert(!nn::detail::PrintedModule<std::pair<Array, Array>>);

template <class T>
std::string printed(const T& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

TEST(NumParameters, AreParamsAndFloatingArraysOutsideBuffers) {
  const auto model = Model::init();
  EXPECT_EQ(nn::num_parameters(model), 8 * 16 + 16 + 2 + 3);
  EXPECT_EQ(nn::num_parameters(nn::named("a", model, "b", model.layers)), 2 * (8 * 16 + 16) + 2 + 3);
  EXPECT_EQ(nn::num_parameters(nn::filter(model, nn::by_path("layers.**.kernel"))), 8 * 16);
  EXPECT_EQ(nn::num_parameters(model.mean), 0);
  EXPECT_EQ(nn::num_parameters(WithoutArrays()), 0);
}

TEST(NumBytes, AreThoseOfAllArrays) {
  const auto model = Model::init();
  EXPECT_EQ(nn::num_bytes(model), 4 * (8 * 16 + 16 + 2) + 8 * (1 + 3) + 4 * 5);
  EXPECT_EQ(nn::num_bytes(nn::filter(model, nn::is_buffer)), 4 * 5);
  EXPECT_EQ(nn::num_bytes(model), nn::placement_table(model).bytes());
}

TEST(NumParameters, DoNotDependOnTheSharding) {
  const auto model = Model::init();
  const Rules rules{{"embed", "data"}, {"hidden", "model"}, {"codes", replicated}};
  for (const Mesh& mesh :
       {make_mesh({{"data", 1}, {"model", 4}}), make_mesh({{"data", 1}, {"model", 8}}, {.abstract = true})}) {
    const auto placed = nn::filter_shard(model, MeshRules{mesh, rules});
    EXPECT_EQ(nn::num_parameters(placed), nn::num_parameters(model));
    EXPECT_EQ(nn::num_bytes(placed), nn::placement_table(placed).bytes());
  }
}

TEST(PrintedModule, IsItsSummary) {
  const auto model = Model::init();
  EXPECT_EQ(printed(model), nn::tree_summary(model));
  EXPECT_EQ(printed(model.layers[0]), nn::tree_summary(model.layers[0]));
  std::ostringstream out;
  out << std::setw(8) << 1 << model << '\n';
  EXPECT_EQ(out.str(), "       1" + nn::tree_summary(model) + "\n");
  EXPECT_EQ(printed(PrintedByItself()), "mine");
  EXPECT_EQ(printed(model.mean), printed(model.mean.value));
}

}  // namespace
}  // namespace tree_summary_test
