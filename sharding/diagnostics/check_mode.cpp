// The environment variable, read once.
#include "sharding/diagnostics/check_mode.h"

#include <cstdlib>
#include <string_view>

namespace tessera::detail {

bool checks = [] {
  const char* value = std::getenv("TESSERA_CHECK");
  return value && std::string_view(value) == "1";
}();

}  // namespace tessera::detail
