// Forecast: what a program takes and costs on an abstract mesh, in bytes per device, operations and communication.
#pragma once

#include <cstdint>
#include <memory>

#include "sharding/accounting/ledger.h"
#include "sharding/base/scoped_value.h"

namespace tessera {

namespace detail {
struct Meter;
}

// Everything between its construction and its destruction that this thread does on abstract meshes:
//   const Mesh mesh = make_mesh({{"data", 64}, {"model", 8}}, {.abstract = true});
//   Forecast forecast;
//   step(mesh);
//   std::cout << forecast.peak_bytes() << " bytes\n" << forecast.ledger().to_text();
// Bytes are those of one device, as LibTorch's CPU kernels and autograd would take them: parameters, whatever the
// graph saves, gathered weights, temporaries, gradients. What is inside a kernel (its scratch space) is not known and
// not counted. A step knows what the one before it gathered: run it once before. The ledger is that of the same program
// on a mesh of devices, record by record, where weights are gathered ahead as between processes. Scopes nest.
class Forecast {
 public:
  Forecast();

  const CommLedger& ledger() const { return ledger_; }
  // The bytes of the abstract arrays made since this began: now, and at most.
  int64_t live_bytes() const;
  int64_t peak_bytes() const;
  // The bytes of all abstract arrays made since this began, freed or not.
  int64_t allocated_bytes() const;
  // The most bytes that a forward pass of value_and_grad had beyond those live before it: what the graph saves, and
  // temporaries.
  int64_t activation_bytes() const;
  // Floating point operations of one device in matrix products, convolutions and attention, where a multiplication and
  // an addition are two; causal attention counts as if nothing were masked. A double, since 2^63 is soon exceeded.
  double flops() const;
  // The operations of LibTorch on one device that make or write memory: what is called, or launched as a kernel. An
  // array that a collective moves, whose parts are packed and unpacked, counts as one.
  int64_t call_count() const;
  // Of a model on stages (sub_mesh.h), all of this is that of a device of the stage that has most. And the part of the
  // time that a stage waits for others, (S - 1) / (M + S - 1) for S stages and the M micro-batches of nn::pipeline (one
  // without it); 0 without stages.
  double bubble() const;

 private:
  CommLedger ledger_;
  std::shared_ptr<detail::Meter> meter_;
  detail::ScopedValue<std::shared_ptr<detail::Meter>> current_;
  detail::ScopedValue<int> stage_;
};

}  // namespace tessera
