// Host synchronization: detects where the host waits for an accelerator. TESSERA_CHECK_SYNC=1 makes each wait an error.
#pragma once

#include <source_location>
#include <string>

#include "sharding/base/thread_state.h"
#include "sharding/events/observer.h"

namespace tessera::detail {

// The operation that this thread started most recently, and its source line. All kernels of an operation are started
// before the next operation begins.
struct LatestOperation {
  const char* name = "";
  std::source_location where;
};
LatestOperation& latest_operation();
// Returns the innermost line of the latest operation outside the library: "model.cpp:31".
std::string latest_line();

// Receives Events::host_syncs: copies between host and device memory, and LibTorch operators whose result size depends
// on values. The first observer of the process registers kernels with LibTorch's dispatcher, permanently. Throws an
// Error (other) if another library has registered a fallback for the same dispatch key.
class HostSyncObserver : public Observer {
 public:
  HostSyncObserver();
  ~HostSyncObserver() override;
};

// Whether TESSERA_CHECK_SYNC makes waits errors. Tests set it: ScopedValue(host_syncs_are_errors(), true).
bool& host_syncs_are_errors();
// Makes waits of this thread throw device_mismatch, except in an AllowHostSync: "[take] model.cpp:31: ...".
void forbid_host_syncs_of_thread();

// Allows waits in its scope, where the program reads a value.
struct AllowHostSync : ScopedValue<bool> {
  AllowHostSync();
};

}  // namespace tessera::detail
