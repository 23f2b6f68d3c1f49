// SeededHash: a hash with a random seed, so that a hostile file cannot choose keys that collide.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::detail {

struct SeededHash {
  size_t operator()(std::string_view text) const;
  size_t operator()(uint64_t number) const;  // of at most 63 bits
};

}  // namespace tessera::detail
