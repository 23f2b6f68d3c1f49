// expect: tessera: item returns a number, so its type must be arithmetic: x.item<float>().
#include "sharding/array.h"

std::string read(const tessera::Array& x) { return x.item<std::string>(); }
