// Combines filters, and checks the leaves of a tree.
#include "nn/tree/tree.h"

#include <unordered_map>

#include "sharding/base/fail.h"

namespace tessera::nn {

Filter operator&&(const Filter& a, const Filter& b) {
  return [a, b](const std::string& path, const Leaf& leaf) { return a(path, leaf) && b(path, leaf); };
}
Filter operator||(const Filter& a, const Filter& b) {
  return [a, b](const std::string& path, const Leaf& leaf) { return a(path, leaf) || b(path, leaf); };
}
Filter operator!(const Filter& a) {
  return [a](const std::string& path, const Leaf& leaf) { return !a(path, leaf); };
}

void check_distinct(const Leaves& leaves, const char* verb) {
  std::unordered_map<const void*, const std::string*> seen;
  for (const Leaf& leaf : leaves) {
    if (leaf.value->is_absent()) continue;
    const auto [first, fresh] = seen.emplace(leaf.value->impl().get(), &leaf.path);
    if (!fresh)
      fail(ErrorKind::invalid_argument, verb,
           "{} and {} are one and the same array, which would be trained twice. Keep it in one field and use that one "
           "in both places (a tied head is embedding.attend(x)), or make two arrays.",
           *first->second, leaf.path);
  }
}

void detail::check_present(const Leaves& tree, size_t i, const char* verb) {
  if (tree[i].value->is_absent())
    fail(ErrorKind::missing_array, verb,
         tree[i].path + " is absent from another of the trees. Filter all of them in the same way (see nn::filter).");
}

void check_same_structure(const Leaves& expected, const Leaves& given, const char* verb) {
  const auto path_of = [](const Leaves& leaves, size_t i) {
    return i < leaves.size() ? leaves[i].path : std::string("nothing more");
  };
  for (size_t i = 0; i < expected.size() || i < given.size(); ++i)
    if (path_of(expected, i) != path_of(given, i))
      fail(ErrorKind::invalid_argument, verb,
           "{}: the other tree has {} in its place, expected trees of one structure. Compare what they were made from: "
           "lengths of vectors, optionals, alternatives of variants, keys of maps.",
           path_of(i < expected.size() ? expected : given, i), path_of(i < expected.size() ? given : expected, i));
}

// ---- walks ----------------------------------------------------------------------------------------------------------

bool detail::is_below(std::string_view path, std::string_view top) {
  return top.empty() || (path.starts_with(top) && (path.size() == top.size() || path[top.size()] == '.'));
}

std::string detail::Place::path() const {
  if (!above_) return std::string(name_);
  return join(above_->path(), is_number_ ? std::to_string(number_) : std::string(name_));
}

}  // namespace tessera::nn
