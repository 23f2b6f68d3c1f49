// eval_shape: what a function would return, as shapes, element types and placements, without doing it.
#pragma once

#include <type_traits>
#include <utility>

#include "nn/transformations/remat.h"
#include "nn/tree/tree.h"

namespace tessera::nn {

namespace detail {
// On the abstract twin of the mesh that the arrays of all arguments lie on; on an abstract mesh of one if on none.
void make_abstract(const std::vector<Array*>& arrays);
}  // namespace detail

// f(args...) with arrays that have no data (jax.eval_shape): nothing is computed and nothing allocated, recipes stay
// what they are, and the arguments are not touched.
//   const Array logits = nn::eval_shape(model, ids);     // logits.shape(), logits.dtype(), logits.sharding()
// Arguments that are placed are taken to the abstract mesh of the same axes (see MeshOptions::abstract), placed alike;
// without any, to one of a single device. The arrays of the result lie there: they can be asked for everything but
// their values. Numbers and functions are handed on as they are. The errors are those of f, and reading a value.
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
