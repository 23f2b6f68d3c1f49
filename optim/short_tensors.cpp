// Copies and multiples of tensors, past the dispatcher where they are short, as the blocks of ZeRO-1 and FSDP are.
#include <ATen/EmptyTensor.h>
#include <ATen/ops/_foreach_mul.h>

#include <algorithm>
#include <cstring>

#include "optim/internal.h"

namespace tessera::optim::detail {
namespace {

constexpr int64_t most_short = 1 << 13;  // elements

bool is_short(const at::Tensor& t) {
  return t.is_cpu() && t.numel() <= most_short && t.is_contiguous() && !t.is_conj() && !t.is_neg();
}

at::Tensor place_like(const at::Tensor& t) { return at::Tensor(at::detail::empty_cpu(t.sizes(), t.scalar_type())); }

}  // namespace

at::Tensor copy_of(const at::Tensor& t) {
  if (!is_short(t)) return t.detach().clone(at::MemoryFormat::Contiguous);
  at::Tensor copy = place_like(t);
  if (t.numel()) std::memcpy(copy.mutable_data_ptr(), t.const_data_ptr(), t.nbytes());
  return copy;
}

std::vector<at::Tensor> scaled(const std::vector<at::Tensor>& tensors, double factor) {
  std::vector<at::Tensor> results(tensors.size()), others;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor& t = tensors[i];
    if (!is_short(t) || t.scalar_type() != at::kFloat) {
      others.push_back(t);
      continue;
    }
    results[i] = place_like(t);
    const auto* const from = t.const_data_ptr<float>();
    std::transform(from, from + t.numel(), results[i].mutable_data_ptr<float>(),
                   [by = static_cast<float>(factor)](float x) { return x * by; });
  }
  if (others.empty()) return results;
  others = at::_foreach_mul(others, factor);
  auto next = others.begin();
  for (at::Tensor& t : results)
    if (!t.defined()) t = std::move(*next++);
  return results;
}

std::vector<at::Tensor> scaled(const std::vector<at::Tensor>& tensors, const at::Tensor& factor) {
  return at::_foreach_mul(tensors, factor);
}

}  // namespace tessera::optim::detail
