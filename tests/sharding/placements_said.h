// TESSERA_PLACEMENTS: a smaller sample for laws that are held once more.
#pragma once

#include <cstdlib>
#include <string>

namespace tessera::testing {

// Where laws are held once more, on threads, devices or processes: how many placements each is held to, as the
// environment's TESSERA_PLACEMENTS says; 0: as many as its test says.
inline size_t placements_said() {
  const char* said = std::getenv("TESSERA_PLACEMENTS");
  return said ? std::stoul(said) : 0;
}

}  // namespace tessera::testing
