// environment_number: the number that a variable of the environment says.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>

#include "sharding/base/fail.h"
#include "sharding/base/parse_number.h"

namespace tessera::detail {

// Of `what`, "threads". None where the variable is unset or empty. Error (invalid_argument): anything but a number
// from 1.
inline std::optional<int64_t> environment_number(const char* name, const char* what) {
  const char* text = std::getenv(name);
  if (!text || !*text) return std::nullopt;
  const std::optional number = parse_number<int64_t>(text);
  if (!number || *number < 1)
    fail(ErrorKind::invalid_argument, name,
         "\"{}\" given, expected a number of {} from 1. Set it to one, or leave it unset.", text, what);
  return number;
}

}  // namespace tessera::detail
