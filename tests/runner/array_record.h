// Describes the sharding of arrays in the JSON format of the reference files, and compares such records.
#pragma once

#include <boost/json/value.hpp>
#include <string>

#include "sharding/array/array.h"
#include "sharding/base/error.h"

namespace tessera::runner {

using Json = boost::json::value;

// Returns the name that the reference files use for an error kind.
std::string_view word_of(ErrorKind kind);

// Returns the element type with this name in JAX with x64 disabled: 64-bit names mean 32-bit types.
DType jax_dtype_of(const Json& name);

Json json_of(const Shape& shape);
Json json_of(const IndexRanges& ranges);
Json json_of(const PartitionSpec& spec, int ndim);  // padded to ndim with nulls
Json json_of(Mesh mesh);                            // axes and device ids

// Returns all properties of an array that the files may contain: shape, dtype, sharding, mesh, spec, local_shape,
// is_fully_replicated, num_devices, devices by id, bytes_per_device, and optionally values. Local shapes and bytes
// come from the devices' actual shards.
Json record_of(const Array& x, bool with_values = false);

// Returns the values of x as nested lists.
Json values_of(const Array& x);

// Compares the keys of `expected`. Returns "key: expected ..., got ...; ...", empty if they are equal. Numbers may
// differ by `tolerance`, specs by trailing nulls.
std::string difference(const Json& expected, const Json& got, double tolerance = 0);

}  // namespace tessera::runner
