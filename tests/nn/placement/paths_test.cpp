// Paths of repeated layers are printed as one, and long paths are shortened.
#include "nn/placement/paths.h"

#include <gtest/gtest.h>

namespace tessera::nn::paths_test {
namespace {

TEST(FoldPaths, takes_together_what_differs_in_numbers_only) {
  const struct {
    std::vector<std::string> paths, looks, expected;
  } cases[] = {
      {{"layers.0.w", "layers.1.w", "layers.2.w"}, {"a", "a", "a"}, {"layers.{0..2}.w"}},
      {{"layers.0.w", "layers.1.w", "layers.3.w"}, {"a", "a", "a"}, {"layers.{0,1,3}.w"}},
      {{"layers.0.w", "layers.1.w", "layers.2.w"}, {"a", "b", "a"}, {"layers.{0,2}.w", "layers.1.w"}},
      {{"l.0.b", "l.0.w", "l.1.b", "l.1.w"}, {"a", "a", "a", "a"}, {"l.{0,1}.b", "l.{0,1}.w"}},
      {{"l.0.e.0", "l.0.e.1", "l.1.e.0", "l.1.e.1"}, {"", "", "", ""}, {"l.{0,1}.e.{0,1}"}},
      {{"l.0.e.0", "l.0.e.1", "l.1.e.0"}, {"", "", ""}, {"l.{0,1}.e.0", "l.0.e.1"}},
      {{"w", "b", "w1"}, {"", "", ""}, {"w", "b", "w1"}},
      {{"l.00.w", "l.01.w"}, {"", ""}, {"l.00.w", "l.01.w"}},
      {{}, {}, {}},
  };
  for (const auto& c : cases) {
    std::vector<std::string> lines;
    size_t members = 0;
    for (const detail::Folded& f : detail::fold_paths(c.paths, c.looks))
      lines.push_back(f.path), members += f.members.size();
    EXPECT_EQ(lines, c.expected);
    EXPECT_EQ(members, c.paths.size());
  }
}

TEST(FoldPaths, leaves_out_names_in_the_middle) {
  const std::string path = "model.layers.{0..79}.attn.query.kernel";
  EXPECT_EQ(detail::elided(path, 38), path);
  EXPECT_EQ(detail::elided(path, 37), "model.layers.{0..79}..query.kernel");
  EXPECT_EQ(detail::elided(path, 30), "model.layers..query.kernel");
  EXPECT_EQ(detail::elided(path, 20), "model..query.kernel");
  EXPECT_EQ(detail::elided(path, 14), "model..kernel");
  EXPECT_EQ(detail::elided(path, 8), "..kernel");
  EXPECT_EQ(detail::elided(path, 2), "el");
}

}  // namespace
}  // namespace tessera::nn::paths_test
