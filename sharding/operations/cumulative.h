// Running sums and products along a dim.
#pragma once

#include "sharding/operations/operand.h"

namespace tessera {

// Element i of the result is the sum (product) of elements 0 to i along `dim`. Over a sharded dim x stays where it is:
// only the blocks' totals are gathered. Sums of booleans and products of booleans and small integers are int32.
Array cumsum(Operand x, int dim);
Array cumprod(Operand x, int dim);

}  // namespace tessera
