// The module that computes now, by its path: what ledgers and errors add where no parameter's path says it.
#pragma once

#include <memory>
#include <string>

namespace tessera {

// While it lives, a communication of no parameter is put down to `path` in ledgers, and an Error that does not name a
// path at or below it begins with it: "[matmul] layers.2.mlp: ...". Scopes nest, the innermost counts, and belong to
// their thread; an empty path changes nothing. nn::ModuleScope finds the path of a module by itself.
class ModulePathScope {
 public:
  explicit ModulePathScope(std::string path);
  ~ModulePathScope();
  ModulePathScope(const ModulePathScope&) = delete;
  ModulePathScope& operator=(const ModulePathScope&) = delete;

 private:
  std::shared_ptr<const std::string> outer_;
};

namespace detail {
// Null outside any scope.
const std::shared_ptr<const std::string>& current_module_path();
}  // namespace detail

}  // namespace tessera
