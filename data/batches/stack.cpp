// Allocates arrays through LibTorch, and throws the errors of rows with different shapes.
#include "data/batches/stack.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "data/datasets/collate.h"
#include "sharding/base/fail.h"

namespace tessera::data::detail {

Unwritten unwritten(DType dtype, Shape shape) {
  const at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(static_cast<c10::ScalarType>(dtype)));
  return {from_tensor(tensor), tensor.mutable_data_ptr()};
}

Array mask_of(int64_t rows, int64_t valid) {
  const Unwritten mask = unwritten(boolean, {rows});
  auto* to = static_cast<bool*>(mask.data);
  std::fill(to, to + valid, true);
  std::fill(to + valid, to + rows, false);
  return mask.array;
}

void check_records(size_t count) {
  if (count == 0) fail(ErrorKind::shape_mismatch, "stack", "no records, expected at least one");
}

void check_length(size_t length, size_t expected, std::string_view name) {
  if (length == expected) return;
  fail(ErrorKind::shape_mismatch, "stack",
       "{}: rows of {} and {} values in one batch; truncate or pad the records to one length", name, expected, length);
}

Array stack_arrays(const std::vector<Array>& arrays, std::string_view name) {
  std::vector<at::Tensor> tensors;
  const auto absent = static_cast<size_t>(
      std::count_if(arrays.begin(), arrays.end(), [](const Array& array) { return array.is_absent(); }));
  if (absent == arrays.size()) return {};
  if (absent > 0)
    fail(ErrorKind::missing_array, "stack",
         "{}: absent in {} of {} records of one batch, expected it in all or in none", name, absent, arrays.size());
  for (const Array& array : arrays) {
    if (array.shape() != arrays.front().shape() || array.dtype() != arrays.front().dtype()) {
      fail(ErrorKind::shape_mismatch, "stack", "{}: {} and {} in one batch, expected one shape and one element type",
           name, arrays.front().type_string(), array.type_string());
    }
    tensors.push_back(to_tensor(array));
  }
  return from_tensor(at::stack(tensors));
}

}  // namespace tessera::data::detail
