// HostStream: updates tensors in host memory on an accelerator, through two buffers of its memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tessera::detail {

// Returns the bytes of one of the two buffers of a HostStream. 64 MiB takes a PCIe 5 bus about 1 ms, much longer than a
// copy takes to start. Tests set it: ScopedValue(host_buffer_bytes(), int64_t{4096}).
int64_t& host_buffer_bytes();

// Copies to the device and back have a stream each, so that they are concurrent with each other and with the kernels
// of the previous block. The host never waits.
class HostStream {
 public:
  // Splits of tensors at multiples of this number of elements keep the alignment of vector instructions.
  static constexpr int64_t alignment = 64;

  // Allocates two buffers of `elements` elements on the device.
  HostStream(c10::Device device, at::ScalarType dtype, int64_t elements);
  ~HostStream();

  // Copies the flat tensors `from` into a buffer, calls compute(copies), and copies them to `to`. Each tensor takes a
  // multiple of `alignment` elements of the buffer.
  using Flat = std::vector<at::Tensor>;
  void update(const Flat& from, const Flat& to, const std::function<void(const Flat&)>& compute);
  // Makes the kernels that are queued from now on wait for all copies.
  void finish();

 private:
  struct Streams;
  std::unique_ptr<Streams> streams_;  // null on an abstract device
  std::array<at::Tensor, 2> buffers_;
  size_t blocks_ = 0;
};

}  // namespace tessera::detail
