// Graphs: recordings of a function on an accelerator (CUDA graphs), which replay without the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "sharding/base/thread_state.h"

namespace tessera::detail {

class Graph {
 public:
  virtual ~Graph() = default;
  // Runs `f` and records the kernels that it queues on the device. They do not execute before replay().
  virtual void record(const std::function<void()>& f) = 0;
  // Queues all recorded kernels, on the same memory.
  virtual void replay() = 0;
};

// Makes the graphs of one kind of device; the engine for GPUs registers CUDA's. Null: the kind has none.
using MakeGraph = std::unique_ptr<Graph> (*)(c10::DeviceIndex device);
MakeGraph& graphs_of(c10::DeviceType kind);

// The work of the host before and after each replay of a function.
class HostWork {
 public:
  HostWork() = default;
  explicit HostWork(c10::Device device);

  // Returns a tensor of one element, which receives the current value of `number` before each replay. It is outside the
  // graph's memory pool, where earlier kernels could overwrite it. If `number` throws, the replay does not start.
  at::Tensor anew(std::function<double()> number, at::ScalarType dtype);
  void put_numbers() const;

  std::vector<std::function<void()>> after;
  std::set<const void*> kept;  // storages that the function changes and the recording references

 private:
  at::Tensor numbers_;  // the values of `before_`
  std::vector<std::function<void()>> before_;
};

// The memory of an object.
struct ObjectPlace {
  const void* at;
  size_t size;
};

// A function that is being recorded, or that a device with graphs would record.
struct RecordedFunction {
  std::vector<ObjectPlace> changed = {};  // the objects that it may change
  HostWork* work = nullptr;               // null if no graph is made
};
// Marks this thread as running such a function while the object exists.
struct Recording : ScopedValue<const RecordedFunction*> {
  explicit Recording(const RecordedFunction& function);
};
bool is_recording();
// Returns the host work of the graph that is being recorded; else null.
HostWork* host_work();
// Returns whether the recorded function may change the object that begins here.
bool may_change(const void* object);
// Throws invalid_argument if a function is being recorded: "[verb] WHAT inside a captured step, ...".
void refuse_in_recording(const char* verb, const char* what);

}  // namespace tessera::detail
