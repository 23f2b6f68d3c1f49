// Computes the global norm in bulk: one kernel over all distinct blocks, and one number to reduce.
#include "optim/formulas/global_norm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "optim/transform/internal.h"
#include "sharding/array/array_impl.h"
#include "sharding/array/tape_state.h"
#include "sharding/base/fail.h"
#include "sharding/kernels/parallel_for.h"
#include "sharding/kernels/simd_loops.h"
#include "sharding/kernels/staging_pool.h"
#include "sharding/kernels/tensors.h"
#include "sharding/operations/elementwise/elementwise.h"
#include "sharding/operations/reduce/reductions.h"
#include "sharding/redistribution/communicate.h"
#include "sharding/redistribution/convert.h"

namespace tessera::optim::detail {

using namespace tessera::detail;

namespace {

struct Blocks {
  std::vector<at::Tensor> exact, rounded;  // float32 and float64; other types, accumulated in float32
  const MeshImpl* mesh = nullptr;
  tessera::detail::AxisSet axes = 0;
  int arrays = 0;
  DType dtype = DType::float32;
};

void check_mesh(const Blocks& blocks, const Type* type) {
  if (blocks.mesh && type->mesh && tessera::detail::whole_of(type->mesh) != blocks.mesh)
    fail(ErrorKind::device_mismatch, "global_norm",
         "{} is on another mesh ({}) than the arrays before it ({}). Place all on one mesh.", type->to_string(),
         Mesh(type->mesh).to_string(), Mesh(blocks.mesh).to_string());
  if (type->varying)
    fail(ErrorKind::invalid_argument, "global_norm",
         "{} differs from device to device. Reduce it first, with psum or pmean.", type->to_string());
}

ArrayPtr summed(const Array& x) {
  ArrayImpl& a = materialized(x, "global_norm");
  static const Text reason = tessera::detail::lasting_text("a norm is not linear: the partial sum is reduced first");
  return convert(a, x.impl(), with_unreduced(a.type, 0),
                 {.operation = "global_norm", .where = {}, .reason = reason, .path = {}});
}

// Returns whether other processes hold the same blocks and count them.
bool counts_elsewhere(const Type* type, const MeshImpl* mesh) {
  return mesh && (mesh->elsewhere || process_along(mesh, mesh->crossing() & ~type->sharded, Coordinates(mesh)) != 0);
}

// Adds the tensors that hold each element of `x` once, over all processes.
void add_blocks(const Array& x, Blocks& out) {
  const ArrayPtr array = summed(x);
  const Type* type = array->type;
  check_mesh(out, type);
  out.axes |= type->sharded | tessera::detail::cut_of(type->mesh);
  out.arrays += 1;
  if (type->dtype == DType::float64) out.dtype = DType::float64;
  if (type->mesh ? counts_elsewhere(type, type->mesh) : counts_elsewhere(type, out.mesh)) return;
  auto& list = item_size(type->dtype) >= 4 && is_floating(type->dtype) ? out.exact : out.rounded;
  const int blocks = type->mesh ? type->mesh->slots(type->mesh->distinct(type->sharded)) : 1;
  for (int b = 0; b < blocks; ++b) {
    const int slot = type->mesh ? project(type->mesh, type->sharded, b, array->slots) : 0;
    const at::Tensor t = in_memory_of(out.mesh, array->local[slot]);
    list.push_back(is_floating(type->dtype) ? t : t.to(at::kFloat));
  }
}

// A float32 sum of millions of squares is wrong in the fourth digit. So only short sums are computed in float32; their
// results are added in float64.
constexpr int64_t longest_sum = 1 << 14;

using Accumulate = std::optional<at::ScalarType>;

// Returns tables with the elements of the tensors: the rows of a long tensor are short sums, other tensors are one row.
std::vector<at::Tensor> parts_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& t : tensors) {
    const int64_t rows = t.numel() / longest_sum, rest = t.numel() % longest_sum;
    if (rows < 2 || !t.is_contiguous()) {
      parts.push_back(t.reshape({1, -1}));
      continue;
    }
    const at::Tensor flat = t.view({-1});
    parts.push_back(flat.narrow(0, 0, rows * longest_sum).view({rows, longest_sum}));
    if (rest) parts.push_back(flat.narrow(0, rows * longest_sum, rest).unsqueeze(0));
  }
  return parts;
}

constexpr int64_t few = 4096;  // elements; their sum takes no longer than a call of LibTorch's kernel

bool is_small(const at::Tensor& t) {
  return t.is_cpu() && t.scalar_type() == at::kFloat && t.numel() <= few && t.is_contiguous();
}

// Returns an uninitialized tensor of this shape. On an accelerator its memory is reused by the next steps.
at::Tensor result_like(const at::Tensor& x, at::IntArrayRef shape, at::ScalarType dtype) {
  static auto* kept = new StagingPool;
  return kept->get(shape, x.options().dtype(dtype));
}

at::Tensor stacked(const std::vector<at::Tensor>& numbers) {
  const at::ScalarType dtype = numbers[0].scalar_type();
  for (const at::Tensor& n : numbers)
    if (n.scalar_type() != dtype) return at::stack(numbers);
  at::Tensor result = result_like(numbers[0], {static_cast<int64_t>(numbers.size())}, dtype);
  return at::stack_out(result, numbers);
}

at::Tensor length_of(const at::Tensor& numbers) {
  at::Tensor result = result_like(numbers, {}, at::kDouble);
  return at::linalg_vector_norm_out(result, numbers, 2, std::nullopt, false, at::kDouble);
}

at::Tensor rounded(const at::Tensor& number, at::ScalarType dtype) {
  return number.scalar_type() == dtype ? number : result_like(number, {}, dtype).copy_(number);
}

// Appends the norm of each row of these tensors.
void add_norms(std::vector<at::Tensor> tensors, Accumulate dtype, std::vector<at::Tensor>& norms) {
  std::vector<double> of_small;
  std::erase_if(tensors, [&](const at::Tensor& t) {
    if (!is_small(t)) return false;
    of_small.push_back(std::sqrt(sum_of_squares(tessera::detail::const_elements<float>(t), t.numel())));
    return true;
  });
  if (!of_small.empty()) norms.push_back(at::tensor(of_small, at::kDouble));
  if (!tensors.empty() && tessera::detail::is_on_accelerator(tensors[0])) {  // one kernel for all tensors
    norms.push_back(stacked(at::_foreach_norm(tensors, 2, dtype)));
    return;
  }
  const std::vector<at::Tensor> parts = parts_of(tensors);
  const size_t before = norms.size();
  norms.resize(before + parts.size());
  int64_t cost = 0;
  for (const at::Tensor& part : parts) cost += nanoseconds_of(1, part.numel());
  parallel_for(static_cast<int>(parts.size()), cost, [&](int i) {
    const at::AutoGradMode off(false);
    norms[before + i] = at::linalg_vector_norm(parts[i], 2, at::IntArrayRef{1}, false, dtype);
  });
}

// Returns the norm of all devices' blocks; it is bitwise equal on all processes.
at::Tensor over_devices(const at::Tensor& norm, const Blocks& blocks) {
  if (!blocks.mesh) return norm;
  const auto event = [&] {
    const Provenance cause{.operation = "global_norm",
                           .where = {},
                           .reason = tessera::detail::as_text(
                               fmt::format("the blocks are sharded over {}", blocks.mesh->names(blocks.axes))),
                           .path = {}};
    const int64_t bytes = blocks.mesh->count(blocks.axes) > 1 ? item_size(blocks.dtype) : 0;
    Communication made = event_of(Collective::all_reduce, blocks.mesh, blocks.axes, bytes, {.cause = cause});
    made.operand = tessera::detail::as_text(fmt::format("{} arrays", blocks.arrays));
    made.result = tessera::detail::as_text(fmt::format("{}[]", name_of(blocks.dtype)));
    return made;
  };
  const AxisSet over = blocks.mesh->crossing();
  Tensors squares;
  if (over) squares.push_back(norm.square());
  const Tensors sums = communicate(
      event, [&] { return sum_over_processes(blocks.mesh, over, squares, {.operation = "global_norm", .where = {}}); });
  return over ? sums[0].sqrt() : norm;
}

at::Tensor norm_of(const Blocks& blocks) {
  std::vector<at::Tensor> norms;
  add_norms(blocks.exact, std::nullopt, norms);
  add_norms(blocks.rounded, at::kFloat, norms);
  const auto doubles = at::TensorOptions(memory_of(blocks.mesh)).dtype(at::kDouble);
  const at::Tensor here =
      norms.empty() ? at::zeros({}, doubles) : length_of(norms.size() == 1 ? norms[0] : at::cat(norms));
  return rounded(over_devices(here, blocks), static_cast<at::ScalarType>(blocks.dtype));
}

bool is_any_recorded(const std::vector<Array*>& arrays) {
  return current_tape() && std::any_of(arrays.begin(), arrays.end(),
                                       [](const Array* x) { return !x->is_absent() && wants_gradient(*x->impl()); });
}

// Computes the norm by operations that have gradients.
Array recorded_norm(const std::vector<Array*>& arrays) {
  std::vector<Array> squares;
  for (const Array* x : arrays)
    if (!x->is_absent()) squares.push_back(sum(square(astype(*x, promote(x->dtype(), float32)))));
  return sqrt(total(squares));
}

}  // namespace

void check_any_given(const std::vector<Array*>& arrays) {
  if (arrays.empty() || !std::all_of(arrays.begin(), arrays.end(), [](const Array* x) { return x->is_absent(); }))
    return;
  fail(ErrorKind::missing_array, "global_norm",
       "every array is absent: a filter took them out, or the tree was given away with std::move, as to "
       "optimizer.update(model, std::move(grads)). Take the norm before.");
}

Array global_norm(const std::vector<Array*>& arrays) {
  if (is_any_recorded(arrays)) return recorded_norm(arrays);
  at::AutoGradMode off(false);
  Blocks blocks;
  for (const Array* x : arrays)
    if (!blocks.mesh && x->is_committed()) blocks.mesh = tessera::detail::whole_of(x->impl()->type->mesh);
  for (size_t i = 0; i < arrays.size(); ++i) {
    prefetch_next(arrays, i);
    if (!arrays[i]->is_absent()) add_blocks(*arrays[i], blocks);
  }
  const at::Tensor norm = norm_of(blocks);
  if (!blocks.mesh) return from_tensor(norm);
  const Type* type = placed_type(blocks.dtype, {}, NamedSharding(Mesh(blocks.mesh), PartitionSpec{}));
  Tensors local;
  for (int s = 0; s < blocks.mesh->slots(type->slots); ++s) local.push_back(s ? norm.clone() : norm);
  return Array(make_array(type, std::move(local)));
}

}  // namespace tessera::optim::detail
