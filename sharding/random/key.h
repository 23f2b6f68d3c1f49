// Key: counter-based random numbers (threefry2x32), equal to JAX's bit for bit on every mesh.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "sharding/base/dependent_false.h"

namespace tessera {

// A random key: the same key and the same global element index give the same number, whatever the mesh. Keys are
// values: use each once, and split it for more.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); the layout of counters is JAX's
// partitionable scheme (jax_threefry_partitionable), so split, fold_in and bits equal jax.random's.
struct Key {
  std::array<uint32_t, 2> data{};

  Key() = default;
  explicit Key(uint64_t seed) : data{static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)} {}
  static Key from_data(uint32_t high, uint32_t low);

  friend std::ostream& operator<<(std::ostream& out, const Key& key);  // Key::from_data(0, 42), which is Key(42)
  friend bool operator==(const Key&, const Key&) = default;
};

// n independent keys: jax.random.split(key, n).
std::vector<Key> split(const Key& key, int64_t n);

// The same, for structured bindings: auto [k1, k2] = split<2>(key);
template <size_t N>
std::array<Key, N> split(const Key& key) {
  const std::vector<Key> keys = split(key, N);
  std::array<Key, N> result;
  for (size_t i = 0; i < N; ++i) result[i] = keys[i];
  return result;
}
// A mistake: no number.
template <class Nothing = void>
std::array<Key, 2> split(const Key&) {
  static_assert(detail::dependent_false<Nothing>,
                "tessera: split needs the number of keys: auto [k1, k2] = split<2>(key).");
  return {};
}

// A key that depends on `data` as well: jax.random.fold_in(key, data).
Key fold_in(const Key& key, uint32_t data);

}  // namespace tessera
