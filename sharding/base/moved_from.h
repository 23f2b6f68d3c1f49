// held: what a handle points to, or an Error if the handle was moved from.
#pragma once

#include <string_view>

namespace tessera::detail {

// Throws Error (invalid_argument) "[verb] this dataset was moved into another; use that one.", if `what` is "dataset".
[[noreturn]] void fail_moved(std::string_view verb, std::string_view what);

// *pointer; the Error above if it is null.
template <class Pointer>
const auto& held(const Pointer& pointer, std::string_view verb, std::string_view what) {
  if (!pointer) fail_moved(verb, what);
  return *pointer;
}

}  // namespace tessera::detail
