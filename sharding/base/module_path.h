// ModulePathScope: the path of the module that computes now, for ledgers and errors that know no parameter's path.
#pragma once

#include <memory>
#include <string>

#include "sharding/base/scoped_value.h"

namespace tessera {

namespace detail {
// Null outside any scope.
std::shared_ptr<const std::string>& current_module_path();
}  // namespace detail

// While it lives, ledgers record `path` for a communication that belongs to no parameter, and an Error whose message
// names no path at or below `path` begins with it: "[matmul] layers.2.mlp: ...". Scopes belong to their thread; of
// nested ones the innermost counts; an empty path changes nothing. nn::ModuleScope finds a module's path by itself.
class ModulePathScope {
 public:
  explicit ModulePathScope(std::string path);

 private:
  detail::ScopedValue<std::shared_ptr<const std::string>> path_;
};

}  // namespace tessera
