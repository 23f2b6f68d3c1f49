// Random: keys and random arrays with the same values on every mesh (jax.random).
#pragma once

#include "sharding/random/key.h"
#include "sharding/random/random.h"
