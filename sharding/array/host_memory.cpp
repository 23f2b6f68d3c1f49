// Arrays whose pending transfer is the copy from host memory to the device.
#include "sharding/array/host_memory.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "sharding/array/abstract_tensor.h"
#include "sharding/array/late_checks.h"
#include "sharding/array/ownership.h"
#include "sharding/base/thread_state.h"

namespace tessera::detail {
namespace {

// The arrival of an array in host memory.
struct FromHost {
  Tensors host;
  c10::Device device;

  Tensors operator()() const {
    Tensors local;
    for (const at::Tensor& t : host) local.push_back(t.is_meta() ? at::empty_like(t) : moved_to(t, device));
    return local;
  }
};

bool has_accelerator(const MeshImpl* mesh) { return mesh && !mesh->device.is_cpu(); }

const FromHost& from_host(const Array& x) { return *x.impl()->details->arrival.target<FromHost>(); }

at::Tensor copied_to_host(const at::Tensor& t) { return t.is_cpu() ? t : pinned_like(t).copy_(t, true); }

Array over_host(const ArrayImpl& a, Tensors host) {
  Array made = with_tensors(a, {});
  set_pending(*made.impl(), FromHost{std::move(host), a.type->mesh->device});
  return made;
}

}  // namespace

at::Tensor pinned_memory(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::empty(shape, at::TensorOptions(dtype).pinned_memory(true));
}

at::Tensor pinned_like(const at::Tensor& t) {
  if (!t.is_meta()) return pinned_memory(t.sizes(), t.scalar_type());
  const ScopedValue<std::shared_ptr<Meter>> uncounted(current_meter(), nullptr);
  return at::empty_like(t);
}

const Tensors* host_tensors(const Array& x) {
  if (state_of(x) != ArrayState::pending) return nullptr;
  const FromHost* arrival = x.impl()->details->arrival.target<FromHost>();
  return arrival ? &arrival->host : nullptr;
}

Array in_host_memory(const Array& x) {
  if (x.is_absent() || !has_accelerator(x.impl()->type->mesh) || host_tensors(x)) return x;
  const ArrayImpl& a = materialized(x, "in_host_memory");
  Tensors host;
  for (const at::Tensor& t : a.local) host.push_back(copied_to_host(t));
  return over_host(a, std::move(host));
}

Array on_device(const Array& x) { return host_tensors(x) ? with_tensors(*x.impl(), from_host(x)()) : x; }

ArrayPtr read_host_memory(const Array& x) {
  const FromHost& from = from_host(x);
  if (!from.device.is_meta()) c10::impl::VirtualGuardImpl(from.device.type()).synchronizeDevice(from.device.index());
  return with_tensors(*x.impl(), from.host).impl();
}

HostUpdate host_update(const Array& x) {
  const Tensors& host = *host_tensors(x);
  const bool is_owner = x.impl().use_count() == 1 &&
                        std::all_of(host.begin(), host.end(), [](const at::Tensor& t) { return owns_memory(t); });
  if (is_owner) return {host, host, x};
  Tensors fresh;
  for (const at::Tensor& t : host) fresh.push_back(pinned_like(t));
  return {host, fresh, over_host(*x.impl(), fresh)};
}

}  // namespace tessera::detail
