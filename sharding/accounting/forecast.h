// Forecast: the memory, FLOPs and communication of a program on an abstract mesh.
#pragma once

#include <cstdint>
#include <memory>

#include "sharding/accounting/ledger.h"
#include "sharding/base/thread_state.h"

namespace tessera {

namespace detail {
struct Meter;
}

// Measures what this thread does on abstract meshes between its construction and its destruction:
//   const Mesh mesh = make_mesh({{"data", 64}, {"model", 8}}, {.abstract = true});
//   Forecast forecast;
//   step(mesh);
//   std::cout << forecast.peak_bytes() << " bytes\n" << forecast.ledger().to_text();
// Bytes are per device with LibTorch's CPU kernels and autograd: parameters, tensors saved by the graph,
// gathered weights, temporaries and gradients. Scratch space inside a kernel is unknown and not counted. A step
// prefetches what the previous step gathered, so run one step first. The ledger has the same
// records as on a mesh of devices, if weights are prefetched as between processes. Scopes nest.
class Forecast {
 public:
  Forecast();

  const CommLedger& ledger() const { return ledger_; }
  // Return the current and the maximum bytes of live abstract arrays that were made in the scope.
  int64_t live_bytes() const;
  int64_t peak_bytes() const;
  // Returns the bytes of all abstract arrays made in the scope, freed or not.
  int64_t allocated_bytes() const;
  // Returns the most bytes that a forward pass of value_and_grad added: tensors saved by the graph, and temporaries.
  int64_t activation_bytes() const;
  // Returns the floating-point operations of one device in matrix products, convolutions and attention. A multiply-add
  // counts as two; causal attention counts as if unmasked. The type is double because values may exceed 2^63.
  double flops() const;
  // Returns the number of LibTorch operations on one device that allocate or write memory: calls, or kernel launches.
  // An array of a collective, whose blocks are packed and unpacked, counts as one.
  int64_t call_count() const;
  // Returns the fraction of time that a pipeline stage waits for others: (S - 1) / (v * M + S - 1) for S stages of v
  // virtual stages each, and the M micro-batches of nn::pipeline (1 without it); 0 without stages. With stages
  // (mesh.h), the other functions return the values of a device of the stage with the most.
  double bubble() const;

 private:
  CommLedger ledger_;
  std::shared_ptr<detail::Meter> meter_;
  detail::ScopedValue<std::shared_ptr<detail::Meter>> current_;
  detail::ScopedValue<int> stage_;
};

}  // namespace tessera
