// with_commas: a number as tables show it, 1,234,567.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::nn::detail {

inline std::string with_commas(int64_t number) {
  std::string digits = std::to_string(number);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<size_t>(i), 1, ',');
  return digits;
}

}  // namespace tessera::nn::detail
