// Intercepts LibTorch kernels that wait for the accelerator, in threads with a HostSyncObserver.
#include "sharding/array/host_sync.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>

#include "sharding/array/dispatcher.h"
#include "sharding/base/caller.h"
#include "sharding/base/environment.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/tensors.h"
#include "sharding/runtime/graph.h"

namespace tessera::detail {
namespace {

// LibTorch reserves this key for modes that intercept operations before all other keys.
constexpr c10::DispatchKey in_front = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local bool is_allowed = false;
thread_local int num_observers = 0;  // HostSyncObservers of the thread

void notify(HostSync sync, const c10::OperatorHandle& op) {
  emit(Events::host_syncs, &Observer::waited, sync, op.schema().name());
}

// Returns the first tensor argument of a call.
at::Tensor subject(const c10::OperatorHandle& op, const torch::jit::Stack& stack) {
  const size_t first = stack.size() - op.schema().arguments().size();
  const auto found = std::find_if(stack.begin() + static_cast<ptrdiff_t>(first), stack.end(),
                                  [](const c10::IValue& value) { return value.isTensor(); });
  return found == stack.end() ? at::Tensor() : found->toTensor();
}

void call_behind(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, in_front), stack);
}

void read_of_a_value(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (is_on_accelerator(subject(op, *stack))) notify(HostSync::read, op);
  call_behind(op, keys, stack);
}

// Intercepts copy_(to, from, non_blocking).
void copy(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const at::Tensor to = (*stack)[stack->size() - 3].toTensor(), from = (*stack)[stack->size() - 2].toTensor();
  const bool waits = !stack->back().toBool();  // a copy to pageable memory always does
  if (to.is_cpu() && is_on_accelerator(from) && (waits || !to.is_pinned())) notify(HostSync::read, op);
  if (is_on_accelerator(to) && from.is_cpu() && waits) notify(HostSync::upload, op);
  call_behind(op, keys, stack);
}

void register_kernels_once() {
  static const bool registered = [] {
    add_fallback("DetectSync", in_front, torch::CppFunction::makeFallthrough());
    torch::Library& library = permanent_library("aten", in_front);
    library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&copy>());
    for (const char* name : {"_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2",
                             "unique_consecutive", "unique_dim", "repeat_interleave.Tensor", "bincount"})
      library.impl(name, torch::CppFunction::makeFromBoxedFunction<&read_of_a_value>());
    return true;
  }();
  static_cast<void>(registered);
}

class ForbidHostSync : public HostSyncObserver {
  void waited(HostSync sync, const std::string& kernel) override {
    if (!host_syncs_are_errors() || is_allowed) return;
    const char* operation = *latest_operation().name ? latest_operation().name : "LibTorch";
    fail(ErrorKind::device_mismatch, operation,
         "{}: the host waits for the accelerator ({}: {}), which TESSERA_CHECK_SYNC makes an error. Read values "
         "outside of steps, with item or to_host.",
         latest_line(), kernel, sync == HostSync::read ? "a value is read" : "host memory is copied to it");
  }
};

}  // namespace

LatestOperation& latest_operation() {
  thread_local LatestOperation latest;
  return latest;
}

std::string latest_line() {
  const CallerLine line(latest_operation().where);
  return line_name(line);
}

HostSyncObserver::HostSyncObserver() : Observer(Events::host_syncs) {
  register_kernels_once();
  if (num_observers++ == 0) c10::impl::tls_set_dispatch_key_included(in_front, true);
}

HostSyncObserver::~HostSyncObserver() {
  if (--num_observers == 0) c10::impl::tls_set_dispatch_key_included(in_front, false);
}

bool& host_syncs_are_errors() {
  static bool on = environment_flag("TESSERA_CHECK_SYNC");
  return on;
}

void forbid_host_syncs_of_thread() { thread_local const ForbidHostSync forbids; }

AllowHostSync::AllowHostSync() : ScopedValue(is_allowed, true) { refuse_in_recording("item", "a value is read"); }

}  // namespace tessera::detail
