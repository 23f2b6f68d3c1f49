// The limit of a call's attributes, told in the words of the call.
#include "sharding/propagation/attributes.h"

#include "sharding/base/fail.h"

namespace tessera::detail {

void Attributes::refuse_more() {
  fail(ErrorKind::invalid_argument, "operation", "more attributes than an operation can have.");
}

void check_attributes(const char* verb, const Array& x, const char* what, size_t given, size_t others) {
  const size_t most = Attributes::most - others;
  if (given > most)
    fail(ErrorKind::invalid_argument, verb, "{}: {} {}, expected at most {}.", x.type_string(), given, what, most);
}

}  // namespace tessera::detail
