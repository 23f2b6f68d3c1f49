// expect: tessera: item reads a number, of the type that it is given: x.item<float>().
#include "sharding/array.h"

std::string read(const tessera::Array& x) { return x.item<std::string>(); }
