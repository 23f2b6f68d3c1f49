// DLPack tensors in and out. LibTorch converts element types and devices.
#include "sharding/array/dlpack.h"

#include <ATen/DLConvertor.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "sharding/array/array_impl.h"
#include "sharding/base/fail.h"
#include "sharding/base/text.h"

namespace tessera {

using namespace detail;

namespace {

template <class Tensor>
void check(const Tensor* tensor) {
  if (!tensor) fail(ErrorKind::missing_array, "from_dlpack", "a null pointer, expected a DLPack tensor.");
  if constexpr (std::is_same_v<Tensor, DLManagedTensorVersioned>)
    if (tensor->version.major != 1)
      fail(ErrorKind::invalid_argument, "from_dlpack",
           "a tensor of DLPack {}.{}, expected version 1. Request it, in Python with max_version=(1, 0).",
           tensor->version.major, tensor->version.minor);
  const DLTensor& t = tensor->dl_tensor;
  const bool has_elements = t.ndim >= 0 && (t.ndim == 0 || t.shape) &&
                            std::all_of(t.shape, t.shape + t.ndim, [](int64_t size) { return size > 0; });
  if (t.ndim < 0 || (t.ndim > 0 && !t.shape) || (has_elements && !t.data))
    fail(ErrorKind::invalid_argument, "from_dlpack",
         "a tensor of {} dimensions, with{} shape and with{} data, expected both. The library that made it is wrong.",
         t.ndim, t.shape ? "" : "out", t.data ? "" : "out");
  if (t.strides && std::any_of(t.strides, t.strides + t.ndim, [](int64_t stride) { return stride < 0; }))
    fail(ErrorKind::invalid_argument, "from_dlpack",
         "a tensor with a negative stride, expected 0 or more. Copy it first, in numpy with ascontiguousarray.");
}

template <class Tensor>
at::Tensor tensor_over(Tensor* tensor, const std::function<void(void*)>& deleter) {
  const DLTensor& t = tensor->dl_tensor;
  try {
    if constexpr (std::is_same_v<Tensor, DLManagedTensorVersioned>)
      return at::fromDLPackVersioned(tensor, deleter);
    else
      return at::fromDLPack(tensor, deleter);
  } catch (const c10::Error& error) {
    fail(ErrorKind::invalid_argument, "from_dlpack",
         "a tensor of element type (code {}, {} bits, {} lanes) on device type {}, which LibTorch rejects: {}. Convert "
         "it, or copy it to the host first.",
         t.dtype.code, t.dtype.bits, t.dtype.lanes, static_cast<int>(t.device.device_type),
         first_line(error.what_without_backtrace()));
  }
}

Array replicated_on(const MeshImpl* mesh, const at::Tensor& t) {
  if (mesh->abstract || t.device() != mesh->device)
    fail(ErrorKind::device_mismatch, "from_dlpack",
         "a tensor in the memory of {}, the mesh ({}) is on {}. Omit the mesh, and place the array with device_put.",
         t.device().str(), Mesh(mesh).to_string(), mesh->device.str());
  const Type* type = on_mesh(uncommitted_type(static_cast<DType>(t.scalar_type()), t.sizes().vec()), mesh);
  Tensors local{t};
  while (static_cast<int>(local.size()) < mesh->slots(type->slots)) local.push_back(t.clone());
  return Array(make_array(type, std::move(local)));
}

template <class Tensor>
Array imported(Tensor* tensor, const std::optional<Mesh>& mesh) {
  check(tensor);
  const auto is_taken = std::make_shared<bool>(false);  // after an Error the caller runs the deleter
  const at::Tensor t = tensor_over(tensor, [tensor, is_taken](void*) {
    if (*is_taken && tensor->deleter) tensor->deleter(tensor);
  });
  Array result = from_tensor(t);  // checks the element type
  if (mesh) result = replicated_on(mesh->impl(), t);
  *is_taken = true;
  return result;
}

at::Tensor only_block(const Array& x) {
  const ArrayImpl& a = materialized(x, "to_dlpack");
  const Type* type = a.type;
  if (a.local[0].is_meta())
    fail(ErrorKind::missing_array, "to_dlpack",
         "{} is on an abstract mesh or on other processes, and holds no values. Export it where its values are.",
         type->to_string());
  if (type->own())
    fail(ErrorKind::invalid_argument, "to_dlpack",
         "{} is stored in several blocks, expected one with the whole value. Export gather(x), or in a shard_map the "
         "result of psum or all_gather.",
         type->to_string());
  if (is_differentiated(a))
    fail(ErrorKind::invalid_argument, "to_dlpack",
         "{} is being differentiated, and another library returns no gradient. Export stop_gradient(x).",
         type->to_string());
  return a.local[0].detach();
}

}  // namespace

Array from_dlpack(DLManagedTensor* tensor, const std::optional<Mesh>& mesh) { return imported(tensor, mesh); }
Array from_dlpack(DLManagedTensorVersioned* tensor, const std::optional<Mesh>& mesh) { return imported(tensor, mesh); }

DLManagedTensor* to_dlpack(const Array& x) { return at::toDLPack(only_block(x)); }
DLManagedTensorVersioned* to_dlpack_versioned(const Array& x) {
  DLManagedTensorVersioned* const tensor = at::toDLPackVersioned(only_block(x));
  tensor->flags |= DLPACK_FLAG_BITMASK_READ_ONLY;
  return tensor;
}

}  // namespace tessera
