// Error: the exception class of the library, and functions that throw it.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

// The kind of failure that an Error reports, for programs that react to it. The text for people is what().
enum class ErrorKind {
  other,             // a failure outside the program that no other kind describes
  not_divisible,     // a dimension is not divisible by the mesh axes that shard it
  duplicate_axis,    // a mesh axis that appears twice in a mesh or in a spec
  unknown_axis,      // a mesh axis or a logical axis name that was not declared
  rank_mismatch,     // a spec has more entries than the array has dimensions
  unconstrained,     // a spec leaves a dimension unconstrained where each dimension needs a sharding
  shape_mismatch,    // operands with incompatible shapes
  dtype_mismatch,    // an element type that the operation does not support
  device_mismatch,   // arrays on different device sets, or a mesh larger than the devices
  missing_array,     // an absent array: a filter removed it from its tree
  no_gradient,       // the loss does not depend on the model that was passed
  invalid_file,      // a file that is missing, malformed, or has unexpected contents
  invalid_argument,  // a value that the function does not accept
  varying_axis,      // a value that varies over a mesh axis, but must be equal on all devices
  size_mismatch,     // a dimension whose size differs from the size of a collective's mesh axes
  duplicate_pair,    // a permutation with a duplicate source or destination
  forbidden,         // a communication that a scope forbids, or that exceeds its budget
  inconsistent,      // found by TESSERA_CHECK=1: replicas that differ, a partial sum read as a value
  not_finite,        // found by DetectNonFinite: the first value that is NaN or inf
  out_of_memory,     // no memory for a block of an array
  lost_process,      // another process of the run ended, does not respond, or is unreachable
  stopped,           // the loader was stopped, or the group of processes has ended
};

// The exception of the library. Messages have the form "[verb] path: given, expected, what to do". The path is omitted
// if there is none.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Throws an Error with the message "[verb] message". Adds the current module path (ModulePathScope) unless `message`
// names it, and escapes control characters, also line feeds. fail_lines appends each of `lines` on its own line,
// indented.
[[noreturn]] void fail(ErrorKind kind, std::string_view verb, std::string_view message);
[[noreturn]] void fail_lines(ErrorKind kind, std::string_view verb, std::string_view message,
                             std::span<const std::string> lines);

namespace detail {

// False, but only evaluated at instantiation. For overloads that only mistaken calls select:
//   static_assert(dependent_false<Tree>, "tessera: ...");
template <class...>
inline constexpr bool dependent_false = false;

// Throws invalid_argument: "[verb] this dataset was moved into another; use that one.", if `what` is "dataset".
[[noreturn]] void fail_moved(std::string_view verb, std::string_view what);

// Returns *pointer. Throws the Error of fail_moved if it is null, because the handle was moved from.
template <class Pointer>
const auto& held(const Pointer& pointer, std::string_view verb, std::string_view what) {
  if (!pointer) fail_moved(verb, what);
  return *pointer;
}

}  // namespace detail
}  // namespace tessera
