// Throws the errors of tree_at.
#include "nn/tree/tree_at.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "sharding/base/fail.h"
#include "sharding/base/text.h"

namespace tessera::nn {

void detail::check_replaced(std::string_view pattern, const std::vector<std::string>& seen,
                            const std::vector<std::string>& matched, const std::vector<std::string>& replaced,
                            std::string_view type, std::string_view given, bool shares_arrays) {
  if (matched.empty()) {
    const std::vector<std::string> near = tessera::detail::closest_matches(pattern, seen);
    fail(ErrorKind::invalid_argument, "tree_at", "{}: the tree has no such path. {}.", pattern,
         near.empty() ? "It has no parts" : fmt::format("Near it are {}", fmt::join(near, ", ")));
  }
  if (replaced.empty())
    fail(ErrorKind::invalid_argument, "tree_at",
         "{}: it is a {}, which the replacement (a {}) does not fit. Give one of the same type, or a function that "
         "takes and returns it.",
         matched.back().empty() ? "the tree" : matched.back(), type, given);
  if (shares_arrays && replaced.size() > 1)
    fail(ErrorKind::invalid_argument, "tree_at",
         "{}: one array for {} places, {} and {} among them, expected one for each. Give a function, which makes each "
         "its own.",
         pattern, replaced.size(), replaced[0], replaced[1]);
}

void detail::fail_number(double given, std::string_view type) {
  fail(ErrorKind::invalid_argument, "tree_at",
       "{} given for a number of type {}, which cannot hold it. Give one that it can.", given, type);
}

}  // namespace tessera::nn
