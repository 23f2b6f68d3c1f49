// Errors of failed allocations: the operation, the requested bytes, and the memory in use.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include "sharding/base/caller.h"
#include "sharding/base/error.h"

namespace tessera::detail {

// An allocation and its position in a step, by which a forecast recognizes it.
struct FailedAllocation {
  int64_t bytes = 0;  // requested; 0: unknown
  Text module = {};   // the path of the running module
  bool in_backward_pass = false;

  // Returns an allocation at the position of this thread.
  static FailedAllocation now(int64_t bytes);
  friend bool operator==(const FailedAllocation& a, const FailedAllocation& b);
};

// The Error (out_of_memory) of a failed allocation.
class AllocationError : public Error {
 public:
  AllocationError(const std::string& message, FailedAllocation failed)
      : Error(ErrorKind::out_of_memory, message), failed(std::move(failed)) {}
  const FailedAllocation failed;
};

// Returns the failed allocation of LibTorch or C++ that this exception reports, or that an AllocationError contains;
// nullopt for any other exception.
std::optional<FailedAllocation> failed_allocation(const std::exception& error);

// Throws AllocationError if `error` is a failed allocation of LibTorch or C++; otherwise does nothing. The message has
// the user's line of `where`, and the memory in use on the device. `purpose` follows "no memory".
//   [matmul] up: no memory for float32[8,4] and float32[4,128]: 4,096 bytes asked for at train.cpp:31. The CPU ...
void check_allocation(const std::exception& error, std::string_view verb, const std::source_location& where,
                      std::string_view purpose, c10::Device device = c10::kCPU);

}  // namespace tessera::detail
