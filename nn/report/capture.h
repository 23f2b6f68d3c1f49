// capture: the outputs of the modules inside a program, by path, in one run.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "nn/report/activation_summary.h"

namespace tessera::nn {

// Outputs of modules by path, in the order of their first reading. A module that is called several times has several
// outputs. A CapturedArrays is a tree: it can be printed, saved and compared as any other.
using CapturedArrays = std::map<std::string, std::vector<Array>>;

namespace detail {
// Runs the program, which returns its results.
CapturedArrays captured(std::string_view pattern, const std::function<std::vector<Array>()>& program);
}  // namespace detail

// Calls f(args...), which may be a model, and returns the outputs of each module whose path matches the pattern
// (path_matches in sharding/base/text.h). Outputs are arrays made inside the module that are read outside or returned.
//   const Array hidden = nn::capture(model, "layers.2.mlp", batch.x).at("layers.2.mlp")[0];
//   for (const auto& [path, out] : nn::capture(loss, "layers.*.attn", model, batch)) std::cout << path << out[0];
// Modules are those that open a ModuleScope, as all layers do, and the modules that contain them. Their paths come from
// filter_shard. No gradient is recorded, and the arguments are not changed. Until the call returns, all results of
// operations in these modules stay in memory. Error (invalid_argument), with the nearest paths: no module matches.
template <class F, class... Args>
CapturedArrays capture(const F& f, std::string_view pattern, const Args&... args) {
  std::tuple<std::decay_t<F>, Args...> call(f, args...);
  return detail::captured(pattern, [&] {
    return detail::returned_arrays(std::apply([](auto& g, auto&... rest) { return g(rest...); }, call));
  });
}

}  // namespace tessera::nn
