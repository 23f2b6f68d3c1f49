// Sizes and names of the element types, and JAX's promotion lattice.
#include "sharding/placement/dtype.h"

#include <algorithm>
#include <array>

namespace tessera {
namespace {

struct Row {
  DType dtype;
  int64_t size;
  std::string_view name;
};

constexpr std::array<Row, 10> kTypes{{{DType::boolean, 1, "bool"},
                                      {DType::uint8, 1, "uint8"},
                                      {DType::int8, 1, "int8"},
                                      {DType::int16, 2, "int16"},
                                      {DType::int32, 4, "int32"},
                                      {DType::int64, 8, "int64"},
                                      {DType::bfloat16, 2, "bfloat16"},
                                      {DType::float16, 2, "float16"},
                                      {DType::float32, 4, "float32"},
                                      {DType::float64, 8, "float64"}}};

const Row& row_of(DType dtype) {
  static constexpr Row unknown{DType::boolean, 0, ""};
  const auto found = std::find_if(kTypes.begin(), kTypes.end(), [&](const Row& row) { return row.dtype == dtype; });
  return found == kTypes.end() ? unknown : *found;
}

bool are(DType a, DType b, DType first, DType second) {
  return (a == first && b == second) || (a == second && b == first);
}

}  // namespace

int64_t item_size(DType dtype) { return row_of(dtype).size; }

std::string_view name_of(DType dtype) { return row_of(dtype).name; }

std::optional<DType> dtype_of(std::string_view name) {
  for (const Row& row : kTypes)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

// Returns the join in JAX's lattice. The rows are sorted so that the join is the later one, except for the two pairs
// without an order.
DType promote(DType a, DType b) {
  if (a == b) return a;
  if (are(a, b, DType::uint8, DType::int8)) return DType::int16;
  if (are(a, b, DType::float16, DType::bfloat16)) return DType::float32;
  return &row_of(a) < &row_of(b) ? b : a;
}

}  // namespace tessera
