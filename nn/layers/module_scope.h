// ModuleScope: names the running module, by its path, in ledgers and errors.
#pragma once

#include <string>

#include "nn/tree/tree.h"
#include "sharding/base/caller.h"

namespace tessera::nn {

namespace detail {

// "layers.2.mlp" for an array up.kernel, `below` the module, with the stamp layers.2.mlp.up.kernel.
std::string module_path_of(const std::string& stamp, const std::string& below);

// By the first array that filter_shard has stamped with a path; empty if there is none.
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

// A module opens one for the duration of its call:
//   Array operator()(const Array& x) const {
//     const nn::ModuleScope scope(*this);
// Inside it, in the forward and the backward pass, the ledger records communication under the module's path, unless a
// parameter takes part: then under that parameter's path. An Error of any operation begins with the path:
//   [matmul] layers.2.mlp: ...
// The path is the one that filter_shard stamped on the module's arrays. For a module without arrays, or one that was
// never placed, pass the path: ModuleScope scope("layers.2.act").
class ModuleScope {
 public:
  template <class Module>
  explicit ModuleScope(const Module& module) : scope_(detail::module_path(module)) {}
  explicit ModuleScope(std::string path) : scope_(std::move(path)) {}
  explicit ModuleScope(const char* path) : scope_(path) {}

 private:
  ModulePathScope scope_;
};

}  // namespace tessera::nn
