// memory_report: the memory of a training step: parameters, optimizer state, gradients, and peak of activations.
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
  int64_t bytes = 0;             // global
  int64_t bytes_per_device = 0;  // as in the placement table
  friend bool operator==(const MemoryShare&, const MemoryShare&) = default;
};

// A step on one mesh.
struct MemoryReport {
  std::vector<MeshAxis> mesh;        // empty if on no mesh
  std::vector<MemoryShare> at_rest;  // what lives between two steps, and gradients
  // Measured peaks, beyond what was allocated before: of the forward pass of value_and_grad (what the graph saves, and
  // temporaries), and of the whole step (with gradients).
  int64_t activation_bytes = 0, peak_bytes = 0;
  // Whose bytes these two are: on an abstract mesh those of one device, on a running mesh those of this process, all
  // its devices together. There, equal shards are held once, unless the mesh has private replicas.
  enum class Of { device, process, process_with_private_replicas } of = Of::process;

  int64_t bytes_per_device() const;  // at rest
  int64_t device_count() const;

  std::string to_text() const;
  // {"mesh": {axis: size}, "at_rest": [{"name", "bytes", "bytes_per_device"}], "bytes_per_device", "activation_bytes",
  // "peak_bytes", "measured": "device" | "process" | "process with private replicas"}
  std::string to_json() const;
};

// Prints to_text().
std::ostream& operator<<(std::ostream& out, const MemoryReport& report);

namespace detail {
std::vector<MemoryShare> shares_of(const PlacementTable& table);

MemoryReport measure_memory(const Leaves& at_rest, const std::function<PlacementTable()>& step);
}  // namespace detail

// Runs `step` once and measures what LibTorch allocates on this thread (on an abstract mesh, what it would allocate).
// `at_rest` are the trees that exist before and after the step. The step returns the gradients, or nothing:
//   std::cout << nn::memory_report(nn::named("model", model, "optimizer", optimizer), [&] {
//     const auto [loss, grads] = nn::value_and_grad(mse)(model, batch);
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
