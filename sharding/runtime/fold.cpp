// Sums, extremes and products of the processes' parts, one after another.
#include "sharding/runtime/fold.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>

namespace tessera::detail {
namespace {

at::Tensor& fold_into(at::Tensor& total, const at::Tensor& part, ReduceOp how) {
  switch (how) {
    case ReduceOp::sum:
      return total.add_(part);
    case ReduceOp::max:
      return at::maximum_out(total, total, part);
    case ReduceOp::min:
      return at::minimum_out(total, total, part);
    case ReduceOp::product:
      return total.mul_(part);
  }
  return total;
}

}  // namespace

at::ScalarType fold_type(const at::Tensor& t, ReduceOp how) {
  if (how != ReduceOp::sum || !t.is_floating_point() || t.itemsize() == 8) return t.scalar_type();
  return t.numel() <= max_small_elements ? at::kDouble : at::kFloat;
}

at::Tensor folded(const std::vector<at::Tensor>& parts, ReduceOp how, at::ScalarType type) {
  const at::AutoGradMode off(false);
  at::Tensor total = parts[0].to(type);
  for (size_t i = 1; i < parts.size(); ++i) fold_into(total, parts[i], how);
  return total;
}

void fold(const std::vector<at::Tensor>& parts, ReduceOp how, at::ScalarType type, at::Tensor result) {
  const at::AutoGradMode off(false);
  if (how == ReduceOp::sum && parts.size() == 2 && type == result.scalar_type())
    return void(at::add_out(result, parts[0], parts[1]));
  const at::Tensor total = folded(parts, how, type);
  if (!total.is_same(result)) result.copy_(total);
}

std::vector<at::Tensor> cut_evenly(const at::Tensor& flat, int64_t n) {
  std::vector<at::Tensor> parts;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t from = flat.numel() * i / n;
    parts.push_back(flat.narrow(0, from, flat.numel() * (i + 1) / n - from));
  }
  return parts;
}

}  // namespace tessera::detail
