// Loops over floats that the compiler turns into vector instructions. The same bits on every processor.
#pragma once

#include <cstdint>
#include <span>

namespace tessera::detail {

// sum[i] = terms[0][i] + terms[1][i] + ..., from the left; at least one term.
void add_floats(std::span<const float* const> terms, float* sum, int64_t n);
// The sum of x[i]^2, in float64.
double sum_of_squares(const float* x, int64_t n);
// x[i] *= factor.
void scale_floats(float* x, float factor, int64_t n);

// Whether x[0], x[stride], ... are all numbers but 0.
bool are_nonzero(const float* x, int64_t stride, int64_t n);

}  // namespace tessera::detail
