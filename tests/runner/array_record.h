// What the files say of an array's placement, said of ours in the same words: Json records and their comparison.
#pragma once

#include <boost/json/value.hpp>
#include <string>

#include "sharding/array/array.h"
#include "sharding/base/error.h"

namespace tessera::runner {

using Json = boost::json::value;

// The files' word for a kind of error.
std::string_view word_of(ErrorKind kind);

// The element type of that name in JAX with x64 off, where the 64-bit names mean the 32-bit types.
DType jax_dtype_of(const Json& name);

Json json_of(const Shape& shape);
Json json_of(const IndexRanges& ranges);
Json json_of(const PartitionSpec& spec, int ndim);  // padded to ndim with nulls
Json json_of(Mesh mesh);                            // axes and device ids

// Everything that the files may say of an array: shape, dtype, sharding, mesh, spec, local_shape, is_fully_replicated,
// num_devices, devices in the order of their ids, bytes_per_device, and values if asked for. The local shapes and the
// bytes are those of the shards that the devices hold.
Json record_of(const Array& x, bool with_values = false);

// The values of x, nested as its shape says.
Json values_of(const Array& x);

// What differs where `expected` says something: "key: expected ..., got ...; ...", empty if nothing. Numbers may differ
// by `tolerance`, specs in trailing nulls.
std::string difference(const Json& expected, const Json& got, double tolerance = 0);

}  // namespace tessera::runner
