// Arrays over the memory of DLPack tensors, and the other way round; with LibTorch and, where installed, numpy.
#include "sharding/array/dlpack.h"

#include <ATen/ATen.h>
#include <ATen/DLConvertor.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>

#include "sharding/array/ownership.h"
#include "sharding/autodiff/tape.h"
#include "sharding/operations.h"
#include "sharding/redistribution/device_put.h"
#include "sharding/shard_map.h"
#include "tests/sharding/expect_error.h"

namespace tessera::dlpack_test {
namespace {

using tessera::testing::expect_error;

const void* address_of(const Array& x) { return x.impl()->local[0].const_data_ptr(); }
void release(auto* tensor) { tensor->deleter(tensor); }

// A tensor of another library: the transpose of the rows {0, 1, 2} and {10, 11, 12} in a buffer with a header.
template <class Managed>
struct Producer {
  float buffer[8] = {-1, -1, 0, 1, 2, 10, 11, 12};
  int64_t shape[2] = {3, 2}, strides[2] = {1, 3};
  int deleted = 0;
  Managed tensor{};

  Producer() {
    tensor.dl_tensor = {buffer, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 2 * sizeof(float)};
    tensor.manager_ctx = this;
    tensor.deleter = [](Managed* self) { ++static_cast<Producer*>(self->manager_ctx)->deleted; };
    if constexpr (requires { tensor.version; }) tensor.version = {1, 0};
  }
};

template <class Managed>
void expect_shared() {
  Producer<Managed> producer;
  {
    const Array x = from_dlpack(&producer.tensor), copy = x;
    EXPECT_EQ(address_of(x), producer.buffer + 2);
    EXPECT_EQ(copy.to_host<float>(), std::vector<float>({0, 10, 1, 11, 2, 12}));
    EXPECT_EQ((x + 1).to_host<float>(), std::vector<float>({1, 11, 2, 12, 3, 13}));
    EXPECT_FALSE(detail::owns_memory(x.impl()->local[0]));  // so an update in place copies it
    EXPECT_EQ(producer.deleted, 0);
  }
  EXPECT_EQ(producer.deleted, 1);
}

TEST(Dlpack, SharesTheMemoryOfAForeignTensorUntilItsLastUse) {
  expect_shared<DLManagedTensor>();
  expect_shared<DLManagedTensorVersioned>();
}

TEST(Dlpack, ReturnsEveryElementTypeWithoutACopy) {
  const Mesh mesh = make_mesh({{"data", 2}}), apart = make_mesh({{"data", 2}}, {.private_replicas = true});
  for (const DType dtype : {uint8, int8, int16, int32, int64, float16, float32, float64, boolean, bfloat16}) {
    const Array x = astype(array<int32_t>({0, 1, 1, 0, 1, 1}, {2, 3}), dtype);
    for (const Array& given : {x, transpose(x), device_put(x, NamedSharding(mesh, P{})), zeros({0, 2}, dtype)}) {
      const at::Tensor expected = to_tensor(given);
      const Array back = from_dlpack(to_dlpack(given)), placed = from_dlpack(to_dlpack_versioned(given), mesh);
      EXPECT_EQ(back.type_string(), from_tensor(expected).type_string());
      EXPECT_TRUE(at::equal(to_tensor(back), expected) && at::equal(to_tensor(placed), expected));
      EXPECT_TRUE(at::equal(at::fromDLPack(to_dlpack(given)), expected));
      EXPECT_TRUE(address_of(back) == address_of(given) && address_of(placed) == address_of(given)) << dtype;
      EXPECT_TRUE(at::equal(from_dlpack(to_dlpack(given), apart).impl()->local[1], expected));
    }
  }
}

TEST(Dlpack, ExportedMemoryIsCopiedBeforeAnUpdateInPlace) {
  Array w = array<float>({1, 2, 3});
  DLManagedTensorVersioned* const exported = to_dlpack_versioned(w);
  EXPECT_EQ(exported->flags & DLPACK_FLAG_BITMASK_READ_ONLY, 1u);
  detail::make_sole_owner(w);  // as optimizers do
  w.impl()->local[0].fill_(9);
  w = Array();
  EXPECT_EQ(static_cast<const float*>(exported->dl_tensor.data)[2], 3);
  release(exported);
  const Array v = array<float>({1, 2});
  release(to_dlpack(v));
  EXPECT_TRUE(detail::is_sole_owner(v));
}

TEST(Dlpack, AfterAnErrorTheCallerOwnsTheTensor) {
  const auto refuse = [](ErrorKind kind, const std::string& words, auto change, std::optional<Mesh> mesh = {}) {
    Producer<DLManagedTensorVersioned> producer;
    change(producer.tensor);
    expect_error(kind, words, [&] { from_dlpack(&producer.tensor, mesh); });
    EXPECT_EQ(producer.deleted, 0) << words;
  };
  constexpr auto invalid = ErrorKind::invalid_argument;
  refuse(invalid, "[from_dlpack] a tensor with a negative stride", [](auto& t) { t.dl_tensor.strides[0] = -1; });
  refuse(invalid, "without data", [](auto& t) { t.dl_tensor.data = nullptr; });
  refuse(invalid, "without shape", [](auto& t) { t.dl_tensor.shape = nullptr; });
  refuse(invalid, "of -1 dimensions", [](auto& t) { t.dl_tensor.ndim = -1; });
  refuse(invalid, "(code 0, 3 bits, 1 lanes)", [](auto& t) { t.dl_tensor.dtype = {kDLInt, 3, 1}; });
  refuse(invalid, "on device type 7, which", [](auto& t) { t.dl_tensor.device = {kDLVulkan, 0}; });
  refuse(invalid, "DLPack 2.0, expected version 1", [](auto& t) { t.version.major = 2; });
  refuse(ErrorKind::dtype_mismatch, "Complex", [](auto& t) { t.dl_tensor.dtype = {kDLComplex, 64, 1}; });
  refuse(
      ErrorKind::device_mismatch, "in the memory of cpu, the mesh", [](auto&) {},
      make_mesh({{"data", 2}}, {.abstract = true}));
  expect_error(ErrorKind::missing_array, "null pointer", [] { from_dlpack(static_cast<DLManagedTensor*>(nullptr)); });
}

TEST(Dlpack, RefusesArraysWithoutOneWholeBlock) {
  const Mesh mesh = make_mesh({{"data", 2}});
  const Array x = device_put(array<float>({1, 2, 3, 4}), NamedSharding(mesh, P{"data"}));
  for (const Array& given : {x, redistribute(x, NamedSharding(mesh, P{none}.unreduced({"data"}))),
                             device_put(ones({3}), NamedSharding(mesh, P{{"data", Uneven::pad}}))})
    expect_error(ErrorKind::invalid_argument, "Export gather(x)", [&] { to_dlpack(given); });
  EXPECT_TRUE(at::equal(at::fromDLPack(to_dlpack(gather(x))), to_tensor(x)));
  EXPECT_TRUE(at::equal(at::fromDLPack(to_dlpack(x.addressable_shards()[1].data)), to_tensor(x).slice(0, 2)));
  expect_error(ErrorKind::missing_array, "[to_dlpack] the array is absent", [] { to_dlpack(Array()); });
  const Array nowhere = device_put(ones({4}), NamedSharding(make_mesh({{"data", 2}}, {.abstract = true}), P{}));
  expect_error(ErrorKind::missing_array, "holds no values", [&] { to_dlpack(nowhere); });
  const auto inside = [](const Array& block) { return from_dlpack(to_dlpack(block)); };
  expect_error(ErrorKind::invalid_argument, "psum", [&] { shard_map(inside, mesh, P{"data"}, P{"data"})(x); });
  const Tape tape({ones({2})});
  for (const Array& given : {tape.shadows()[0], tape.shadows()[0] * 2})
    expect_error(ErrorKind::invalid_argument, "Export stop_gradient(x)", [&] { to_dlpack(given); });
  release(to_dlpack(stop_gradient(tape.shadows()[0])));
}

DLManagedTensor* export_to_python() { return to_dlpack(array<float>({0, 1, 2, 3, 4, 5}, {2, 3})); }
double import_from_python(DLManagedTensor* tensor) {
  return sum(from_dlpack(tensor) * array<float>({1, 10, 100, 1000}, {2, 2})).item<float>();
}

// A consumer renames the capsule when it takes the tensor.
const char* const script = R"(
import ctypes
api = ctypes.pythonapi
api.PyCapsule_New.restype, api.PyCapsule_GetPointer.restype = ctypes.py_object, ctypes.c_void_p

class Exported:
    def __dlpack__(self, **options):
        address = ctypes.CFUNCTYPE(ctypes.c_void_p)(export_address)()
        return api.PyCapsule_New(ctypes.c_void_p(address), b'dltensor', None)
    def __dlpack_device__(self):
        return 1, 0

array = numpy.from_dlpack(Exported())
assert array.tolist() == [[0, 1, 2], [3, 4, 5]] and array.dtype == numpy.float32
del array
capsule = numpy.arange(8, dtype=numpy.float32).reshape(2, 4)[:, 1::2].T.__dlpack__()  # 1 5, 3 7
tensor = api.PyCapsule_GetPointer(ctypes.py_object(capsule), b'dltensor')
result = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_void_p)(import_address)(tensor)
used = b'used_dltensor'
api.PyCapsule_SetName(ctypes.py_object(capsule), used)
assert result == 1 + 50 + 300 + 7000, result
)";

// Runs Python's interpreter inside this program, because both sides share memory.
TEST(Dlpack, ExchangesArraysWithNumpy) {
  char path[4096] = {};
  FILE* const out = popen(
      "python3 -c 'import sysconfig as s; print(s.get_config_var(\"LIBDIR\") + \"/\" + "
      "s.get_config_var(\"INSTSONAME\"), end=\"\")' 2> /dev/null",
      "r");
  if (fread(path, 1, sizeof path - 1, out) == 0 || pclose(out)) GTEST_SKIP() << "no python3";
  void* const python = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
  if (!python) GTEST_SKIP() << "python3 has no shared library";
  const auto run = [&](const std::string& code) {
    return reinterpret_cast<int (*)(const char*)>(dlsym(python, "PyRun_SimpleString"))(code.c_str());
  };
  reinterpret_cast<void (*)(int)>(dlsym(python, "Py_InitializeEx"))(0);
  if (run("import numpy")) GTEST_SKIP() << "python3 has no numpy";
  run(fmt::format("export_address, import_address = {}, {}", reinterpret_cast<intptr_t>(export_to_python),
                  reinterpret_cast<intptr_t>(import_from_python)));
  EXPECT_EQ(run(script), 0);
}

}  // namespace
}  // namespace tessera::dlpack_test
