// The reasons that are not an operation's.
#include "sharding/diagnostics/cause.h"

namespace tessera::detail {

Text asked_for() {
  static const Text reason = std::make_shared<const std::string>("asked for");
  return reason;
}

Text handed_out() {
  static const Text reason = std::make_shared<const std::string>("a value is handed out, not a pending sum");
  return reason;
}

}  // namespace tessera::detail
