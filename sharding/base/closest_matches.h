// closest_matches: the known names most similar to an unknown one, for error messages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::detail {

// The Levenshtein distance: the least number of characters to insert, delete or replace.
size_t edit_distance(std::string_view a, std::string_view b);

// At most `most` of the names or paths in `among`, nearest first, equally near ones in their order; skips empty ones.
std::vector<std::string> closest_matches(std::string_view name, const std::vector<std::string>& among, size_t most = 3);

// "; "embed" is the nearest", if one is near; empty otherwise.
std::string nearest_words(std::string_view name, const std::vector<std::string>& among);

}  // namespace tessera::detail
