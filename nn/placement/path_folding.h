// fold_paths: one line for the arrays of repeated layers, layers.{0..79}.mlp.up.kernel.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tessera::nn::detail {

// Some of a list's entries under one path.
struct Folded {
  std::string path;             // layers.{0..79}.mlp.up.kernel, or an entry's own
  std::vector<size_t> members;  // indices into the list, in its order
};

// Entries that look alike and whose paths differ in numbers only are folded, where the numbers are all combinations of
// those that the path then shows; in the order of their first entries. `looks` says for each path what else it shows.
std::vector<Folded> fold_paths(const std::vector<std::string>& paths, const std::vector<std::string>& looks);

// The path in at most `width` characters: names before the last two left out, model.layers..up.kernel; if need be those
// two, too, and in the end all but its last characters.
std::string elided(const std::string& path, size_t width);

}  // namespace tessera::nn::detail
