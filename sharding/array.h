// Array: a global value and where it lies, parts of it, and pictures of both.
#pragma once

#include "sharding/array/array.h"
#include "sharding/array/index.h"
#include "sharding/array/visualize.h"
