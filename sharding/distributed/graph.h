// Graphs: what an accelerator has recorded of a run of a function, and does again without the host.
#pragma once

#include <c10/core/DeviceType.h>

#include <functional>
#include <memory>

#include "sharding/diagnostics/scoped_value.h"

namespace tessera::detail {

class Graph {
 public:
  virtual ~Graph() = default;
  // Runs `f`, recording what it queues on the device. Its tensors have their values after replay().
  virtual void record(const std::function<void()>& f) = 0;
  // Queues all of it anew, in the same memory.
  virtual void replay() = 0;
};

// Makes the graphs of one kind of device: the engine for GPUs has them for CUDA. Null: there are none.
using MakeGraph = std::unique_ptr<Graph> (*)(c10::DeviceIndex device);
MakeGraph& graphs_of(c10::DeviceType kind);

// While it lives this thread runs what is recorded, or would be on a device that has graphs.
struct Recording : ScopedValue<bool> {
  Recording();
};
bool is_recording();
// Error (bad_argument): it is recorded what cannot be: "[verb] WHAT inside a captured step, ...".
void refuse_in_recording(const char* verb, const char* what);

}  // namespace tessera::detail
