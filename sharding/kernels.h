// Allocation of CPU tensors.
#pragma once

#include "sharding/kernels/caching_cpu_allocator.h"
