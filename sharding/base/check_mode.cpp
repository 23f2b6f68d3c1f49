// The environment variable, read once.
#include "sharding/base/check_mode.h"

#include "sharding/base/environment_flag.h"

namespace tessera::detail {

// An Error here would end the program before main: make_mesh throws it.
bool checks = known_flag("TESSERA_CHECK").value_or(true);

}  // namespace tessera::detail
