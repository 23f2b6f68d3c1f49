// Draws a program from a seed.
#pragma once

#include "tests/programs/program.h"

namespace tessera::programs {

// Draws the program of a seed. It is the same on every machine that has the same cases, and is well conditioned
// (evaluate.h).
Program draw(uint64_t seed);

}  // namespace tessera::programs
