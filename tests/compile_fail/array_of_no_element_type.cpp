// expect: tessera: the element type must be float, double, bool, uint8_t, or int8_t to int64_t.
#include "sharding/array.h"

tessera::Array make(const std::vector<size_t>& ids) { return tessera::array(ids); }
