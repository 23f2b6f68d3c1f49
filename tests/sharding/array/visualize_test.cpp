// visualize_sharding: the drawings of jax.debug.visualize_array_sharding, and the errors for those it cannot draw.
#include "sharding/array/visualize.h"

#include "tests/sharding/expect_error.h"
#include "tests/sharding/law.h"

namespace tessera::visualize_test {
namespace {

using namespace tessera::testing;

std::string drawn(const Shape& shape, const std::vector<MeshAxis>& axes, const PartitionSpec& spec, int width = 80) {
  return visualize_sharding(shape, NamedSharding(make_mesh(axes), spec),
                            {.width = width, .color = VisualizeOptions::Color::never});
}

const std::vector<MeshAxis> grid{{"data", 4}, {"model", 2}};

TEST(Visualize, AGridAsJaxDrawsIt) {
  EXPECT_EQ("\n" + drawn({32, 64}, grid, P{"data"}), R"(
┌────────────────────────────────────────────────┐
│                    CPU 0,1                     │
├────────────────────────────────────────────────┤
│                    CPU 2,3                     │
├────────────────────────────────────────────────┤
│                    CPU 4,5                     │
├────────────────────────────────────────────────┤
│                    CPU 6,7                     │
└────────────────────────────────────────────────┘
)");
  EXPECT_EQ("\n" + drawn({32, 64}, grid, P{"data", "model"}), R"(
┌───────────────────────┬───────────────────────┐
│         CPU 0         │         CPU 1         │
├───────────────────────┼───────────────────────┤
│         CPU 2         │         CPU 3         │
├───────────────────────┼───────────────────────┤
│         CPU 4         │         CPU 5         │
├───────────────────────┼───────────────────────┤
│         CPU 6         │         CPU 7         │
└───────────────────────┴───────────────────────┘
)");
  EXPECT_EQ("\n" + drawn({32, 64}, grid, P{none, "model"}), R"(
┌───────────────────────┬───────────────────────┐
│                       │                       │
│                       │                       │
│                       │                       │
│                       │                       │
│      CPU 0,2,4,6      │      CPU 1,3,5,7      │
│                       │                       │
│                       │                       │
│                       │                       │
│                       │                       │
└───────────────────────┴───────────────────────┘
)");
  EXPECT_EQ("\n" + drawn({8, 4}, {{"a", 8}}, P{}), R"(
┌───────────────────┐
│                   │
│                   │
│                   │
│                   │
│CPU 0,1,2,3,4,5,6,7│
│                   │
│                   │
│                   │
│                   │
└───────────────────┘
)");
}

TEST(Visualize, ARowAsJaxDrawsIt) {
  EXPECT_EQ("\n" + drawn({1024}, {{"batch", 2}}, P{"batch"}), R"(
┌───────┬───────┐
│ CPU 0 │ CPU 1 │
└───────┴───────┘
)");
  EXPECT_EQ("\n" + drawn({16}, {{"a", 4}, {"b", 2}}, P{{"b", "a"}}), R"(
┌───────┬───────┬───────┬───────┬───────┬───────┬───────┬───────┐
│ CPU 0 │ CPU 2 │ CPU 4 │ CPU 6 │ CPU 1 │ CPU 3 │ CPU 5 │ CPU 7 │
└───────┴───────┴───────┴───────┴───────┴───────┴───────┴───────┘
)");
}

// Boxes that are wider than a line lose their labels, as in JAX.
TEST(Visualize, WhatIsTooWideIsNarrowedAsJaxDoes) {
  EXPECT_EQ("\n" + drawn({16, 64}, grid, P{"data", "model"}), R"(
┌──────────────────────────────────────┬───────────────────────────────────────┐
│                                      │                                       │
├──────────────────────────────────────┼───────────────────────────────────────┤
│                                      │                                       │
├──────────────────────────────────────┼───────────────────────────────────────┤
│                                      │                                       │
├──────────────────────────────────────┼───────────────────────────────────────┤
│                                      │                                       │
└──────────────────────────────────────┴───────────────────────────────────────┘
)");
  const std::string row = drawn({8, 64}, {{"a", 8}}, P{none, "a"}, 60);
  EXPECT_TRUE(row.starts_with("┌──────┬──────┬───────┬──────┬───────┬──────┬───────┬──────┐\n")) << row;
}

TEST(Visualize, ScalarsAndManyDims) {
  EXPECT_EQ("\n" + drawn({}, {{"a", 2}}, P{}), R"(
┌───────────────────────┐
│        CPU 0,1        │
└───────────────────────┘
)");
  EXPECT_EQ("\n" + drawn({4, 2, 2}, {{"a", 2}, {"b", 2}}, P{"a", none, "b"}), R"(
[0:2, :, :]
┌──────────┬──────────┐
│          │          │
│          │          │
│          │          │
│          │          │
│  CPU 0   │  CPU 1   │
│          │          │
│          │          │
│          │          │
│          │          │
└──────────┴──────────┘
[2:4, :, :]
┌──────────┬──────────┐
│          │          │
│          │          │
│          │          │
│          │          │
│  CPU 2   │  CPU 3   │
│          │          │
│          │          │
│          │          │
│          │          │
└──────────┴──────────┘
)");
  EXPECT_EQ("\n" + drawn({0, 3}, {{"a", 2}}, P{"a"}), "\n" + drawn({0, 3}, {{"a", 2}}, P{}));
}

TEST(Visualize, AdjacentColorsDiffer) {
  const std::string text = visualize_sharding({1024}, NamedSharding(make_mesh({{"batch", 2}}), P{"batch"}),
                                              {.color = VisualizeOptions::Color::always});
  EXPECT_EQ(text.find("│"), std::string::npos);
  const size_t first = text.find("\x1b[48;5;"), second = text.find("\x1b[48;5;", first + 1);
  ASSERT_NE(second, std::string::npos);
  EXPECT_NE(text.substr(first, 10), text.substr(second, 10));
  EXPECT_NE(text.find("CPU 1"), std::string::npos);
}

TEST(Visualize, Arrays) {
  const Array x = device_put(ones({8}), NamedSharding(make_mesh({{"a", 2}}), P{"a"}));
  const VisualizeOptions plain{.color = VisualizeOptions::Color::never};
  EXPECT_EQ(visualize_sharding(x, plain), drawn({8}, {{"a", 2}}, P{"a"}));
  const std::string pending = visualize_sharding(sum(x), plain);
  EXPECT_TRUE(pending.ends_with("each a partial sum over a\n")) << pending;
  expect_error(ErrorKind::device_mismatch, "is not placed on a mesh", [] { (void)visualize_sharding(ones({2})); });
}

}  // namespace
}  // namespace tessera::visualize_test
