// expect: tessera: after pack() and rebatch() a stream takes map(), shuffle() and limit() only; put this word before them.
#include "data/datasets.h"

namespace data = tessera::data;

auto packed = data::range(4).map([](int64_t x) { return std::vector<int>(3, static_cast<int>(x)); }).pack({.length = 8});
auto some = packed.filter([](const data::PackedRow<int>&) { return true; });
