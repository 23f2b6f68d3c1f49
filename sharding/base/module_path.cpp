// The thread's innermost module path.
#include "sharding/base/module_path.h"

#include <utility>

namespace tessera {

std::shared_ptr<const std::string>& detail::current_module_path() {
  thread_local std::shared_ptr<const std::string> innermost;
  return innermost;
}

ModulePathScope::ModulePathScope(std::string path)
    : path_(detail::current_module_path(),
            path.empty() ? detail::current_module_path() : std::make_shared<const std::string>(std::move(path))) {}

}  // namespace tessera
