// What a handle points to, or the error of one that was moved from.
#pragma once

#include <string_view>

namespace tessera::detail {

// Error (bad_argument): "[verb] this dataset was moved into another; use that one."
[[noreturn]] void fail_moved(std::string_view verb, std::string_view what);

// What the pointer points to, if it still does.
template <class Pointer>
const auto& held(const Pointer& pointer, std::string_view verb, std::string_view what) {
  if (!pointer) fail_moved(verb, what);
  return *pointer;
}

}  // namespace tessera::detail
