// Random: keys, and numbers that are the same on every mesh (jax.random).
#pragma once

#include "sharding/random/key.h"
#include "sharding/random/random.h"
