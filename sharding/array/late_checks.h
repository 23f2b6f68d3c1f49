// Checks of values on an accelerator: noted there while the program goes on, and read with the next value.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace tessera::detail {

// `integers`, of an accelerator, each brought into [lowest, size), as int32 or int64. That some lay outside is an error
// (invalid_argument) of the next read from that device, which names this operation, its line and what they are.
at::Tensor checked_later(const char* verb, const at::Tensor& integers, int64_t lowest, int64_t size,
                         at::ScalarType dtype, const char* what = "indices");

// The checks of a function that a graph records: each replay notes them anew.
class RecordedChecks {
 public:
  // What `f` notes is kept here.
  void during(const std::function<void()>& f);
  // Notes it, with what lay outside in the latest replay.
  void note() const;

 private:
  std::shared_ptr<struct Noted> noted_;
};

// A copy of `t`, of an accelerator, on the host. Errors: what was noted on that device; it is forgotten then.
at::Tensor read_back(const at::Tensor& t);

// `t` on another device. From the host without waiting until it is read there.
at::Tensor moved_to(const at::Tensor& t, c10::Device device);

}  // namespace tessera::detail
