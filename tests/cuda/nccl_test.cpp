// Compares the NCCL engine with the process group: the same collectives on GPU memory, one GPU per process.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "sharding/base/error.h"
#include "sharding/runtime/nccl/process_group_nccl.h"
#include "sharding/runtime/process_group.h"
#include "sharding/runtime/processes.h"
#include "tests/sharding/expect_error.h"

namespace tessera::detail {
namespace {

using testing::expect_error;

WaitContext here(const char* operation) { return {.operation = operation, .where = std::source_location::current()}; }

int visible_gpus() {
  int found = 0;
  return cudaGetDeviceCount(&found) == cudaSuccess ? found : 0;
}

// LibTorch may be a CPU build. Tensors are therefore views of memory that CUDA allocated, copied by CUDA.
at::Tensor on_gpu(const at::Tensor& t) {
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, std::max<size_t>(t.nbytes(), 1)), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(data, t.const_data_ptr(), t.nbytes(), cudaMemcpyHostToDevice), cudaSuccess);
  int device = 0;
  cudaGetDevice(&device);
  const at::Device gpu(at::kCUDA, static_cast<at::DeviceIndex>(device));
  return at::for_blob(data, t.sizes())
      .deleter([](void* p) { cudaFree(p); })
      .options(t.options().device(gpu))
      .target_device(gpu)
      .make_tensor();
}

at::Tensor on_cpu(const at::Tensor& t) {
  at::Tensor copy = at::empty(t.sizes(), t.options().device(at::kCPU));
  EXPECT_EQ(cudaMemcpy(copy.mutable_data_ptr(), t.const_data_ptr(), copy.nbytes(), cudaMemcpyDeviceToHost),
            cudaSuccess);
  return copy;
}

// Returns small integers, whose sums are exact in every element type.
at::Tensor numbers(int process, at::IntArrayRef shape, at::ScalarType dtype) {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  const at::Tensor t = at::arange(n, at::kLong).mul(process + 3).remainder(dtype == at::kBool ? 2 : 4);
  return t.to(dtype).view(shape).contiguous();
}

// Skipped if there are fewer GPUs than processes.
class Nccl : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  void SetUp() override {
    if (visible_gpus() < process_count())
      GTEST_SKIP() << fmt::format("{} processes need {} GPUs, here are {}", process_count(), process_count(),
                                  visible_gpus());
    gpus_ = &gpu_group(everyone());
    cpus_ = &process_group(everyone());
  }
  at::Tensor mine(at::IntArrayRef shape) const { return numbers(process_index(), shape, GetParam()); }
  static void expect_equal(const at::Tensor& on_gpu, const at::Tensor& expected) {
    EXPECT_TRUE(at::equal(on_cpu(on_gpu), expected)) << "in process " << process_index();
  }

  ProcessGroup* gpus_ = nullptr;
  ProcessGroup* cpus_ = nullptr;
};

TEST_P(Nccl, FoldsAsTheProcessesDo) {
  for (const int64_t n : {1, 3, 100003})
    for (const ReduceOp how : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::product}) {
      at::Tensor expected = mine({n}), x = on_gpu(expected);
      gpus_->all_reduce(x, how, here("all_reduce"))->wait();
      cpus_->all_reduce(expected, how, here("all_reduce"))->wait();
      expect_equal(x, expected);
    }
}

TEST_P(Nccl, MovesAsTheProcessesDo) {
  const int n = process_count();
  at::Tensor all = at::empty({n, 5, 7}, GetParam()), gathered = on_gpu(all);
  gpus_->all_gather(on_gpu(mine({5, 7})), gathered, here("all_gather"))->wait();
  cpus_->all_gather(mine({5, 7}), all, here("all_gather"))->wait();
  expect_equal(gathered, all);

  at::Tensor part = at::empty({400}, GetParam()), scattered = on_gpu(part);
  gpus_->reduce_scatter(on_gpu(mine({n, 400})), scattered, here("reduce_scatter"))->wait();
  cpus_->reduce_scatter(mine({n, 400}), part, here("reduce_scatter"))->wait();
  expect_equal(scattered, part);

  at::Tensor received = at::empty({n, 3}, GetParam()), transposed = on_gpu(received);
  gpus_->all_to_all(on_gpu(mine({n, 3})), transposed, here("all_to_all"))->wait();
  cpus_->all_to_all(mine({n, 3}), received, here("all_to_all"))->wait();
  expect_equal(transposed, received);
}

TEST_P(Nccl, MessagesArriveInTheirOrder) {
  const int n = process_count(), me = process_index(), next = (me + 1) % n, before = (me + n - 1) % n;
  const std::vector<Message> sends{{next, on_gpu(numbers(me, {4}, GetParam()))},
                                   {next, on_gpu(numbers(me + 10, {9}, GetParam()))}};
  std::vector<Message> receives{{before, on_gpu(at::empty({4}, GetParam()))},
                                {before, on_gpu(at::empty({9}, GetParam()))}};
  gpus_->exchange(sends, receives, here("exchange"))->wait();
  expect_equal(receives[0].tensor, numbers(before, {4}, GetParam()));
  expect_equal(receives[1].tensor, numbers(before + 10, {9}, GetParam()));
}

INSTANTIATE_TEST_SUITE_P(DTypes, Nccl,
                         ::testing::Values(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kChar, at::kInt,
                                           at::kLong, at::kByte, at::kBool),
                         [](const auto& dtype) { return std::string(c10::toString(dtype.param)); });

using NcclOfFloats = Nccl;

TEST_P(NcclOfFloats, ABucketIsHeldUntilItIsWaitedFor) {
  std::vector<at::Tensor> bucket{on_gpu(mine({1000})), on_gpu(mine({7}))};
  std::vector<std::unique_ptr<Work>> begun;
  for (const at::Tensor& x : bucket)
    begun.push_back(gpus_->secondary().all_reduce(x, ReduceOp::sum, here("gradients")));
  EXPECT_EQ(bucket[0].use_count(), 2u);
  for (const auto& one : begun) one->wait();
  EXPECT_EQ(bucket[0].use_count(), 1u);
  at::Tensor expected = mine({1000});
  cpus_->all_reduce(expected, ReduceOp::sum, here("gradients"))->wait();
  expect_equal(bucket[0], expected);
}

TEST_P(NcclOfFloats, WhatIsGivenUpKeepsItsMemoryUntilTheGpuHasDoneIt) {
  const int64_t n = process_count();
  if (process_index() > 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the first process waits for the others
  auto begun = gpus_->secondary().all_gather(on_gpu(mine({100000})), on_gpu(at::empty({n, 100000})), here("matmul"));
  begun.reset();
  const at::Tensor expected = numbers(77, {n, 100000}, GetParam()), next = on_gpu(expected);
  gpus_->secondary().all_reduce(on_gpu(mine({7})), ReduceOp::sum, here("gradients"))->wait();
  expect_equal(next, expected);
}

TEST_P(NcclOfFloats, PartsOfTheProgramActApart) {
  if (process_count() < 2) GTEST_SKIP() << "needs 2 processes";
  ProcessGroup& part = gpu_group({process_index()});
  EXPECT_EQ(part.size(), 1);
  EXPECT_EQ(&part, &gpu_group({process_index()}));
  at::Tensor x = on_gpu(mine({5}));
  part.all_reduce(x, ReduceOp::sum, here("all_reduce"))->wait();
  expect_equal(x, mine({5}));
}

TEST_P(NcclOfFloats, RefusesWhatItCannotDo) {
  at::Tensor host = mine({5}), shorts = on_gpu(at::empty({5}, at::kShort));
  expect_error(ErrorKind::invalid_argument, "[ProcessGroup] a tensor is not contiguous in the memory of GPU ",
               [&] { gpus_->all_reduce(host, ReduceOp::sum, here("all_reduce"))->wait(); });
  expect_error(ErrorKind::invalid_argument, "[ProcessGroup] NCCL cannot reduce Short. Cast it first.",
               [&] { gpus_->all_reduce(shorts, ReduceOp::sum, here("all_reduce"))->wait(); });
}

INSTANTIATE_TEST_SUITE_P(Float, NcclOfFloats, ::testing::Values(at::kFloat), [](const auto&) { return "Float"; });

// Linking the engine makes it the default for meshes of GPUs.
TEST(NcclEngine, IsTheEngineOfGpus) {
  EXPECT_FALSE(register_process_group(
      c10::kCUDA, [](const std::vector<int>& all, c10::Device) -> ProcessGroup& { return process_group(all); }));
}

TEST(NcclWithoutGpu, ReportsThatThereIsNone) {
  if (visible_gpus() > 0) GTEST_SKIP() << "here are GPUs: " << visible_gpus();
  expect_error(
      ErrorKind::invalid_argument,
      fmt::format("[initialize] process {0} of {1} is number {0} on its machine, where it sees 0 GPUs (CUDA reports: ",
                  process_index(), process_count()),
      [] { gpu_group(everyone()); });
}

}  // namespace
}  // namespace tessera::detail
