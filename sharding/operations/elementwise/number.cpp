// Numbers as they were written, and those that an integer type cannot hold.
#include "sharding/operations/elementwise/number.h"

#include <fmt/format.h>

#include "sharding/placement/element_value.h"

namespace tessera::detail {

bool is_beyond_int64(const Number& number) { return number.integer < 0 && number.floating > 0; }

std::string text_of(const Number& number) {
  if (number.kind == Number::Kind::floating) return fmt::format("{}", number.floating);
  return is_beyond_int64(number) ? fmt::format("{}", static_cast<uint64_t>(number.integer))
                                 : fmt::format("{}", number.integer);
}

void check_number(const char* verb, const Number& number, DType dtype) {
  if (number.kind != Number::Kind::integer || is_floating(dtype) || dtype == boolean) return;
  const Bounds b = bounds_of(dtype);
  if (is_beyond_int64(number) || number.integer < b.least || number.integer > b.most)
    refuse_number(verb, text_of(number), dtype);
}

}  // namespace tessera::detail
