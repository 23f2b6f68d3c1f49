// Waits: where the host stops for an accelerator, for who counts them; TESSERA_CHECK_SYNC=1 makes each an error.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>

#include "sharding/base/scoped_value.h"

namespace tessera::detail {

// The operation that this thread began last, and its line: an operation's kernels run before the next begins.
struct LatestOperation {
  const char* name = "";
  std::source_location where;
};
LatestOperation& latest_operation();
// "model.cpp:31", of the innermost line that is not the library's.
std::string latest_line();

// value: the host reads what the accelerator has computed; place: it hands over memory that is its own, and waits until
// that is read.
enum class Wait : uint8_t { value, place };

// Is told of every wait of its thread from its construction to its destruction: of copies between the memories, and of
// LibTorch's operations whose result's size depends on values.
class WaitWatcher {
 public:
  WaitWatcher();
  virtual ~WaitWatcher();
  WaitWatcher(const WaitWatcher&) = delete;
  WaitWatcher& operator=(const WaitWatcher&) = delete;
  // `kernel`: as LibTorch names it, "aten::_local_scalar_dense".
  virtual void waits(Wait wait, const std::string& kernel) = 0;

 private:
  WaitWatcher* outer_;
  bool was_on_;
};

// Whether TESSERA_CHECK_SYNC makes waits errors. For tests: ScopedValue(waits_are_errors(), true).
bool& waits_are_errors();
// Makes the waits of this thread errors (device_mismatch), but in a AllowHostSync: "[take] model.cpp:31: ...".
void refuse_waits_of_thread();

// While it lives, waits are what the program asks for, which reads a value.
struct AllowHostSync : ScopedValue<bool> {
  AllowHostSync();
};

}  // namespace tessera::detail
