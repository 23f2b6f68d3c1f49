// Host synchronization: where the host waits for an accelerator. TESSERA_CHECK_SYNC=1 makes each wait an error.
#pragma once

#include <source_location>
#include <string>

#include "sharding/base/scoped_value.h"
#include "sharding/events/observer.h"

namespace tessera::detail {

// The operation that this thread began last, and its line: an operation's kernels run before the next begins.
struct LatestOperation {
  const char* name = "";
  std::source_location where;
};
LatestOperation& latest_operation();
// "model.cpp:31": the latest operation's innermost line that is not the library's.
std::string latest_line();

// Receives Events::host_syncs: copies between the memories, and LibTorch's operators whose result's size depends on
// values. The first one of the process registers kernels with LibTorch's dispatcher, which remain. Error (other):
// another library has registered a fallback for the same dispatch key.
class HostSyncObserver : public Observer {
 public:
  HostSyncObserver();
  ~HostSyncObserver() override;
};

// Whether TESSERA_CHECK_SYNC makes waits errors. For tests: ScopedValue(host_syncs_are_errors(), true).
bool& host_syncs_are_errors();
// Makes the waits of this thread errors (device_mismatch), except in an AllowHostSync: "[take] model.cpp:31: ...".
void forbid_host_syncs_of_thread();

// Allows waits while it lives: the program reads a value.
struct AllowHostSync : ScopedValue<bool> {
  AllowHostSync();
};

}  // namespace tessera::detail
