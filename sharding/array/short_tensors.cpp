// Past the dispatcher, by memory.
#include "sharding/array/short_tensors.h"

#include <ATen/EmptyTensor.h>

#include <cstring>

namespace tessera::detail {

bool is_short(const at::Tensor& t) {
  constexpr int64_t most_elements = 1 << 13;
  return t.is_cpu() && t.numel() <= most_elements && t.is_contiguous() && !t.is_conj() && !t.is_neg();
}

at::Tensor copy_of(const at::Tensor& t) {
  if (!is_short(t)) return t.detach().clone(at::MemoryFormat::Contiguous);
  at::Tensor copy(at::detail::empty_cpu(t.sizes(), t.scalar_type()));
  if (t.numel()) std::memcpy(copy.mutable_data_ptr(), t.const_data_ptr(), t.nbytes());
  return copy;
}

}  // namespace tessera::detail
