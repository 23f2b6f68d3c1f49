// memory_report: what a training step takes: parameters, optimizer state, gradients, and the peak of its activations.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <type_traits>
#include <vector>

#include "nn/placement/table.h"
#include "nn/tree/tree.h"

namespace tessera::nn {

// The arrays under one name.
struct MemoryShare {
  std::string name;              // the first name of their paths: model, optimizer, gradients
  int64_t bytes = 0;             // each byte once
  int64_t bytes_per_device = 0;  // as in the placement table
  friend bool operator==(const MemoryShare&, const MemoryShare&) = default;
};

// A step on one mesh.
struct MemoryReport {
  std::vector<MeshAxis> mesh;        // nothing if on no mesh
  std::vector<MemoryShare> at_rest;  // what lives between two steps, and gradients
  // Measured: the most that the forward pass of value_and_grad took beside what lived before it (what the graph saves,
  // and temporaries), and that the step took beside what lived before it (gradients among it).
  int64_t activation_bytes = 0, peak_bytes = 0;
  // Whose bytes these two are: those of one device on an abstract mesh. On a running mesh those of this process: all
  // devices together, where what is equal on several is held once, unless the mesh has private replicas.
  enum class Of { device, process, process_with_private_replicas } of = Of::process;

  int64_t bytes_per_device() const;  // at rest
  int64_t devices() const;

  std::string to_text() const;
  // {"mesh": {axis: size}, "at_rest": [{"name", "bytes", "bytes_per_device"}], "bytes_per_device", "activation_bytes",
  // "peak_bytes", "measured": "device" | "process" | "process with private replicas"}
  std::string to_json() const;
};

// Prints to_text().
std::ostream& operator<<(std::ostream& out, const MemoryReport& report);

namespace detail {
MemoryReport measure_memory(const Leaves& at_rest, const std::function<PlacementTable()>& step);
}

// Runs `step` once and measures it by what LibTorch allocates on this thread (on an abstract mesh, by what it would).
// `at_rest` are the trees that live before and after it. What the step returns are the gradients, or nothing:
//   std::cout << nn::memory_report(nn::named("model", model, "optimizer", optimizer), [&] {
//     auto [loss, grads] = nn::value_and_grad(mse)(model, batch);
//     optimizer.update(model, grads);
//     return grads;
//   });
template <class Step>
MemoryReport memory_report(const Leaves& at_rest, Step step) {
  return detail::measure_memory(at_rest, [&] {
    if constexpr (std::is_void_v<decltype(step())>) {
      step();
      return PlacementTable({});
    } else {
      const auto gradients = step();
      return placement_table(named("gradients", gradients));
    }
  });
}

}  // namespace tessera::nn
