// What the reference files share: contents of inputs by formula, placements, and checksums of results.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <vector>

#include "sharding/array/array.h"

namespace tessera::runner {

using Json = boost::json::value;

// One name, or a list of them.
std::vector<std::string> names_of(const Json& value);

// A spec in the files' notation, unreduced and reduced axes included; "?" is a dim that is left open.
PartitionSpec spec_of(const Json& value);

// The contents that `init` describes, as an array that is not placed. Error (invalid_file) for a kind it does not know.
Array contents(const Json& init, const Shape& shape, DType dtype);

// value[i] = (((i k + c) mod m) - s) / d, the weights of checksums and of losses.
Array weights(const Json& formula, const Shape& shape, DType dtype);

// Compares x with a checksum of the files: shape, element type, sums, samples. What differs in words, empty if nothing;
// `tolerance` is that of one element.
std::string difference(const Array& x, const Json& checksum, const Json& weights, double tolerance);

// What the element type rounds, relative to a value.
double rounding(DType dtype);

// Over all elements, relative to 1 + |b|; infinite where the shapes differ.
double largest_difference(const Array& a, const Array& b);

}  // namespace tessera::runner
