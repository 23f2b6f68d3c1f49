// local_map: runs LibTorch code on the local shards of arrays, one device at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <vector>

#include "sharding/base/caller.h"
#include "sharding/shard_map/shard_map.h"

namespace tessera {

namespace detail {

using LocalFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// Inside shard_map, calls `f` once for each device with distinct blocks.
std::vector<Array> call_locally(const LocalFunction& f, const std::vector<Array>& blocks);

}  // namespace detail

// Returns a function of arrays that calls `f` once for each device with distinct blocks, one after another. `f` gets
// that device's local tensors, one per argument, and returns a tensor or a vector of tensors: the device's blocks of
// the results. Gradients are LibTorch's. Specs and options are as in shard_map: along a mesh axis that its spec does
// not name, an argument is the same tensor on every device, and its gradients are summed.
//   const auto norm = local_map([](const std::vector<at::Tensor>& t) { return at::layer_norm(t[0], {8}); }, mesh,
//                               P{"data"}, P{"data"});
//   norm(x)
// `f` is opaque: its results vary along all mesh axes along which its arguments vary. If a result is a term of a
// partial sum, declare it: P{}.unreduced({"model"}). `f` must not write to its arguments, and must depend on nothing
// else: with shared replicas, one call serves all devices with the same blocks.
// Errors
//   those of shard_map
//   shape_mismatch: results whose number, shape or element type depend on the device
//   dtype_mismatch: a result that is undefined, sparse or of an unsupported element type
//   invalid_argument: an exception of LibTorch
template <class F>
requires std::invocable < const F&, const std::vector<at::Tensor>
& > auto local_map(F f, Mesh mesh, Specs in_specs, Specs out_specs, ShardMapOptions options = {},
                   std::source_location where = std::source_location::current()) {
  const auto body = [f = std::move(f), where](const std::vector<Array>& blocks) {
    const CallerScope caller(where);
    if constexpr (std::is_same_v<std::invoke_result_t<const F&, const std::vector<at::Tensor>&>, at::Tensor>)
      return detail::call_locally([&](const auto& tensors) { return std::vector<at::Tensor>{f(tensors)}; }, blocks)[0];
    else
      return detail::call_locally(f, blocks);
  };
  return shard_map(body, mesh, std::move(in_specs), std::move(out_specs), std::move(options), where);
}

}  // namespace tessera
