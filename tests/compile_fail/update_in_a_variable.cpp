// expect: tessera: an update must be one expression: x = x.at({0}).set(v).
#include "sharding/array.h"

tessera::Array updated(const tessera::Array& x, const tessera::Array& v) {
  auto update = x.at({0});
  update.set(v);
  return x;
}
