// use_caching_cpu_allocator, which speeds up training on CPUs.
#pragma once

#include "sharding/kernels/caching_cpu_allocator.h"
