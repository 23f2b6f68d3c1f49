// Registers the graphs of each kind of device, and rejects operations that a recorded function must not do.
#include "sharding/runtime/graph.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sharding/base/fail.h"

namespace tessera::detail {
namespace {

thread_local const RecordedFunction* recorded = nullptr;

}  // namespace

MakeGraph& graphs_of(c10::DeviceType kind) {
  static std::array<MakeGraph, c10::COMPILE_TIME_MAX_DEVICE_TYPES> all{};
  return all[static_cast<size_t>(kind)];
}

HostWork::HostWork(c10::Device device) : numbers_(at::empty({256}, at::TensorOptions(device).dtype(at::kDouble))) {}

at::Tensor HostWork::anew(std::function<double()> number, at::ScalarType dtype) {
  const auto place = static_cast<int64_t>(before_.size());
  if (place == numbers_.numel())
    fail(ErrorKind::invalid_argument, "GraphedStep",
         "more than {} numbers of the host in a captured step, expected fewer.", numbers_.numel());
  at::Tensor there = numbers_.narrow(0, place, 1).view(dtype).select(0, 0);
  before_.push_back([there, number = std::move(number)]() mutable { there.fill_(number()); });
  return there;
}

void HostWork::put_numbers() const {
  for (const auto& put : before_) put();
}

Recording::Recording(const RecordedFunction& function) : ScopedValue(recorded, &function) {}

bool is_recording() { return recorded != nullptr; }

HostWork* host_work() { return recorded ? recorded->work : nullptr; }

bool may_change(const void* object) {
  const auto has = [object](const ObjectPlace& place) {
    const auto *at = static_cast<const char*>(object), *first = static_cast<const char*>(place.at);
    return at >= first && at < first + place.size;
  };
  return recorded && std::any_of(recorded->changed.begin(), recorded->changed.end(), has);
}

void refuse_in_recording(const char* verb, const char* what) {
  if (recorded)
    fail(ErrorKind::invalid_argument, verb,
         "{} inside a captured step, whose later calls run without the host. Do it after the call.", what);
}

}  // namespace tessera::detail
