// Cross-entropy by one kernel, on accelerators for which one is registered.
#pragma once

#include <ATen/core/Tensor.h>

#include "sharding/operations/neural/cross_entropy_row.h"
#include "sharding/operations/neural/loss_labels.h"

namespace tessera::detail {

// Computes at least one row on the device's current stream: its loss, or with rows.gradients its gradient.
using LossKernel = void (*)(const LossRows& rows, int device);

// Returns the kernel of one kind of device; the engine for GPUs registers CUDA's. Null: the kind has none.
LossKernel& loss_kernel_of(c10::DeviceType kind);

// Losses of rows of logits by the kernel, and what the backward pass reads.
struct FusedLosses {
  at::Tensor logits;  // (rows, vocab), float32, float16 or bfloat16
  at::Tensor labels;  // (rows) int64, negative if ignored
  at::Tensor sums;    // (rows, 2) float32, from the forward pass
  double smoothing = 0, z_loss = 0;

  // Whether the device has a kernel for these logits.
  static bool is_possible(const at::Tensor& logits);
  static at::Tensor kernel_labels(const Labels& labels);

  // Returns the losses (rows), float32, and sets `sums`.
  at::Tensor losses();
  // Writes the gradients of the logits, for gradients (rows) of the losses, float32, into `out` (rows, vocab): of the
  // logits' type, or of any of the three types if these are float32. `out` has no gaps between rows.
  void put_gradients(const at::Tensor& of_losses, const at::Tensor& out) const;

 private:
  void run(LossRows rows) const;
};

}  // namespace tessera::detail
