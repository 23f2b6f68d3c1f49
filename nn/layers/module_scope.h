// ModuleScope, which names the running module in ledgers and errors, and inference_mode.
#pragma once

#include <concepts>
#include <string>

#include "nn/tree/tree.h"
#include "sharding/base/caller.h"

namespace tessera::nn {

namespace detail {

// Returns "layers.2.mlp" for a module's array `below` = up.kernel with the path `stamp` = layers.2.mlp.up.kernel.
inline std::string module_path_of(const std::string& stamp, const std::string& below) {
  if (below.empty()) return stamp;
  const std::string end = '.' + below;
  return stamp.ends_with(end) ? stamp.substr(0, stamp.size() - end.size()) : "";
}

// Returns the module's path, from its first array that filter_shard has given a path; "" if there is none.
template <class Module>
std::string module_path(const Module& module) {
  const Array* stamped = nullptr;
  std::string below;
  walk_all(module, [&]<class T>(T& part, const Place& place) {
    if constexpr (is_leaf<T>) {
      const Array& x = *leaf_of(part).value;
      if (!stamped && !x.is_absent() && !x.path().empty()) stamped = &x, below = place.path();
    }
  });
  return stamped ? module_path_of(stamped->path(), below) : "";
}

}  // namespace detail

// Names the running module. A module opens one for the duration of its call:
//   Array operator()(const Array& x) const {
//     const nn::ModuleScope scope(*this);
// In the forward and the backward pass, the ledger records communication under the module's path, or under a
// parameter's path if a parameter takes part. An Error of any operation begins with the path:
//   [matmul] layers.2.mlp: ...
// The path comes from filter_shard, which stores it in the module's arrays. For a module without arrays, or one that
// was never placed, pass the path: ModuleScope scope("layers.2.act").
class ModuleScope {
 public:
  template <class Module>
  explicit ModuleScope(const Module& module) : scope_(detail::module_path(module)) {}
  explicit ModuleScope(std::string path) : scope_(std::move(path)) {}
  explicit ModuleScope(const char* path) : scope_(path) {}

 private:
  ModulePathScope scope_;
};

// Returns a copy of the tree in which every field `bool inference` is `value` (eqx.nn.inference_mode). By convention, a
// layer that behaves differently in inference (dropout, batch normalization) has a field of this name, false in
// training.
//   auto eval = nn::inference_mode(model);
// Do not make the copy const if it has a layer like BatchNorm: its call is non-const even though inference changes
// nothing.
template <class Tree>
Tree inference_mode(Tree tree, bool value = true) {
  detail::walk_all(tree, [value]<class T>(T& part, const detail::Place& place) {
    if constexpr (std::same_as<T, bool>)
      if (place.name() == "inference") part = value;
  });
  return tree;
}

}  // namespace tessera::nn
