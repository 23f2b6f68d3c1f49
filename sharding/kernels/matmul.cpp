// Chooses between the two libraries with which LibTorch multiplies float32 matrices on a CPU: MKL and oneDNN.
#include "sharding/kernels/matmul.h"

#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <exception>
#include <optional>
#include <string_view>

#include "sharding/kernels/parallel_for.h"
#include "sharding/kernels/plain.h"

namespace tessera::detail {
namespace {

// y = x w^T + row by oneDNN. LibTorch registers it as an operator, for its compiler.
using OneDnnLinear = at::Tensor(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& row,
                                std::string_view activation, c10::List<std::optional<at::Scalar>> scalars,
                                std::optional<std::string_view> algorithm);

std::optional<c10::TypedOperatorHandle<OneDnnLinear>> onednn_linear() {
  const auto schema = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  return schema ? std::optional(schema->typed<OneDnnLinear>()) : std::nullopt;
}

at::Tensor onednn_product(const at::Tensor& a, const at::Tensor& b, const std::optional<at::Tensor>& row = {}) {
  static const auto linear = onednn_linear();
  return linear->call(a, b.t(), row, "none", c10::List<std::optional<at::Scalar>>(), std::nullopt);
}

bool mkl_knows_the_processor() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return true;
#endif
}

// An old LibTorch lacks the operator, and on a processor without AVX-512 it may refuse float32.
bool onednn_multiplies() {
  if (!onednn_linear()) return false;
  const at::Tensor ones = at::ones({32, 32}, at::kFloat);
  try {
    return at::all(onednn_product(ones, ones) == 32).item<bool>();
  } catch (const std::exception&) {
    return false;
  }
}

// 2^i or 3 x 2^i. oneDNN compiles code for each three sizes in a millisecond and keeps it (0.8 MB), so it does not suit
// a program whose numbers of rows always change.
bool is_round(int64_t size) { return size >= 32 && size >> std::countr_zero(static_cast<uint64_t>(size)) <= 3; }

bool is_for_onednn(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != at::kFloat || !a.is_cpu() || !a.is_contiguous()) return false;
  // 300 microseconds of one core (AMD EPYC, AVX-512): a call of oneDNN costs ten more than a call of MKL.
  constexpr int64_t least_multiplications = 16 << 20;
  const int64_t rows = a.size(0), k = a.size(1), columns = b.size(1);
  if (rows * k * columns < least_multiplications || !is_round(rows) || !is_round(k) || !is_round(columns) ||
      !at::globalContext().userEnabledMkldnn() || !is_plain_thread() || uses_plain(Kernel::matrix_products))
    return false;
  static const bool is_faster = at::hasMKL() && at::hasMKLDNN() && !mkl_knows_the_processor() && onednn_multiplies();
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
  return is_for_onednn(a, b) ? onednn_product(a, b) : at::mm(a, b);
}

at::Tensor multiplied(const at::Tensor& a, const at::Tensor& b, const at::Tensor& row) {
  return is_for_onednn(a, b) ? onednn_product(a, b, row) : at::addmm(row, a, b);
}

void multiply_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (are_integers_of_a_gpu(a)) return void(out.copy_(product_of_integers(a, b)));
  if (a.scalar_type() != out.scalar_type())
    return void(a.is_cuda() ? at::mm_out(out, a, b, out.scalar_type()) : out.copy_(at::mm(a, b)));
  at::mm_out(out, a, b);
}

void add_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  if (are_integers_of_a_gpu(a)) return void(sum.add_(product_of_integers(a, b)));
  if (a.scalar_type() != sum.scalar_type())
    return void(a.is_cuda() ? at::addmm_out(sum, sum, a, b, sum.scalar_type()) : sum.add_(at::mm(a, b)));
  sum.addmm_(a, b);
}

}  // namespace tessera::detail
