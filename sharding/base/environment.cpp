// Parses environment variables that are flags.
#include "sharding/base/environment.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "sharding/base/fail.h"

namespace tessera::detail {

std::optional<bool> known_flag(const char* name) {
  constexpr std::array on{"1", "true", "on", "yes"};
  constexpr std::array off{"", "0", "false", "off", "no", "none"};
  const char* const set = std::getenv(name);
  const auto is_it = [text = std::string_view(set ? set : "")](std::string_view word) { return text == word; };
  if (std::any_of(on.begin(), on.end(), is_it)) return true;
  if (std::any_of(off.begin(), off.end(), is_it)) return false;
  return std::nullopt;
}

bool environment_flag(const char* name) {
  if (const auto flag = known_flag(name)) return *flag;
  fail(ErrorKind::invalid_argument, name, "\"{}\" given, expected 1 (on) or 0 (off). Set it to one, or leave it unset.",
       std::getenv(name));
}

// An invalid value is ignored here, because an Error before main would terminate the program; make_mesh throws it.
bool checks = known_flag("TESSERA_CHECK").value_or(true);

}  // namespace tessera::detail
