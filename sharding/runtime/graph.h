// Graphs: what an accelerator has recorded of a run of a function, and does again without the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "sharding/base/scoped_value.h"

namespace tessera::detail {

class Graph {
 public:
  virtual ~Graph() = default;
  // Runs `f`, recording what it queues on the device: that itself is not done before replay().
  virtual void record(const std::function<void()>& f) = 0;
  // Queues all of it anew, in the same memory.
  virtual void replay() = 0;
};

// Makes the graphs of one kind of device: the engine for GPUs has them for CUDA. Null: there are none.
using MakeGraph = std::unique_ptr<Graph> (*)(c10::DeviceIndex device);
MakeGraph& graphs_of(c10::DeviceType kind);

// What the host does around each replay of a function.
class HostWork {
 public:
  HostWork() = default;
  explicit HostWork(c10::Device device);

  // A tensor of one element, in which before each replay is what `number` says then. It is no part of the graph's
  // memory, in which earlier kernels may use the same place. Where one of them throws, nothing has changed.
  at::Tensor anew(std::function<double()> number, at::ScalarType dtype);
  void put_numbers() const;

  std::vector<std::function<void()>> after;
  std::set<const void*> kept;  // the storages of what the function changes, which the recording holds

 private:
  at::Tensor numbers_;  // places for them
  std::vector<std::function<void()>> before_;
};

// Where an object lies.
struct ObjectPlace {
  const void* at;
  size_t size;
};

// What is recorded, or would be on a device that has graphs.
struct RecordedFunction {
  std::vector<ObjectPlace> changed = {};  // what it is given to change
  HostWork* work = nullptr;               // null where no graph is made
};
// While it lives this thread runs such a function.
struct Recording : ScopedValue<const RecordedFunction*> {
  explicit Recording(const RecordedFunction& function);
};
bool is_recording();
// Of what becomes a graph; else null.
HostWork* host_work();
// Whether the function that is recorded is given the object that begins here, to change it.
bool may_change(const void* object);
// Error (invalid_argument): it is recorded what cannot be: "[verb] WHAT inside a captured step, ...".
void refuse_in_recording(const char* verb, const char* what);

}  // namespace tessera::detail
