// Arrays in pinned host memory. Their sharding is on a mesh of accelerators: the first use of an array copies it there.
#pragma once

#include <vector>

#include "sharding/array/array_impl.h"

namespace tessera::detail {

// Returns an uninitialized tensor like `t` in pinned host memory. A Forecast does not count the tensor of an abstract
// `t`.
at::Tensor pinned_like(const at::Tensor& t);
at::Tensor pinned_memory(at::IntArrayRef shape, at::ScalarType dtype);

// Returns x in pinned host memory, copied there on the current stream; the host does not wait. The result is pending:
// an operation that uses it copies it to its device, where it stays. Returns x itself if x is absent or its mesh has no
// accelerator. An abstract mesh counts as a mesh of accelerators. A Forecast does not count the result.
Array in_host_memory(const Array& x);
// Returns the tensors of x in host memory, into which copies may be running; null if x is elsewhere.
const Tensors* host_tensors(const Array& x);
// Returns x on its device: a copy if x is in host memory. x stays in host memory.
Array on_device(const Array& x);
// Returns an array over the tensors in host memory, for the host to read. Waits for all copies.
ArrayPtr read_host_memory(const Array& x);

// An update of an array in host memory: `next`, over the tensors `to`, replaces the array. `next` is the array itself
// if nothing else refers to its memory.
struct HostUpdate {
  Tensors from, to;
  Array next;
};
HostUpdate host_update(const Array& x);

}  // namespace tessera::detail
