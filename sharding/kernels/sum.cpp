// Sums tensors in a fixed order and skips zero_placeholder terms (sharding/kernels/tensors.h).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "sharding/kernels/parallel_for.h"
#include "sharding/kernels/tensors.h"

namespace tessera::detail {
namespace {

int64_t cost_of(const Tensors& terms) {
  return static_cast<int64_t>(terms.size()) * nanoseconds_of(1, terms[0].numel());
}

bool is_placeholder(const at::Tensor& t) {
  if (!t.is_cpu() || t.numel() < 2 || t.storage().nbytes() != t.itemsize()) return false;
  const char* const element = static_cast<const char*>(t.const_data_ptr());
  const char* const sign = element + t.itemsize() - 1;
  return *sign == (t.is_floating_point() ? '\x80' : 0) &&
         std::all_of(element, sign, [](char byte) { return byte == 0; });
}

// Returns the terms that are not placeholders, but at least one.
Tensors without_placeholders(const Tensors& all) {
  Tensors terms;
  for (const at::Tensor& t : all)
    if (!is_placeholder(t)) terms.push_back(t);
  if (terms.empty()) terms.push_back(all[0]);
  return terms;
}

}  // namespace

at::Tensor zero_placeholder(const at::Tensor& t) { return at::full({}, no_term, t.options()).expand(t.sizes()); }

at::Tensor sum_tensors(const Tensors& all) {
  const Tensors terms = without_placeholders(all);
  if (terms.size() == 1) return terms[0];
  at::Tensor sum = at::add(terms[0], terms[1]);
  for (size_t i = 2; i < terms.size(); ++i) sum.add_(terms[i]);
  return sum;
}

at::Tensor sum_tensors_in_double(const Tensors& all) {
  const Tensors terms = without_placeholders(all);
  if (terms.size() == 1) return terms[0];
  at::Tensor sum = terms[0].to(at::kDouble);
  for (size_t i = 1; i < terms.size(); ++i) sum.add_(terms[i]);
  return sum.to(terms[0].scalar_type());
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
