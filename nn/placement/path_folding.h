// fold_paths: one line for the arrays of repeated layers, layers.{0..79}.mlp.up.kernel.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tessera::nn::detail {

// Entries of a list that share one folded path.
struct Folded {
  std::string path;             // layers.{0..79}.mlp.up.kernel, or an entry's own
  std::vector<size_t> members;  // indices into the list, in its order
};

// Folds entries with equal `looks` (what else is shown of each path) whose paths differ only in numbers, if they have
// all combinations of the numbers in the folded path. The result is in the order of the first entries.
std::vector<Folded> fold_paths(const std::vector<std::string>& paths, const std::vector<std::string>& looks);

// The path in at most `width` characters. Names in the middle are left out first, model.layers..up.kernel, then the
// second to last as well; if that is still too long, only the last characters stay.
std::string elided(const std::string& path, size_t width);

}  // namespace tessera::nn::detail
