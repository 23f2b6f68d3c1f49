// Matrix products on a CPU by the faster of MKL and oneDNN, and of integers on a GPU.
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
#include "sharding/kernels/tensors.h"

namespace tessera::detail {
namespace {

// oneDNN's y = x w^T + row. LibTorch registers it as an operator for its compiler.
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

// Computes sum + a b.
at::Tensor onednn_sum(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b) {
  using Linear = at::Tensor(const at::Tensor& x, const at::Tensor& other, const at::Tensor& w,
                            const std::optional<at::Tensor>& row, std::string_view operation);
  static const auto linear =
      c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_linear_pointwise", "binary").typed<Linear>();
  return linear.call(a, sum, b.t(), std::nullopt, "add");
}

bool mkl_knows_the_processor() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return true;
#endif
}

// Returns whether the operator works: an old LibTorch lacks it, and on a processor without AVX-512 it may reject
// float32.
bool onednn_multiplies() {
  if (!onednn_linear()) return false;
  const at::Tensor ones = at::ones({32, 32}, at::kFloat);
  try {
    return at::all(onednn_product(ones, ones) == 32).item<bool>();
  } catch (const std::exception&) {
    return false;
  }
}

// Returns whether size is 2^i or 3 x 2^i. oneDNN compiles code for each combination of three sizes in a millisecond and
// caches it (0.8 MB). A program whose numbers of rows always change would compile for each product.
bool is_round(int64_t size) { return size >= 32 && size >> std::countr_zero(static_cast<uint64_t>(size)) <= 3; }

// oneDNN copies a transposed operand, and a sum. With a smaller k the copies cost more than the product gains.
constexpr int64_t least_k_of_copies = 128;

bool is_for_onednn(const at::Tensor& a, const at::Tensor& b, bool is_copied = false) {
  if (a.scalar_type() != at::kFloat || !a.is_cpu()) return false;
  // 300 microseconds of one core (AMD EPYC, AVX-512). A call of oneDNN costs ten microseconds more than a call of MKL.
  constexpr int64_t least_multiplications = 16 << 20;
  const int64_t rows = a.size(0), k = a.size(1), columns = b.size(1);
  if (rows * k * columns < least_multiplications || ((is_copied || !a.is_contiguous()) && k < least_k_of_copies) ||
      !is_round(rows) || !is_round(k) || !is_round(columns) || !at::globalContext().userEnabledMkldnn() ||
      !is_plain_thread() || uses_plain(Kernel::matrix_products))
    return false;
  static const bool is_faster = at::hasMKL() && at::hasMKLDNN() && !mkl_knows_the_processor() && onednn_multiplies();
  return is_faster;
}

// Multiplies in pieces, so that about 16 million products exist at a time.
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
  if (is_for_onednn(a, b, /*is_copied=*/true)) return void(out.copy_(onednn_product(a, b)));
  at::mm_out(out, a, b);
}

at::Tensor plus_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  if (are_integers_of_a_gpu(a)) return sum.add_(product_of_integers(a, b));
  if (a.scalar_type() != sum.scalar_type())
    return a.is_cuda() ? at::addmm_out(sum, sum, a, b, sum.scalar_type()) : sum.add_(at::mm(a, b));
  return is_for_onednn(a, b, /*is_copied=*/true) ? onednn_sum(sum, a, b) : sum.addmm_(a, b);
}

void add_product(at::Tensor sum, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor result = plus_product(sum, a, b);
  if (!result.is_same(sum)) sum.copy_(result);
}

}  // namespace tessera::detail
