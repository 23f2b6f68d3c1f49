// Adds a list of the arrays on a full device to an Error of kind out_of_memory.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "nn/tree/tree.h"

namespace tessera::nn {

class PlacementTable;

namespace detail {

// Returns whether the exception that is being handled is a failed allocation without further lines.
bool is_out_of_memory();

// Rethrows the exception that is being handled, a failed allocation, as an Error (out_of_memory) with sections() as
// further lines. `verb` is used if the exception has none. The arrays of `model` are on the full device.
[[noreturn]] void rethrow_with_sections(const char* verb, const Leaves& model,
                                        const std::function<std::string()>& sections);

// Returns the bytes of a table on each device, the replicated part, and the five largest arrays.
std::string largest_arrays(std::string_view name, const PlacementTable& table);
// Returns the mesh axes along which more bytes of the table are replicated than sharded.
std::vector<std::string> replicated_axes(const PlacementTable& table);

}  // namespace detail
}  // namespace tessera::nn
