// The kernels of custom_kernel.cpp: y = silu(gate) * up elementwise, and its gradients.
#pragma once

#include <cstdint>

// Arrays of n elements. The backward pass has a cotangent, and writes both gradients instead of y.
struct GatedUnits {
  const float *gate, *up;
  const float* cotangent;
  float* y;
  float *gate_gradient, *up_gradient;
  int64_t n;
};

// Launches the kernel on the current CUDA stream. Throws in a build without CUDA.
void compute_on_gpu(const GatedUnits& units);
