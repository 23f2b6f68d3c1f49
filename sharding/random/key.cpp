// Derives keys from keys by split and fold_in, as jax.random does.
#include "sharding/random/key.h"

#include <ostream>

#include "sharding/base/fail.h"
#include "sharding/random/threefry_simd.h"

namespace tessera {

Key Key::from_data(uint32_t high, uint32_t low) {
  Key key;
  key.data = {high, low};
  return key;
}

std::ostream& operator<<(std::ostream& out, const Key& key) {
  return out << "Key::from_data(" << key.data[0] << ", " << key.data[1] << ')';
}

std::vector<Key> split(const Key& key, int64_t n) {
  if (n < 0) fail(ErrorKind::invalid_argument, "split", "n = {} keys requested. Give a number from 0 on.", n);
  std::vector<Key> keys(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    keys[static_cast<size_t>(i)] = threefry2x32(key, static_cast<uint32_t>(i >> 32), static_cast<uint32_t>(i));
  return keys;
}

Key fold_in(const Key& key, uint32_t data) { return threefry2x32(key, 0, data); }

}  // namespace tessera
