// TESSERA_PLACEMENTS: fewer shardings for tests that run again on threads, devices or processes.
#pragma once

#include <cstdlib>
#include <string>

namespace tessera::testing {

// Returns the number of shardings to check each law with, from TESSERA_PLACEMENTS; 0: the test's own number.
inline size_t placements_said() {
  const char* said = std::getenv("TESSERA_PLACEMENTS");
  return said ? std::stoul(said) : 0;
}

}  // namespace tessera::testing
