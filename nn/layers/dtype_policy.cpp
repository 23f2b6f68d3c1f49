// The three casts of a policy.
#include "nn/layers/dtype_policy.h"

#include "sharding/base/fail.h"
#include "sharding/operations/elementwise/elementwise.h"

namespace tessera::nn {

namespace {

Array cast_to(const Array& x, DType dtype, const char* what) {
  if (!is_floating(dtype))
    fail(ErrorKind::dtype_mismatch, "DTypePolicy", "{} = {} given, expected a floating type.", what, name_of(dtype));
  return x.is_absent() || x.dtype() == dtype || !is_floating(x.dtype()) ? x : astype(x, dtype);
}

}  // namespace

Array DTypePolicy::param(const Array& x) const { return cast_to(x, params, "params"); }
Array DTypePolicy::in(const Array& x) const { return compute ? cast_to(x, *compute, "compute") : x; }
Array DTypePolicy::out(const Array& y) const { return output ? cast_to(y, *output, "output") : y; }

}  // namespace tessera::nn
