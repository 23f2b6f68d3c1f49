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

Tensors buffers_of(const Exchange& e, const at::Tensor& given, const at::Tensor& result) {
  const auto like = [](const at::Tensor& t) { return with_dims(t, {}, false, -1); };
  switch (e.collective) {
    case Collective::all_gather:
      return {like(given), like(result)};
    case Collective::reduce_scatter:
      return {like(given), like(e.devices == 2 ? result : given)};
    case Collective::all_to_all:
      return {like(given), like(given)};
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

Tensors exchange_abstractly(const Exchange& e, const Tensors& in, Tensors& out) {
  out[0] = result_of(e, in[0]);
  count_copies(e);
  return buffers_of(e, in[0], out[0]);
}

}  // namespace tessera::detail
