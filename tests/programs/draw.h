// Draws a program from a seed.
#pragma once

#include "tests/programs/program.h"

namespace tessera::programs {

// The same program for the same seed, on every machine with the same cases. It is well conditioned (evaluate.h).
Program draw(uint64_t seed);

}  // namespace tessera::programs
