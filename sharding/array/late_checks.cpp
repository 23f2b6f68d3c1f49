// The least and the greatest index of each operation and line, which stay on the device until a value is read.
#include "sharding/array/late_checks.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "sharding/array/waits.h"
#include "sharding/diagnostics/fail.h"

namespace tessera::detail {

// What is checked where.
struct Check {
  c10::DeviceIndex device;
  std::string verb, line;
  int64_t lowest, size;

  friend auto operator<=>(const Check&, const Check&) = default;
};

// By check, the least and the greatest integer so far: int64[2].
struct Noted {
  std::mutex mutex;
  std::map<Check, at::Tensor> bounds;
};

namespace {

thread_local Noted* apart = nullptr;  // of a function that is recorded

Noted& noted() {
  static auto* all = new Noted;  // never destroyed: its tensors would outlive their device
  return *all;
}

void add(Noted& all, const Check& check, at::Tensor bounds) {
  const std::lock_guard lock(all.mutex);
  at::Tensor& known = all.bounds[check];
  if (known.defined())
    bounds = at::stack(
        {at::minimum(known.select(0, 0), bounds.select(0, 0)), at::maximum(known.select(0, 1), bounds.select(0, 1))});
  known = bounds;
}

using Pending = std::vector<std::pair<Check, at::Tensor>>;

Pending take_pending(c10::DeviceIndex device) {
  Noted& all = noted();
  const std::lock_guard lock(all.mutex);
  Pending pending;
  std::erase_if(all.bounds, [&](const auto& entry) {
    if (entry.first.device != device) return false;
    pending.push_back(entry);
    return true;
  });
  return pending;
}

// `bounds`: on the host, two for each check.
void refuse_outside(const Pending& pending, const at::Tensor& bounds) {
  const auto* values = static_cast<const int64_t*>(bounds.const_data_ptr());
  for (size_t i = 0; i < pending.size(); ++i) {
    const Check& check = pending[i].first;
    const int64_t first = values[2 * i], last = values[2 * i + 1];
    if (first >= check.lowest && last < check.size) continue;
    fail(ErrorKind::bad_argument, check.verb.c_str(),
         "indices from {} to {} given, expected {} to {}. At {}, said late, with a value read from the accelerator: "
         "what was computed since then used the nearest indices.",
         first, last, check.lowest, check.size - 1, check.line);
  }
}

at::Tensor bounds_of(const Pending& pending) {
  std::vector<at::Tensor> all;
  for (const auto& [check, bounds] : pending) all.push_back(bounds);
  return at::cat(all);
}

}  // namespace

at::Tensor checked_later(const char* verb, const at::Tensor& integers, int64_t lowest, int64_t size) {
  if (integers.numel() == 0) return integers;
  if (size == 0) fail(ErrorKind::bad_argument, verb, "{} indices given for a dim without elements.", integers.numel());
  const auto [least, greatest] = at::aminmax(integers);
  at::Tensor bounds = at::stack({least, greatest});
  if (bounds.scalar_type() != at::kLong) bounds = bounds.to(at::kLong);
  add(apart ? *apart : noted(), {integers.device().index(), verb, latest_line(), lowest, size}, bounds);
  return at::clamp(integers, lowest, size - 1);
}

void RecordedChecks::during(const std::function<void()>& f) {
  noted_ = std::make_shared<Noted>();
  const ScopedValue<Noted*> scope(apart, noted_.get());
  f();
}

void RecordedChecks::note() const {
  for (const auto& [check, bounds] : noted_->bounds) add(noted(), check, bounds.clone());
}

at::Tensor read_back(const at::Tensor& t) {
  constexpr size_t few = 4096;  // bytes, which are copied together with the checks
  const Pending pending = take_pending(t.device().index());
  if (pending.empty()) return t.to(at::kCPU);
  const at::Tensor bounds = bounds_of(pending);
  if (t.nbytes() > few) {
    refuse_outside(pending, bounds.to(at::kCPU));
    return t.to(at::kCPU);
  }
  const at::Tensor values = t.detach().contiguous().reshape({-1}).view(at::kByte);
  const at::Tensor bytes = at::cat({bounds.view(at::kByte), values}).to(at::kCPU);
  const auto before = static_cast<int64_t>(bounds.nbytes());
  refuse_outside(pending, bytes.narrow(0, 0, before));
  return bytes.narrow(0, before, bytes.numel() - before).view(t.scalar_type()).reshape(t.sizes()).clone();
}

at::Tensor moved_to(const at::Tensor& t, c10::Device device) {
  if (t.device() == device) return t;
  return t.to(device, t.scalar_type(), /*non_blocking=*/t.is_cpu());
}

}  // namespace tessera::detail
