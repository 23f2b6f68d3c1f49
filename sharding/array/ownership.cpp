// Counts references to arrays, to their tensors, and to their storages.
#include "sharding/array/ownership.h"

#include <algorithm>

namespace tessera::detail {

bool owns_memory(const at::Tensor& t, size_t others) {
  const size_t own = t.is_view() && t._base().use_count() == 1 ? 2 : 1;  // autograd keeps the base of a view
  return t.use_count() == 1 && t.storage().use_count() == own + others &&
         t.storage().unsafeGetStorageImpl()->resizable() && t.is_contiguous() && !t.requires_grad();
}

bool is_sole_owner(const Array& x, size_t others) {
  const ArrayImpl& a = *x.impl();
  if (x.impl().use_count() > 1 || (a.details && !a.details->conversions.empty())) return false;
  return std::all_of(a.local.begin(), a.local.end(), [&](const at::Tensor& t) { return owns_memory(t, others); });
}

Array with_tensors(const ArrayImpl& a, Tensors local) {
  ArrayPtr made = make_array(a.type, a.slots, std::move(local));
  copy_facts(a, *made);
  made->weight = a.weight;
  return Array(std::move(made));
}

void make_sole_owner(Array& x, size_t others) {
  if (x.impl().use_count() > 1) x = with_tensors(*x.impl(), x.impl()->local);
  ArrayImpl& a = *x.impl();
  if (a.details) a.details->conversions.clear();
  for (at::Tensor& t : a.local)
    if (!owns_memory(t, others)) t = t.detach().clone(at::MemoryFormat::Contiguous);
}

}  // namespace tessera::detail
