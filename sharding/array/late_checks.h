// Range checks of integers on an accelerator: recorded there without waiting, and reported when the next value is read.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace tessera::detail {

// Returns `integers`, which are on an accelerator, clamped to [lowest, size), as int32 or int64. If some are out of
// range, the next read from that device throws invalid_argument. The message begins with `verb`. It contains the
// operation's line and `what`, the meaning of the integers.
at::Tensor checked_later(const char* verb, const at::Tensor& integers, int64_t lowest, int64_t size,
                         at::ScalarType dtype, const char* what = "indices");

// The checks of a function that a CUDA graph records. Each replay repeats them.
class RecordedChecks {
 public:
  // Runs `f` and stores its checks here.
  void during(const std::function<void()>& f);
  // Adds these checks, with the bounds of the latest replay, to the pending checks of the device.
  void note() const;

 private:
  std::shared_ptr<struct Noted> noted_;
};

// Returns a copy of `t`, which is on an accelerator, on the host. Throws the errors of checks on that device, and
// forgets them.
at::Tensor read_back(const at::Tensor& t);

// Returns `t` on another device. A copy from the host does not wait until the device has read it.
at::Tensor moved_to(const at::Tensor& t, c10::Device device);

}  // namespace tessera::detail
