// Products of matrices by the faster of the two libraries that LibTorch has on a CPU.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::detail {

// Returns a b, or a b + row, for matrices (rows, k) and (k, columns) of one element type.
//
// Like at::mm and at::addmm, except for large float32 products whose sizes are 2^i or 3 x 2^i and whose `a` is
// contiguous: on processors that are not Intel's, where MKL runs code for old ones, oneDNN computes them, if it
// supports the processor. A mid-size training step takes 7 to 15 % less time on an AMD EPYC with AVX-512.
at::Tensor multiplied(const at::Tensor& a, const at::Tensor& b);
at::Tensor multiplied(const at::Tensor& a, const at::Tensor& b, const at::Tensor& row);
// out = a b and sum += a b. For a and b of half precision, out and sum may be float32: a GPU then keeps the product in
// float32, a CPU rounds it to half precision first.
void multiply_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
void add_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b);

// Returns whether t has integers on a GPU. LibTorch has no kernel for their product; the functions above have one.
bool are_integers_of_a_gpu(const at::Tensor& t);

}  // namespace tessera::detail
