// with_commas and counted: numbers as tables show them, 1,234,567 and 12 arrays.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::nn::detail {

inline std::string with_commas(int64_t number) {
  std::string digits = std::to_string(number);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(static_cast<size_t>(i), 1, ',');
  return digits;
}

// "1 array", "2,300 arrays"
inline std::string counted(int64_t number, const char* what) {
  return with_commas(number) + " " + what + (number == 1 ? "" : "s");
}

}  // namespace tessera::nn::detail
