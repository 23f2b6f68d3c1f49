// eval_shape: the shapes, element types and shardings that a function would return, without computing it.
#pragma once

#include <type_traits>

#include "nn/transformations/remat.h"
#include "nn/tree/tree.h"

namespace tessera::nn {

namespace detail {
// Replaces arrays by arrays without data on an abstract mesh. The mesh has the axes of the arrays' mesh, or one device
// if no array is on a mesh.
void make_abstract(const std::vector<Array*>& arrays);
}  // namespace detail

// Calls f(args...) with arrays that have no data (jax.eval_shape). Nothing is computed or allocated, lazy initializers
// are not run, and the arguments are not changed.
//   const Array logits = nn::eval_shape(model, ids);     // logits.shape(), logits.dtype(), logits.sharding()
// Placed arguments are moved to an abstract mesh with the same axes (see MeshOptions::abstract) and keep their specs.
// If none is placed, the mesh is one abstract device. The result's arrays are on this mesh and have everything except
// values. Numbers and functions are passed through unchanged.
// Errors, in addition to those of f (invalid_argument): f reads a value of an array, for example with item().
template <class F, class... Args>
auto eval_shape(const F& f, const Args&... args) {
  std::tuple<std::decay_t<F>, Args...> call(f, args...);
  std::vector<Array*> all;
  const auto collect = [&](auto& part) {
    if constexpr (detail::is_tree<std::decay_t<decltype(part)>>)
      for (Array* x : bare_arrays(part).arrays) all.push_back(x);
  };
  std::apply([&](auto&... part) { (collect(part), ...); }, call);
  detail::make_abstract(all);
  return std::apply([](auto& g, auto&... rest) { return g(rest...); }, call);
}

}  // namespace tessera::nn
