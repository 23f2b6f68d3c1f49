// Functions for all kinds of reference files: inputs by formula, specs, and checksums of results.
#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <vector>

#include "sharding/array/array.h"

namespace tessera::runner {

using Json = boost::json::value;

// Returns the names in a string or a list of strings.
std::vector<std::string> names_of(const Json& value);

// Returns the spec for the files' notation, with unreduced and reduced axes. "?" is an unconstrained dimension.
PartitionSpec spec_of(const Json& value);

// Returns the unplaced array that `init` describes. Error (invalid_file): unknown kind.
Array contents(const Json& init, const Shape& shape, DType dtype);

// Returns the weights of checksums and losses: value[i] = (((i k + c) mod m) - s) / d.
Array weights(const Json& formula, const Shape& shape, DType dtype);

// Compares x with a checksum: shape, element type, sums and samples. Returns a description, empty if they agree.
// `tolerance` is per element.
std::string difference(const Array& x, const Json& checksum, const Json& weights, double tolerance);

// Returns the relative rounding error of the element type.
double rounding(DType dtype);

// Returns the largest difference, relative to 1 + |b|; infinite if the shapes differ.
double largest_difference(const Array& a, const Array& b);

}  // namespace tessera::runner
