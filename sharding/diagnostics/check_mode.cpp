// The environment variable, read once.
#include "sharding/diagnostics/check_mode.h"

#include "sharding/diagnostics/environment_flag.h"

namespace tessera::detail {

bool checks = environment_flag("TESSERA_CHECK");

}  // namespace tessera::detail
