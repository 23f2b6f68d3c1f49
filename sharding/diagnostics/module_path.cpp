// The thread's innermost module path.
#include "sharding/diagnostics/module_path.h"

#include <utility>

namespace tessera {

namespace {
thread_local std::shared_ptr<const std::string> innermost_path;
}

ModulePathScope::ModulePathScope(std::string path) : outer_(innermost_path) {
  if (!path.empty()) innermost_path = std::make_shared<const std::string>(std::move(path));
}
ModulePathScope::~ModulePathScope() { innermost_path = std::move(outer_); }

const std::shared_ptr<const std::string>& detail::current_module_path() { return innermost_path; }

}  // namespace tessera
