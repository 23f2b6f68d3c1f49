// Stores the minimum and maximum index of each operation and line on the device until a value is read.
#include "sharding/array/late_checks.h"

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "sharding/array/host_sync.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/staging_pool.h"
#include "sharding/runtime/graph.h"

namespace tessera::detail {

// One check: a device, an operation, its line, the meaning, range and element type of the integers.
struct Check {
  c10::DeviceIndex device;
  std::string verb, line, what;
  int64_t lowest, size;
  at::ScalarType dtype;

  friend auto operator<=>(const Check&, const Check&) = default;
};

// The buffer of one read: a short value, followed by one row for each check.
struct CheckTable {
  static constexpr int64_t value = 4096, row = 16;  // bytes

  at::Tensor bytes;
  std::map<Check, int64_t> rows;  // by check, the row with the minimum and maximum so far

  int64_t size() const { return value + row * static_cast<int64_t>(rows.size()); }
  // Returns the elements that begin at this byte.
  at::Tensor elements(int64_t first, int64_t count, at::ScalarType dtype) const {
    return bytes.narrow(0, first, count * static_cast<int64_t>(at::elementSize(dtype))).view(dtype);
  }
  at::Tensor bounds(const Check& check, int64_t number) const { return elements(value + row * number, 2, check.dtype); }
};

struct Noted {
  std::mutex mutex;
  std::map<c10::DeviceIndex, CheckTable> tables;
};

namespace {

thread_local Noted* apart = nullptr;  // the checks of a function that is being recorded

Noted& noted() {
  static auto* all = new Noted;  // never destroyed: its tensors would outlive their device
  return *all;
}

at::Tensor memory_for_table(int64_t bytes, const c10::Device& device) {
  static auto* kept = new StagingPool;
  return kept->get({bytes}, at::TensorOptions(device).dtype(at::kByte));
}

// Adds a row, in a larger buffer if this one is full.
at::Tensor add_row(CheckTable& table, const Check& check, const c10::Device& device) {
  constexpr int64_t rows = 256;
  if (!table.bytes.defined()) table.bytes = memory_for_table(CheckTable::value + rows * CheckTable::row, device);
  if (table.size() + CheckTable::row > table.bytes.numel()) {
    const at::Tensor larger = memory_for_table(2 * table.bytes.numel(), device);
    larger.narrow(0, 0, table.size()).copy_(table.bytes.narrow(0, 0, table.size()));
    table.bytes = larger;
  }
  const auto number = static_cast<int64_t>(table.rows.size());
  table.rows.emplace(check, number);
  return table.bounds(check, number);
}

// Combines the two bounds that `write` writes with those of earlier calls of this check.
void add(Noted& all, const Check& check, const c10::Device& device,
         const std::function<void(const at::Tensor& bounds)>& write) {
  static auto* kept = new StagingPool;
  const std::lock_guard lock(all.mutex);
  CheckTable& table = all.tables[check.device];
  const auto known = table.rows.find(check);
  if (known == table.rows.end()) return write(add_row(table, check, device));
  const at::Tensor more = kept->get({2}, at::TensorOptions(device).dtype(check.dtype));
  write(more);
  const at::Tensor bounds = table.bounds(check, known->second);
  at::Tensor least = bounds.select(0, 0), greatest = bounds.select(0, 1);
  at::minimum_out(least, least, more.select(0, 0));
  at::maximum_out(greatest, greatest, more.select(0, 1));
}

// Returns the device's table and removes it, so that the caller alone has its buffer: the next check gets another.
CheckTable take_table(c10::DeviceIndex device) {
  Noted& all = noted();
  const std::lock_guard lock(all.mutex);
  const auto found = all.tables.find(device);
  return found == all.tables.end() ? CheckTable() : std::exchange(found->second, CheckTable());
}

// Throws if a minimum or maximum in the table is out of range. `rows` has all rows, on the host.
void refuse_outside(const CheckTable& table, const at::Tensor& rows) {
  for (const auto& [check, number] : table.rows) {
    const at::Tensor bounds =
        rows.narrow(0, CheckTable::row * number, 2 * at::elementSize(check.dtype)).view(check.dtype);
    const auto first = bounds[0].item<int64_t>(), last = bounds[1].item<int64_t>();
    if (first >= check.lowest && last < check.size) continue;
    fail(ErrorKind::invalid_argument, check.verb.c_str(),
         "{} from {} to {} given, expected {} to {}. At {}, reported late, with a value read from the accelerator: "
         "what was "
         "computed since then used the nearest {}.",
         check.what, first, last, check.lowest, check.size - 1, check.line, check.what);
  }
}

at::Tensor kept_indices(const at::Tensor& like, at::ScalarType dtype) {
  static auto* kept = new StagingPool(64);  // the indices of a step are kept until its end
  return kept->get(like.sizes(), like.options().dtype(dtype));
}

}  // namespace

at::Tensor checked_later(const char* verb, const at::Tensor& integers, int64_t lowest, int64_t size,
                         at::ScalarType dtype, const char* what) {
  if (integers.numel() == 0) return integers.to(dtype);
  if (size == 0)
    fail(ErrorKind::invalid_argument, verb, "{} {} given for a dim without elements.", integers.numel(), what);
  if (integers.scalar_type() == at::kLong && dtype != at::kLong)  // a conversion would change large integers
    return checked_later(verb, integers, lowest, size, at::kLong, what).to(dtype);
  at::Tensor inside = kept_indices(integers, dtype);
  const at::Tensor read = integers.scalar_type() == dtype ? integers : inside.copy_(integers);
  add(apart ? *apart : noted(), {integers.device().index(), verb, latest_line(), what, lowest, size, dtype},
      integers.device(), [&](const at::Tensor& bounds) {
        at::Tensor least = bounds.select(0, 0), greatest = bounds.select(0, 1);
        at::aminmax_out(least, greatest, read);
      });
  return at::clamp_out(inside, read, lowest, size - 1);
}

void RecordedChecks::during(const std::function<void()>& f) {
  noted_ = std::make_shared<Noted>();
  const ScopedValue<Noted*> scope(apart, noted_.get());
  f();
}

void RecordedChecks::note() const {
  for (const auto& [index, table] : noted_->tables)
    for (const auto& [check, number] : table.rows)
      add(noted(), check, table.bytes.device(),
          [&, &check = check, &number = number, &table = table](const at::Tensor& bounds) {
            bounds.copy_(table.bounds(check, number));
          });
}

at::Tensor read_back(const at::Tensor& t) {
  const CheckTable table = take_table(t.device().index());
  if (table.rows.empty()) return t.to(at::kCPU);
  const auto bytes = static_cast<int64_t>(t.nbytes());
  if (bytes > CheckTable::value) {
    refuse_outside(table, table.bytes.narrow(0, CheckTable::value, table.size() - CheckTable::value).to(at::kCPU));
    return t.to(at::kCPU);
  }
  const int64_t first = (CheckTable::value - bytes) / CheckTable::row * CheckTable::row;
  if (bytes) table.elements(first, t.numel(), t.scalar_type()).copy_(t.detach().reshape({-1}));
  const at::Tensor read = table.bytes.narrow(0, first, table.size() - first).to(at::kCPU);
  refuse_outside(table, read.narrow(0, CheckTable::value - first, table.size() - CheckTable::value));
  return read.narrow(0, 0, bytes).view(t.scalar_type()).reshape(t.sizes()).clone();
}

at::Tensor moved_to(const at::Tensor& t, c10::Device device) {
  if (t.device() == device) return t;
  if (host_work() && t.is_cpu())
    fail(ErrorKind::invalid_argument, latest_operation().name,
         "{}: host memory is copied to the device inside a captured step, whose later calls run without the "
         "host. Place it on the mesh before.",
         latest_line());
  return t.to(device, t.scalar_type(), /*non_blocking=*/t.is_cpu());
}

}  // namespace tessera::detail
