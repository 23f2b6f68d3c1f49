// Hashes a key as a polynomial of its bytes, evaluated at a random seed modulo 2^61 - 1.
#include "sharding/base/seeded_hash.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace tessera::detail {
namespace {

// Returns (hash + part) * seed modulo the prime 2^61 - 1. `part` has at most 63 bits.
uint64_t hashed(uint64_t hash, uint64_t part) {
  __extension__ using Wide = unsigned __int128;
  constexpr uint64_t prime = (uint64_t{1} << 61) - 1;
  static const uint64_t seed = (uint64_t{std::random_device()()} << 32 | std::random_device()()) % prime;
  const Wide product = Wide{hash + part} * seed;
  return (static_cast<uint64_t>(product & prime) + static_cast<uint64_t>(product >> 61)) % prime;
}

}  // namespace

size_t SeededHash::operator()(std::string_view text) const {
  uint64_t hash = text.size();
  for (; !text.empty(); text.remove_prefix(std::min<size_t>(text.size(), 7))) {  // 7 bytes are below the prime
    uint64_t part = 0;
    std::memcpy(&part, text.data(), std::min<size_t>(text.size(), 7));
    hash = hashed(hash, part);
  }
  return hash;
}
size_t SeededHash::operator()(uint64_t number) const { return hashed(0, number); }

}  // namespace tessera::detail
