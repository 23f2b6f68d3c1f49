// Adds what a device holds to an Error of kind out_of_memory.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/tree/tree.h"

namespace tessera::nn {

class PlacementTable;

namespace detail {

// Returns whether the exception that is handled is a failed allocation to which nothing has been added yet.
bool is_out_of_memory();

// Rethrows the exception that is handled, a failed allocation, as an Error (out_of_memory) whose further lines are
// sections(). An exception that has no verb yet gets `verb`. `model`: its arrays are on the device that is full.
[[noreturn]] void rethrow_with_sections(const char* verb, const Leaves& model,
                                        const std::function<std::string()>& sections);

// Returns the bytes of a table on each device, the replicated part, and the five largest arrays.
std::string largest_arrays(std::string_view name, const PlacementTable& table);
// Returns the mesh axes along which more bytes of the table are replicated than sharded.
std::vector<std::string> replicated_axes(const PlacementTable& table);

}  // namespace detail
}  // namespace tessera::nn
