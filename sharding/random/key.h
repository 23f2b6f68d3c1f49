// Key: counter-based random numbers (threefry2x32), equal to JAX's bit for bit on every mesh.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "sharding/base/error.h"

namespace tessera {

// A random key. The same key and global element index give the same number on every mesh. Keys are values: use each
// once, and split it for more.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). The layout of counters is JAX's
// partitionable scheme (jax_threefry_partitionable), so split, fold_in and bits equal jax.random's.
struct Key {
  std::array<uint32_t, 2> data{};

  Key() = default;
  explicit Key(uint64_t seed) : data{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)} {}
  static Key from_data(uint32_t high, uint32_t low);

  friend std::ostream& operator<<(std::ostream& out, const Key& key);  // prints Key(42) as "Key::from_data(0, 42)"
  friend bool operator==(const Key&, const Key&) = default;
};

// Returns n independent keys, as jax.random.split(key, n). Throws invalid_argument if n is negative.
std::vector<Key> split(const Key& key, int64_t n);

// Returns N independent keys, for structured bindings: auto [k1, k2] = split<2>(key);
template <size_t N>
std::array<Key, N> split(const Key& key) {
  const std::vector<Key> keys = split(key, N);
  std::array<Key, N> result;
  for (size_t i = 0; i < N; ++i) result[i] = keys[i];
  return result;
}
// Diagnostic for a common mistake: a missing number.
template <class Nothing = void>
std::array<Key, 2> split(const Key&) {
  static_assert(detail::dependent_false<Nothing>,
                "tessera: split needs the number of keys: auto [k1, k2] = split<2>(key).");
  return {};
}

// Returns a key that also depends on `data`: jax.random.fold_in(key, data).
Key fold_in(const Key& key, uint32_t data);

}  // namespace tessera
