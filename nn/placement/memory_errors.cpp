// The sections of out_of_memory errors about arrays at rest.
#include "nn/placement/memory_errors.h"

#include <fmt/format.h>

#include <algorithm>

#include "nn/placement/table.h"
#include "sharding/array/out_of_memory.h"
#include "sharding/base/table.h"
#include "sharding/placement/mesh_impl.h"

namespace tessera::nn::detail {

using tessera::detail::AllocationError;
using tessera::detail::failed_allocation;
using tessera::detail::with_commas;

namespace {

c10::Device device_of(const Leaves& model) {
  for (const Leaf& leaf : model)
    if (!leaf.value->is_absent() && leaf.value->is_committed()) return leaf.value->sharding().mesh().impl()->device;
  return c10::kCPU;
}

AllocationError handled_error(const char* verb, const Leaves& model) try {
  try {
    throw;
  } catch (const std::exception& error) {
    tessera::detail::check_allocation(error, verb, {}, "for its results", device_of(model));
    throw;
  }
} catch (const Error& error) {
  return AllocationError(error.what(), failed_allocation(error).value_or(tessera::detail::FailedAllocation()));
}

}  // namespace

bool is_out_of_memory() try { throw; } catch (const Error& error) {
  return error.kind() == ErrorKind::out_of_memory &&
         std::string_view(error.what()).find('\n') == std::string_view::npos;
} catch (const std::exception& error) {
  return failed_allocation(error).has_value();
} catch (...) {
  return false;
}

void rethrow_with_sections(const char* verb, const Leaves& model, const std::function<std::string()>& sections) {
  const AllocationError error = handled_error(verb, model);
  std::string text;
  try {
    text = sections();
  } catch (const std::exception&) {  // no memory for the sections: the first line remains
  }
  throw AllocationError(std::string(error.what()) + '\n' + text, error.failed);
}

std::string largest_arrays(std::string_view name, const PlacementTable& table) {
  constexpr size_t shown = 5;
  std::vector<PlacementRow> rows = table.rows();
  std::stable_sort(rows.begin(), rows.end(), [](const PlacementRow& a, const PlacementRow& b) {
    return a.bytes_per_device > b.bytes_per_device;
  });
  int64_t replicated = 0;
  for (const PlacementRow& row : rows) replicated += row.num_replicas > 1 ? row.bytes_per_device : 0;
  tessera::detail::Table largest({"  array", "sharding", "bytes on a device", "copies"}, "<<,,");
  for (size_t i = 0; i < std::min(shown, rows.size()); ++i)
    largest.add({"  " + rows[i].path, rows[i].spec, rows[i].bytes_per_device, rows[i].num_replicas});
  return fmt::format("{}: {} bytes on each device, {} of them replicated on other devices.\n{}", name,
                     with_commas(table.bytes_per_device()), with_commas(replicated),
                     rows.empty() ? "" : largest.to_text());
}

std::vector<std::string> replicated_axes(const PlacementTable& table) {
  std::vector<std::string> axes;
  for (const AxisTotals& totals : table.over_axes())
    if (totals.whole_bytes > totals.divided_bytes) axes.push_back(totals.axis.name);
  return axes;
}

}  // namespace tessera::nn::detail
