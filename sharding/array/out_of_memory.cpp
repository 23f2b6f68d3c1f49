// Recognizes failed allocations of LibTorch and C++, and reports the memory in use.
#include "sharding/array/out_of_memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <new>
#include <utility>

#include "sharding/array/tape_state.h"
#include "sharding/base/caller.h"
#include "sharding/base/fail.h"
#include "sharding/base/table.h"

namespace tessera::detail {
namespace {

// Returns the number of bytes in LibTorch's messages: "you tried to allocate 4096 bytes" of the CPU's allocator, "Tried
// to allocate 2.50 GiB" of an accelerator's; 0 if there is none.
int64_t bytes_in(const std::string& message) {
  constexpr std::string_view words = "ried to allocate ";
  const size_t at = message.find(words);
  if (at == std::string::npos) return 0;
  char* end = nullptr;
  const double number = std::strtod(message.c_str() + at + words.size(), &end);
  constexpr std::array<std::pair<std::string_view, double>, 3> units{
      {{" KiB", 1024.0}, {" MiB", 1024.0 * 1024}, {" GiB", 1024.0 * 1024 * 1024}}};
  for (const auto& [unit, factor] : units)
    if (std::string_view(end).starts_with(unit)) return static_cast<int64_t>(number * factor);
  return static_cast<int64_t>(number);
}

// The memory of this process, as Linux reports it; 0 elsewhere.
int64_t resident_bytes() {
  int64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::string memory_in_use(c10::Device device) {
  if (device.is_cpu()) {
    const int64_t resident = resident_bytes();
    return resident == 0 ? "" : fmt::format("The CPU devices of this process hold {} bytes. ", with_commas(resident));
  }
  auto* allocator = dynamic_cast<c10::DeviceAllocator*>(c10::GetAllocator(device.type()));
  if (!allocator || !allocator->initialized()) return "";
  constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return fmt::format("Tensors hold {} bytes of {}. ",
                     with_commas(allocator->getDeviceStats(device.index()).allocated_bytes[all].current), device.str());
}

}  // namespace

FailedAllocation FailedAllocation::now(int64_t bytes) {
  return {bytes, current_module_path(), differentiated_tape() != nullptr};
}

bool operator==(const FailedAllocation& a, const FailedAllocation& b) {
  const auto path = [](const FailedAllocation& x) { return x.module ? std::string_view(*x.module) : ""; };
  return a.bytes == b.bytes && path(a) == path(b) && a.in_backward_pass == b.in_backward_pass;
}

std::optional<FailedAllocation> failed_allocation(const std::exception& error) {
  if (const auto* known = dynamic_cast<const AllocationError*>(&error)) return known->failed;
  if (dynamic_cast<const std::bad_alloc*>(&error)) return FailedAllocation::now(0);
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  if (!of_torch) return std::nullopt;
  const std::string message = of_torch->what_without_backtrace();
  if (!dynamic_cast<const c10::OutOfMemoryError*>(of_torch) &&
      message.find("DefaultCPUAllocator: ") == std::string::npos)
    return std::nullopt;
  return FailedAllocation::now(bytes_in(message));
}

void check_allocation(const std::exception& error, std::string_view verb, const std::source_location& where,
                      std::string_view purpose, c10::Device device) {
  if (dynamic_cast<const Error*>(&error)) return;
  const std::optional<FailedAllocation> failed = failed_allocation(error);
  if (!failed) return;
  const CallerLine line(where);
  const std::string asked = failed->bytes == 0 ? "memory" : with_commas(failed->bytes) + " bytes";
  try {
    fail(ErrorKind::out_of_memory, verb,
         "no memory {}: {} asked for at {}. {}Use a smaller batch, more devices, or rules that shard these arrays.",
         purpose, asked, line_name(static_cast<const std::source_location&>(line)), memory_in_use(device));
  } catch (const Error& refusal) {
    throw AllocationError(refusal.what(), *failed);
  }
}

}  // namespace tessera::detail
