// Finds a pooled tensor without other references.
#include "sharding/kernels/staging_pool.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "sharding/kernels/plain.h"
#include "sharding/runtime/graph.h"

namespace tessera::detail {

namespace {

bool is_nobodys(const at::Tensor& t) { return t.use_count() == 1 && t.storage().use_count() == 1; }

}  // namespace

at::Tensor StagingPool::get(at::IntArrayRef shape, const at::TensorOptions& options) {
  constexpr size_t small = 1 << 20;  // bytes
  const c10::Device device = options.device();
  if (device.is_cpu() || device.is_meta() || host_work() || uses_plain(Kernel::staging_pool))
    return at::empty(shape, options);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  const std::lock_guard lock(mutex_);
  for (const Kept& kept : kept_) {
    const at::Tensor& t = kept.tensor;
    if (kept.stream == stream && t.sizes() == shape && t.dtype() == options.dtype() && t.device() == device &&
        is_nobodys(t))
      return t;
  }
  const c10::InferenceMode off(false);  // later steps may write to it outside inference mode
  at::Tensor made = at::empty(shape, options);
  if (made.nbytes() > small) return made;
  if (kept_.size() == most_) kept_.pop_front();
  kept_.push_back({made, stream});
  return made;
}

}  // namespace tessera::detail
