// The one exception that the library throws: what was given, what was expected, what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

// What kind of mistake an Error reports, for programs that react to it; people read what().
enum class ErrorKind {
  other,             // a failure outside the program that no other kind describes
  not_divisible,     // a dim is not divisible by the mesh axes that shard it
  duplicate_axis,    // one mesh axis twice in a mesh, or twice in one spec
  unknown_axis,      // a mesh axis or a logical axis name that was not declared
  rank_mismatch,     // a spec has more entries than the array has dims
  unconstrained,     // a spec leaves a dim open, where every dim must be placed
  shape_mismatch,    // operands whose shapes do not fit together
  dtype_mismatch,    // an element type that the operation does not take
  device_mismatch,   // arrays on different device sets, or a mesh larger than the devices
  missing_array,     // an absent array: a filter took it out of its tree
  no_gradient,       // the loss does not depend on the model that was passed
  invalid_file,      // a file that is missing, malformed or of another content than expected
  invalid_argument,  // a value outside what the function takes
  varying_axis,      // a value that varies over a mesh axis where it must be equal on all devices
  size_mismatch,     // a dim of another size than the mesh axes that a collective runs over
  duplicate_pair,    // a permutation in which two devices send to one, or one sends twice
  forbidden,         // a communication that a scope forbids, or that exceeds its budget
  inconsistent,      // found by TESSERA_CHECK=1: devices that disagree, a pending sum read as a value
  not_finite,        // found by DetectNonFinite: the first value that is NaN or inf
  out_of_memory,     // no memory for a block of an array
  lost_process,      // another process of the run ended, does not answer, or cannot be reached
  stopped,           // the loader was stopped, or the group of processes has ended
};

// Every message reads "[verb] path: given, expected, what to do"; the path is left out where there is none.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// Throws Error "[verb] message".
[[noreturn]] void fail(ErrorKind kind, std::string_view verb, std::string_view message);

}  // namespace tessera
