// Running sums and products along a dim.
#pragma once

#include <optional>

#include "sharding/operations/operand.h"

namespace tessera {

// Element i of the result is the sum (product) of elements 0 to i along `dim`, or among all elements in row-major
// order. Over a sharded dim x stays where it is: only the blocks' totals are gathered. Sums of booleans and products of
// booleans and uint8 are int32.
Array cumsum(Operand x, std::optional<int> dim = std::nullopt);
Array cumprod(Operand x, std::optional<int> dim = std::nullopt);

}  // namespace tessera
