// How a shape is printed, apart from the rest of its file, which needs LibTorch.
#include "sharding/named_sharding.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tessera {

std::string to_string(const Shape& shape) { return fmt::format("({})", fmt::join(shape, ", ")); }

}  // namespace tessera
