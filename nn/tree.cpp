// Checks on the leaves of a tree.
#include "nn/tree.h"

#include <fmt/format.h>

#include <unordered_map>

namespace tessera::nn {

void check_distinct(const Leaves& leaves, const char* verb) {
  std::unordered_map<const void*, const std::string*> seen;
  for (const Leaf& leaf : leaves) {
    if (leaf.value->is_absent()) continue;
    const auto [first, fresh] = seen.emplace(leaf.value->impl().get(), &leaf.path);
    if (!fresh)
      fail(ErrorKind::bad_argument, verb,
           fmt::format(
               "{} and {} are one and the same array, which would be trained twice. Keep it in one field and use "
               "that one in both places (a tied head is embedding.attend(x)), or make two arrays.",
               *first->second, leaf.path));
  }
}

}  // namespace tessera::nn
