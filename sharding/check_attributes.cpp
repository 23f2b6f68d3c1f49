// The limit of a call's attributes, told in the words of the call.
#include "sharding/check_attributes.h"

#include <fmt/format.h>

#include "sharding/error.h"
#include "sharding/plan.h"

namespace tessera::detail {

void check_attributes(const char* verb, const Array& x, const char* what, size_t given, size_t others) {
  const size_t most = Attributes::most - others;
  if (given > most)
    fail(ErrorKind::bad_argument, verb,
         fmt::format("{}: {} {}, expected at most {}.", x.type_string(), given, what, most));
}

}  // namespace tessera::detail
