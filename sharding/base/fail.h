// fail: throws an Error whose message is put together.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "sharding/base/error.h"

namespace tessera {

// Throws Error "[verb] message", where `message` is fmt's format and what it names.
template <class First, class... Rest>
[[noreturn]] void fail(ErrorKind kind, std::string_view verb, fmt::format_string<First, Rest...> message, First&& first,
                       Rest&&... rest) {
  fail(kind, verb, std::string_view(fmt::format(message, std::forward<First>(first), std::forward<Rest>(rest)...)));
}

}  // namespace tessera
