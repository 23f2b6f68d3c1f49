// Local tensors: where they are, their sums and matrix products.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace tessera::detail {

// The local tensors of one array, or the terms of one sum.
using Tensors = c10::SmallVector<at::Tensor, 1>;

// Returns whether reading a value of t waits for an accelerator. Tensors without data have no such values.
inline bool is_on_accelerator(const at::Tensor& t) { return t.defined() && !t.is_cpu() && !t.is_meta(); }

// Returns the elements of a contiguous tensor of this type. LibTorch's const_data_ptr<T> has a symbol of another name
// in clang 18 and later than in g++, which compiled LibTorch.
template <class T>
const T* const_elements(const at::Tensor& t) {
  return static_cast<const T*>(t.const_data_ptr());
}

// ---- sums of tensors of one shape

// The value of elements that belong to another term of a partial sum. x + -0.0 is x for every x; adding 0.0 would turn
// -0.0 into 0.0. Integers and booleans convert it to 0.
constexpr double no_term = -0.0;

// Returns a tensor like t filled with no_term, without memory for each element. If one term of a partial sum has the
// complete value, the other terms are such tensors.
at::Tensor zero_placeholder(const at::Tensor& t);

// Returns terms[0] + terms[1] + ... for terms of one shape and element type. Each element is summed in this order,
// whatever the number of threads. Terms that are zero_placeholder are not read; a single other term is returned itself.
at::Tensor sum_tensors(const Tensors& terms);

// Returns the sum of terms of a floating type narrower than double: sums in double and rounds once.
at::Tensor sum_tensors_in_double(const Tensors& terms);

// Returns sum_tensors of each list; different lists are summed concurrently.
Tensors sum_each(const std::vector<Tensors>& lists);

// ---- matrix products, by the faster of LibTorch's two CPU libraries

// Returns a b, or a b + row, for matrices (rows, k) and (k, columns) of one element type.
//
// Does the same as at::mm and at::addmm, except for large float32 products whose sizes are 2^i or 3 x 2^i. On
// processors of makers other than Intel, where MKL runs code for old processors, oneDNN computes these if it supports
// the processor. A mid-size training step takes 30 % less time on an AMD EPYC with AVX-512 (Zen 5).
at::Tensor multiplied(const at::Tensor& a, const at::Tensor& b);
at::Tensor multiplied(const at::Tensor& a, const at::Tensor& b, const at::Tensor& row);
// Compute out = a b and sum += a b. For a and b of half precision, out and sum may be float32: a GPU then keeps the
// product in float32, a CPU rounds it to half precision first.
void multiply_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
void add_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b);
// Returns sum + a b, in the memory of `sum` or in a new tensor.
at::Tensor plus_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b);

// Returns whether t has integers on a GPU. LibTorch has no matrix product for them; the functions above do.
bool are_integers_of_a_gpu(const at::Tensor& t);

}  // namespace tessera::detail
