// fail: throws an Error with a formatted message.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "sharding/base/error.h"

namespace tessera {

// Throws an Error with the message "[verb] message", where `message` is a format string of fmt, followed by its
// arguments.
template <class First, class... Rest>
[[noreturn]] void fail(ErrorKind kind, std::string_view verb, fmt::format_string<First, Rest...> message, First&& first,
                       Rest&&... rest) {
  fail(kind, verb, std::string_view(fmt::format(message, std::forward<First>(first), std::forward<Rest>(rest)...)));
}

}  // namespace tessera
