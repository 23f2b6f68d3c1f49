// Products of matrices, as one core computes them fastest.
#pragma once

#include <ATen/core/Tensor.h>

namespace tessera::detail {

// a b, a b + row, out = a b and sum += a b, of matrices (rows, k) and (k, columns) of one element type. Of half
// precision, out and sum may be float32: then a GPU's product is, elsewhere it is rounded to half precision first.
//
// As at::mm and at::addmm, but where MKL takes a processor for an old one, which is any but Intel's, large products of
// float32 whose sizes are 2^i or 3 x 2^i are those of oneDNN, LibTorch's other library, if that has them for the
// processor: on an AMD EPYC with AVX-512 5 to 15 % faster on one core and on two.
at::Tensor multiplied(const at::Tensor& a, const at::Tensor& b);
at::Tensor multiplied(const at::Tensor& a, const at::Tensor& b, const at::Tensor& row);
void multiply_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
void add_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b);

// For whose products LibTorch has no kernel; those above have one.
bool are_integers_of_a_gpu(const at::Tensor& t);

}  // namespace tessera::detail
