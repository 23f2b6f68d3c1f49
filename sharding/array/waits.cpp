// A kernel in front of LibTorch's own that make the host wait; threads that nobody watches never come by it.
#include "sharding/array/waits.h"

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>

#include "sharding/base/caller.h"
#include "sharding/base/environment_flag.h"
#include "sharding/base/fail.h"
#include "sharding/base/source_lines.h"
#include "sharding/runtime/graph.h"

namespace tessera::detail {
namespace {

// LibTorch's own for whoever wants to see operations before anything else does.
constexpr c10::DispatchKey in_front = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local WaitWatcher* watcher = nullptr;
thread_local bool asked_for_now = false;
thread_local bool refused_here = false;

bool on_accelerator(const at::Tensor& t) { return t.defined() && !t.is_cpu() && !t.is_meta(); }

void tell(Wait wait, const std::string& kernel) {
  if (watcher) watcher->waits(wait, kernel);
  if (!refused_here || !waits_are_errors() || asked_for_now) return;
  const char* operation = *latest_operation().name ? latest_operation().name : "LibTorch";
  fail(ErrorKind::device_mismatch, operation,
       "{}: the host waits for the accelerator ({}: {}), which TESSERA_CHECK_SYNC makes an error. Read values "
       "outside of steps, with item or to_host.",
       latest_line(), kernel, wait == Wait::value ? "a value is read" : "memory of the host is handed over");
}

// The first tensor of a call.
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
  if (on_accelerator(subject(op, *stack))) tell(Wait::value, op.schema().name());
  call_behind(op, keys, stack);
}

// copy_(to, from, non_blocking)
void copy(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const at::Tensor to = (*stack)[stack->size() - 3].toTensor(), from = (*stack)[stack->size() - 2].toTensor();
  if (to.is_cpu() && on_accelerator(from)) tell(Wait::value, op.schema().name());
  if (on_accelerator(to) && from.is_cpu() && !stack->back().toBool()) tell(Wait::place, op.schema().name());
  call_behind(op, keys, stack);
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) { library.fallback(torch::CppFunction::makeFallthrough()); }

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&copy>());
  for (const char* name : {"_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "unique_consecutive",
                           "unique_dim", "repeat_interleave.Tensor", "bincount"})
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&read_of_a_value>());
}

}  // namespace

LatestOperation& latest_operation() {
  thread_local LatestOperation latest;
  return latest;
}

std::string latest_line() {
  const CallerLine line(latest_operation().where);
  return line_name(line);
}

WaitWatcher::WaitWatcher() : outer_(watcher), was_on_(c10::impl::tls_is_dispatch_key_included(in_front)) {
  watcher = this;
  c10::impl::tls_set_dispatch_key_included(in_front, true);
}

WaitWatcher::~WaitWatcher() {
  watcher = outer_;
  c10::impl::tls_set_dispatch_key_included(in_front, was_on_ || refused_here);
}

bool& waits_are_errors() {
  static bool on = environment_flag("TESSERA_CHECK_SYNC");
  return on;
}

void refuse_waits_of_thread() {
  if (std::exchange(refused_here, true)) return;
  c10::impl::tls_set_dispatch_key_included(in_front, true);
}

AllowHostSync::AllowHostSync() : ScopedValue(asked_for_now, true) { refuse_in_recording("item", "a value is read"); }

}  // namespace tessera::detail
