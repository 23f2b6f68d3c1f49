// Arrays: `Array`, DLPack, indexing and updates of elements, and drawings of shardings.
#pragma once

#include "sharding/array/array.h"
#include "sharding/array/dlpack.h"
#include "sharding/array/index.h"
#include "sharding/array/visualize.h"
