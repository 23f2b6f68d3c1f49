// The abstract engine: nothing moves, and each result has the shape that it has on every device.
#include "sharding/array/abstract_tensor.h"
#include "sharding/redistribution/engine.h"
#include "sharding/redistribution/route.h"

namespace tessera::detail {
namespace {

at::Tensor with_dims(const at::Tensor& t, const Exchange& e, bool joined, int cut) {
  std::vector<int64_t> sizes = t.sizes().vec();
  if (joined) sizes[e.dim] *= e.devices;
  if (cut >= 0) sizes[cut] /= e.devices;
  return abstract_tensor(sizes, static_cast<DType>(t.scalar_type()));
}

at::Tensor result_of(const Exchange& e, const at::Tensor& t) {
  switch (e.collective) {
    case Collective::identity:
      return t;
    case Collective::slice:
      return t.narrow(e.dim, 0, t.size(e.dim) / e.devices);
    case Collective::all_gather:
    case Collective::pad:
      return with_dims(t, e, true, -1);
    case Collective::reduce_scatter:
      return with_dims(t, e, false, e.dim);
    case Collective::all_to_all:
      return with_dims(t, e, true, e.to_dim);
    case Collective::all_reduce:
    case Collective::all_reduce_max:
    case Collective::all_reduce_min:
    case Collective::all_reduce_product:
    case Collective::keep_first:
    case Collective::permute:
      return with_dims(t, e, false, -1);
    case Collective::block_exchange:  // carried out by its pieces
    case Collective::count:
      break;
  }
  return t;
}

// Of a process with several devices: it packs and gets sums of theirs, and joined blocks, once for all of them.
Tensors buffers_of(const Exchange& e, int processes, const at::Tensor& given, const at::Tensor& result) {
  const int each = e.devices / processes;
  const auto part = [](const at::Tensor& t, int parts) {
    return abstract_tensor({static_cast<int64_t>(t.nbytes()) / parts}, DType::uint8);
  };
  if (processes == 1) return {};
  switch (e.collective) {
    case Collective::all_gather:
      return {part(given, 1), part(result, each)};
    case Collective::reduce_scatter:
      return {part(given, each), processes == 2 ? part(result, 1) : part(given, each)};
    case Collective::all_to_all:
      return {part(given, 1), part(given, 1)};
    default:
      return {};
  }
}

// A device packs what it sends and unpacks what it gets: copies that no tape records, both together about one call.
void count_copies(const Exchange& e) {
  const auto& meter = current_meter();
  if (meter && traits_of(e.collective).name) meter->add_call(metered_stage());
}

}  // namespace

Tensors exchange_abstractly(const Exchange& e, int processes, const Tensors& in, Tensors& out) {
  out[0] = result_of(e, in[0]);
  count_copies(e);
  return buffers_of(e, processes, in[0], out[0]);
}

}  // namespace tessera::detail
