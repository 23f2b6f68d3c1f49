// The engine of one process, whose local shards are the devices of each group; and the choice of a mesh's engine.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/zeros_like.h>

#include "sharding/kernels/parallel_for.h"
#include "sharding/kernels/tensors.h"
#include "sharding/redistribution/engine.h"

namespace tessera::detail {

at::Tensor block(const at::Tensor& t, int dim, int i, int n) {
  const int64_t width = t.size(dim) / n;
  return t.narrow(dim, i * width, width);
}

at::Tensor padded(const at::Tensor& t, int dim, int i, int n) {
  std::vector<int64_t> sizes = t.sizes().vec();
  sizes[dim] *= n;
  at::Tensor whole = t.new_full(sizes, no_term);
  block(whole, dim, i, n).copy_(t);
  return whole;
}

bool is_small_sum(const at::Tensor& t) {
  return t.numel() <= max_small_elements && t.is_floating_point() && t.itemsize() < 8;
}

namespace {

at::Tensor sum(const Tensors& parts, bool small) {
  if (parts.size() == 1) return parts[0];
  return small ? sum_tensors_in_double(parts) : sum_tensors(parts);
}

at::Tensor ordered_reduce(const Tensors& parts, at::Tensor (*combine)(const at::Tensor&, const at::Tensor&)) {
  at::Tensor all = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) all = combine(all, parts[i]);
  return all;
}

constexpr size_t least_bytes = 1 << 14;  // the smallest tensor for which a parallel job pays off

int64_t cost_of(const Tensors& tensors) {
  return static_cast<int64_t>(tensors.size()) * nanoseconds_of(1, tensors[0].numel());
}

// Joins the tensors by writing each in parallel.
at::Tensor join_in_parallel(const Tensors& parts, int dim) {
  if (!parts[0].is_cpu() || parts[0].nbytes() < least_bytes)
    return at::cat(at::ArrayRef<at::Tensor>(parts.data(), parts.size()), dim);
  std::vector<int64_t> sizes = parts[0].sizes().vec();
  sizes[dim] *= static_cast<int64_t>(parts.size());
  const at::Tensor whole = at::empty(sizes, parts[0].options());
  parallel_for(static_cast<int>(parts.size()), cost_of(parts), [&](int i) {
    const at::AutoGradMode off(false);
    block(whole, dim, i, static_cast<int>(parts.size())).copy_(parts[i]);
  });
  return whole;
}

}  // namespace

void broadcast(const at::Tensor& result, Tensors& out) {
  out[0] = result;
  const auto copies = static_cast<int>(out.size()) - 1;
  parallel_for(copies, copies * nanoseconds_of(1, result.numel()), [&](int i) {
    const at::AutoGradMode off(false);
    out[i + 1] = result.clone();
  });
}

void exchange_locally(const Exchange& e, const Tensors& in, Tensors& out) {
  const auto own = [&](size_t i) -> const at::Tensor& { return in[in.size() == 1 ? 0 : i]; };
  const auto each = [&](const auto& made) {
    parallel_for(static_cast<int>(out.size()), cost_of(in), [&](int i) {
      const at::AutoGradMode off(false);
      out[i] = made(i);
    });
  };
  const auto fill = [&](const at::Tensor& t) { broadcast(t, out); };
  const int n = e.devices;
  switch (e.collective) {
    case Collective::identity:
      for (size_t i = 0; i < out.size(); ++i) out[i] = own(i);
      return;
    case Collective::all_reduce:
      return fill(sum(in, is_small_sum(in[0])));
    case Collective::all_gather:
      return fill(join_in_parallel(in, e.dim));
    case Collective::reduce_scatter: {
      const at::Tensor total = sum(in, is_small_sum(block(in[0], e.dim, 0, n)));
      return each([&](int i) { return block(total, e.dim, i, n).contiguous(); });
    }
    case Collective::all_to_all:
      return each([&](int i) {
        Tensors parts;
        for (const at::Tensor& t : in) parts.push_back(block(t, e.to_dim, i, n));
        return at::cat(at::ArrayRef<at::Tensor>(parts.data(), parts.size()), e.dim);
      });
    case Collective::slice:
      for (size_t i = 0; i < out.size(); ++i) out[i] = block(own(i), e.dim, i, n);
      return;
    case Collective::pad:
      for (size_t i = 0; i < out.size(); ++i) out[i] = padded(in[i], e.dim, i, n);
      return;
    case Collective::keep_first:
      for (size_t i = 0; i < out.size(); ++i) out[i] = i == 0 ? in[0] : at::full_like(in[0], no_term);
      return;
    case Collective::all_reduce_max:
      return fill(ordered_reduce(in, at::maximum));
    case Collective::all_reduce_min:
      return fill(ordered_reduce(in, at::minimum));
    case Collective::all_reduce_product:
      return fill(ordered_reduce(in, at::mul));
    case Collective::block_exchange:  // carried out piece by piece
    case Collective::count:
      return;
    case Collective::permute:
      for (size_t i = 0; i < out.size(); ++i) {
        const int sender = (*e.senders)[i];
        out[i] = sender < 0 ? at::zeros_like(in[0]) : in[sender];
      }
      return;
  }
}

namespace {

struct LocalEngine : Engine {
  Tensors exchange(const Exchange& e, const std::vector<Tensors>& in, std::vector<Tensors>& out) const override {
    for (size_t g = 0; g < in.size(); ++g) exchange_locally(e, in[g], out[g]);
    return {};
  }
  Tensors pass(const Type*, const Type* to, const Tensors& x, const WaitContext&) const override {
    Tensors moved;
    for (const at::Tensor& t : x) moved.push_back(to->mesh->private_replicas ? t.clone() : t.detach());
    return moved;
  }
};

}  // namespace

const Engine& local_engine() {
  static const LocalEngine engine;
  return engine;
}

const Engine* choose_engine(const MeshImpl& mesh) {
  if (mesh.abstract) return &abstract_engine();
  return mesh.processes > 1 ? &processes_engine() : &local_engine();
}

}  // namespace tessera::detail
