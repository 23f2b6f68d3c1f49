// The abstract engine, which transfers no data: each result has the shape that it has on every device.
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
    case Collective::block_exchange:  // carried out piece by piece
    case Collective::count:
      break;
  }
  return t;
}

// Returns one device's buffers during an exchange between processes, in addition to operand and result. They are its
// fraction of the data that its process sends and receives. A process packs sums and joined blocks once for all its
// devices.
Tensors buffers_of(const Exchange& e, const at::Tensor& given, const at::Tensor& result) {
  const int each = e.devices / e.processes;
  const auto part = [](const at::Tensor& t, int parts) {
    return abstract_tensor({static_cast<int64_t>(t.nbytes()) / parts}, DType::uint8);
  };
  if (e.processes == 1) return {};
  switch (e.collective) {
    case Collective::all_gather:
      return {part(given, 1), part(result, each)};
    case Collective::reduce_scatter:
      return {part(given, each), e.processes == 2 ? part(result, 1) : part(given, each)};
    case Collective::all_to_all:
      return {part(given, 1), part(given, 1)};
    default:
      return {};
  }
}

// Counts the copies that no tape records: a device packs the data that it sends and unpacks the data that it receives.
// Both together cost about one call.
void count_copies(const Exchange& e) {
  const auto& meter = current_meter();
  if (meter && traits_of(e.collective).name) meter->add_call(metered_stage());
}

// The engine of an abstract mesh. One device represents all, so there is one group with one tensor.
struct AbstractEngine : Engine {
  Tensors exchange(const Exchange& e, const std::vector<Tensors>& in, std::vector<Tensors>& out) const override {
    out[0][0] = result_of(e, in[0][0]);
    count_copies(e);
    return buffers_of(e, in[0][0], out[0][0]);
  }
  Tensors pass(const Type*, const Type* to, const Tensors&, const WaitContext&) const override {
    return {abstract_block(to)};
  }
};

}  // namespace

const Engine& abstract_engine() {
  static const AbstractEngine engine;
  return engine;
}

}  // namespace tessera::detail
