// near_names: the names most like one that is not there, for messages of errors.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::nn::detail {

// Levenshtein's distance: how many characters are to be put in, taken out or changed.
size_t edit_distance(std::string_view a, std::string_view b);

// At most `most` of `among` (names, or dotted paths), the nearest first, of equals the first; empty ones left out.
std::vector<std::string> near_names(std::string_view name, const std::vector<std::string>& among, size_t most = 3);

}  // namespace tessera::nn::detail
