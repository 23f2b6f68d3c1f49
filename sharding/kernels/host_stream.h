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
  // Rounds up. Splits of tensors at such numbers of elements keep the alignment of vector instructions.
  static int64_t aligned(int64_t n) { return (n + 63) / 64 * 64; }

  // Allocates two buffers of `elements` elements on the device.
  HostStream(c10::Device device, at::ScalarType dtype, int64_t elements);
  ~HostStream();

  // Replaces the flat tensors of `lists` by copies in a buffer, calls compute(), and copies them to those of `results`.
  // Each tensor takes aligned(numel) elements of the buffer.
  using Lists = std::array<std::vector<at::Tensor>*, 2>;
  void update(const Lists& lists, const Lists& results, const std::function<void()>& compute);
  // Makes the kernels that are queued from now on wait for all copies.
  void finish();

 private:
  struct Streams;
  std::unique_ptr<Streams> streams_;  // null on an abstract device
  std::array<at::Tensor, 2> buffers_;
  size_t blocks_ = 0;
};

}  // namespace tessera::detail
