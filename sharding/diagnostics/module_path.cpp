// The thread's innermost module path.
#include "sharding/diagnostics/module_path.h"

#include <utility>

namespace tessera {

namespace {
thread_local std::shared_ptr<const std::string> innermost;
}

ModulePathScope::ModulePathScope(std::string path) : outer_(innermost) {
  if (!path.empty()) innermost = std::make_shared<const std::string>(std::move(path));
}
ModulePathScope::~ModulePathScope() { innermost = std::move(outer_); }

const std::shared_ptr<const std::string>& detail::current_module_path() { return innermost; }

}  // namespace tessera
