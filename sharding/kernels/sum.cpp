// Sums in pieces of 64 KiB, which stay in a core's cache.
#include "sharding/kernels/sum.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "sharding/kernels/parallel_for.h"
#include "sharding/kernels/plain.h"
#include "sharding/kernels/simd_loops.h"

namespace tessera::detail {
namespace {

constexpr int64_t piece = 1 << 14;  // elements

int64_t cost_of(const Tensors& terms) {
  return static_cast<int64_t>(terms.size()) * nanoseconds_of(1, terms[0].numel());
}

bool is_nothing(const at::Tensor& t) {
  if (!t.is_cpu() || t.numel() < 2 || t.storage().nbytes() != t.itemsize()) return false;
  const char* const element = static_cast<const char*>(t.const_data_ptr());
  const char* const sign = element + t.itemsize() - 1;
  return *sign == (t.is_floating_point() ? '\x80' : 0) &&
         std::all_of(element, sign, [](char byte) { return byte == 0; });
}

// At least one.
Tensors without_nothing(const Tensors& all) {
  Tensors terms;
  for (const at::Tensor& t : all)
    if (!is_nothing(t)) terms.push_back(t);
  if (terms.empty()) terms.push_back(all[0]);
  return terms;
}

int pieces_of(int64_t n) { return static_cast<int>((n + piece - 1) / piece); }

// Of which nothing is recorded.
bool are_floats(const Tensors& terms) {
  return std::all_of(terms.begin(), terms.end(), [recorded = at::GradMode::is_enabled()](const at::Tensor& t) {
    return t.is_cpu() && t.scalar_type() == at::kFloat && !t.is_neg() && !(recorded && t.requires_grad());
  });
}

at::Tensor sum_of_floats(const Tensors& terms) {
  const at::Tensor sum(at::detail::empty_cpu(terms[0].sizes(), at::kFloat));
  const int64_t n = sum.numel();
  float* const out = sum.mutable_data_ptr<float>();
  parallel_for(pieces_of(n), cost_of(terms), [&](int i) {
    c10::SmallVector<const float*, 8> elements;
    for (const at::Tensor& t : terms) elements.push_back(t.const_data_ptr<float>() + i * piece);
    add_floats({elements.data(), elements.size()}, out + i * piece, std::min(piece, n - i * piece));
  });
  return sum;
}

at::Tensor sum_by_libtorch(const Tensors& terms) {
  at::Tensor sum = at::add(terms[0], terms[1]);
  for (size_t i = 2; i < terms.size(); ++i) sum.add_(terms[i]);
  return sum;
}

at::Tensor sum_in_double_by_libtorch(const Tensors& terms) {
  at::Tensor total = terms[0].to(at::kDouble);
  for (size_t i = 1; i < terms.size(); ++i) total.add_(terms[i]);
  return total.to(terms[0].scalar_type());
}

}  // namespace

at::Tensor zero_placeholder(const at::Tensor& t) { return at::full({}, no_term, t.options()).expand(t.sizes()); }

at::Tensor sum_tensors(const Tensors& all) {
  if (all.size() == 1) return all[0];
  if (uses_plain(Kernel::vector_sums)) return sum_by_libtorch(all);
  const Tensors terms = without_nothing(all);
  if (terms.size() == 1) return terms[0];
  const int64_t n = terms[0].numel();
  const bool flat = std::all_of(terms.begin(), terms.end(), [](const at::Tensor& t) { return t.is_contiguous(); });
  if (flat && are_floats(terms)) return sum_of_floats(terms);
  if (!flat || n < 2 * piece || !terms[0].is_cpu()) return sum_by_libtorch(terms);
  const at::Tensor sum = at::empty_like(terms[0]);
  Tensors lines;
  for (const at::Tensor& t : terms) lines.push_back(t.view({-1}));
  const at::Tensor out = sum.view({-1});
  parallel_for(pieces_of(n), cost_of(terms), [&](int i) {
    const at::AutoGradMode off(false);
    const int64_t begin = i * piece, count = std::min(piece, n - begin);
    at::Tensor part = out.narrow(0, begin, count);
    at::add_out(part, lines[0].narrow(0, begin, count), lines[1].narrow(0, begin, count));
    for (size_t k = 2; k < lines.size(); ++k) part.add_(lines[k].narrow(0, begin, count));
  });
  return sum;
}

at::Tensor sum_tensors_in_double(const Tensors& all) {
  const Tensors terms = without_nothing(all);
  if (terms.size() == 1) return terms[0];
  const at::Tensor& first = terms[0];
  const bool flat = std::all_of(terms.begin(), terms.end(), [](const at::Tensor& t) { return t.is_contiguous(); });
  if (!flat || first.scalar_type() != at::kFloat || !first.is_cpu() || uses_plain(Kernel::vector_sums))
    return sum_in_double_by_libtorch(terms);
  const at::Tensor sum = at::empty_like(first);
  float* const out = sum.mutable_data_ptr<float>();
  std::array<double, 512> total;
  const int64_t n = first.numel();
  for (int64_t begin = 0; begin < n; begin += std::ssize(total)) {
    const int64_t count = std::min(std::ssize(total), n - begin);
    std::copy_n(first.const_data_ptr<float>() + begin, count, total.begin());
    for (size_t k = 1; k < terms.size(); ++k) {
      const float* const term = terms[k].const_data_ptr<float>() + begin;
      for (int64_t i = 0; i < count; ++i) total[i] += term[i];
    }
    std::copy_n(total.begin(), count, out + begin);
  }
  return sum;
}

Tensors sum_each(const std::vector<Tensors>& lists) {
  Tensors sums(lists.size());
  int64_t cost = 0;
  for (const Tensors& list : lists)
    if (list.size() > 1) cost += cost_of(list);
  parallel_for(static_cast<int>(lists.size()), cost, [&](int i) {
    const at::AutoGradMode off(false);
    sums[i] = sum_tensors(lists[i]);
  });
  return sums;
}

}  // namespace tessera::detail
