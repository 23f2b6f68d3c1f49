// The reasons that are not an operation's.
#include "sharding/base/provenance.h"

#include <utility>

namespace tessera::detail {

Text as_text(std::string words) { return std::make_shared<const std::string>(std::move(words)); }

Text lasting_text(const char* words) { return Text(Text(), new std::string(words)); }

Text asked_for() {
  static const Text reason = lasting_text("asked for");
  return reason;
}

Text handed_out() {
  static const Text reason = lasting_text("a value is handed out, not a pending sum");
  return reason;
}

}  // namespace tessera::detail
