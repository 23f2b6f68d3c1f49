// The choice between LibTorch's two libraries.
#include "sharding/kernels/matmul.h"

#include <ATen/Context.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <exception>

#include "sharding/kernels/parallel_for.h"

namespace tessera::detail {
namespace {

// out = alpha a b + beta out. LibTorch exports it and has it in no header of its own; null where it is not.
using OneDnnProduct = void (*)(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, float beta,
                               float alpha);
const auto onednn_product =
    reinterpret_cast<OneDnnProduct>(dlsym(RTLD_DEFAULT, "_ZN2at6native13mkldnn_matmulERKNS_6TensorES3_S3_ff"));

bool mkl_knows_the_processor() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return true;
#endif
}

// LibTorch has conditions of its own: on x86 some of AVX-512, for float32 too.
bool onednn_multiplies() {
  const at::Tensor ones = at::ones({32, 32}, at::kFloat);
  at::Tensor out = at::empty_like(ones);
  try {
    onednn_product(ones, ones, out, 0, 1);
  } catch (const std::exception&) {  // oneDNN has a class of its own
    return false;
  }
  return out.equal(at::full_like(ones, 32));
}

// Of a sum to which each product adds little, MKL reads and writes the result faster.
constexpr int64_t least_k_of_sums = 128;

// 2^i or 3 x 2^i. oneDNN compiles code for each three sizes, in a millisecond, and keeps it, some 0.8 MB: what sees
// ever new numbers of rows is not for it.
bool is_round(int64_t size) { return size >= 32 && size >> std::countr_zero(static_cast<uint64_t>(size)) <= 3; }

bool is_for_onednn(const at::Tensor& a, const at::Tensor& b, int64_t least_k = 0) {
  if (a.scalar_type() != at::kFloat || !a.is_cpu()) return false;
  // Which take a core 300 microseconds: a call of oneDNN's costs some ten more than one of MKL's.
  constexpr int64_t least_multiplications = 16 << 20;
  const int64_t rows = a.size(0), k = a.size(1), columns = b.size(1);
  if (rows * k * columns < least_multiplications || k < least_k || !is_round(rows) || !is_round(k) ||
      !is_round(columns) || !at::globalContext().userEnabledMkldnn() || !is_plain_thread())
    return false;
  static const bool is_faster =
      onednn_product && at::hasMKL() && at::hasMKLDNN() && !mkl_knows_the_processor() && onednn_multiplies();
  return is_faster;
}

// Some 16 million products exist at one time.
at::Tensor product_of_integers(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor sum = at::zeros({a.size(0), b.size(1)}, a.options());
  const int64_t k = a.size(1), at_once = std::max<int64_t>(1, (16 << 20) / std::max<int64_t>(1, sum.numel()));
  for (int64_t i = 0; i < k; i += at_once) {
    const int64_t n = std::min(at_once, k - i);
    sum.add_(at::sum(a.narrow(1, i, n).unsqueeze(2) * b.narrow(0, i, n), 1, /*keepdim=*/false, a.scalar_type()));
  }
  return sum;
}

}  // namespace

bool are_integers_of_a_gpu(const at::Tensor& t) { return t.is_cuda() && !t.is_floating_point(); }

at::Tensor multiplied(const at::Tensor& a, const at::Tensor& b) {
  if (are_integers_of_a_gpu(a)) return product_of_integers(a, b);
  if (!is_for_onednn(a, b)) return at::mm(a, b);
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  onednn_product(a, b, out, 0, 1);
  return out;
}

at::Tensor multiplied(const at::Tensor& a, const at::Tensor& b, const at::Tensor& row) {
  if (!is_for_onednn(a, b, least_k_of_sums)) return at::addmm(row, a, b);
  at::Tensor out = row.expand({a.size(0), b.size(1)}).contiguous();
  onednn_product(a, b, out, 1, 1);
  return out;
}

void multiply_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (are_integers_of_a_gpu(a)) return void(out.copy_(product_of_integers(a, b)));
  if (a.scalar_type() != out.scalar_type())
    return void(a.is_cuda() ? at::mm_out(out, a, b, out.scalar_type()) : out.copy_(at::mm(a, b)));
  if (!is_for_onednn(a, b)) return void(at::mm_out(out, a, b));
  onednn_product(a, b, out, 0, 1);
}

void add_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  if (are_integers_of_a_gpu(a)) return void(sum.add_(product_of_integers(a, b)));
  if (a.scalar_type() != sum.scalar_type())
    return void(a.is_cuda() ? at::addmm_out(sum, sum, a, b, sum.scalar_type()) : sum.add_(at::mm(a, b)));
  if (!is_for_onednn(a, b, least_k_of_sums)) return void(sum.addmm_(a, b));
  onednn_product(a, b, sum, 1, 1);
}

}  // namespace tessera::detail
