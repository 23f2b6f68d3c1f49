// capture: what the modules inside a program computed, by path, in one run.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "nn/report/activation_summary.h"

namespace tessera::nn {

// The outputs of modules by their paths, in the order of their first reading; more than one for a module that is called
// more than once. A tree, so that it can be printed, saved and compared as any other.
using CapturedArrays = std::map<std::string, std::vector<Array>>;

namespace detail {
// Runs the program, which returns the arrays that leave it.
CapturedArrays captured(std::string_view pattern, const std::function<std::vector<Array>()>& program);
}  // namespace detail

// Calls f(args...), which may be a model, and returns what came out of each module whose path matches the pattern
// (sharding/placement/path_pattern.h): the arrays made inside it that are read outside or returned.
//   const Array hidden = nn::capture(model, "layers.2.mlp", batch.x).at("layers.2.mlp")[0];
//   for (const auto& [path, out] : nn::capture(loss, "layers.*.attn", model, batch)) std::cout << path << out[0];
// Modules are those that open a ModuleScope, as all layers do, and those around them; their paths are those that
// filter_shard stamped. No gradient is recorded; the arguments are not changed. Until the call returns, all results of
// operations in these modules are kept. Error (invalid_argument), which names the nearest paths: no module matches.
template <class F, class... Args>
CapturedArrays capture(const F& f, std::string_view pattern, const Args&... args) {
  std::tuple<std::decay_t<F>, Args...> call(f, args...);
  return detail::captured(pattern, [&] {
    return detail::returned_arrays(std::apply([](auto& g, auto&... rest) { return g(rest...); }, call));
  });
}

}  // namespace tessera::nn
