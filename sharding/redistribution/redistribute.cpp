// Checks a sharding and converts to it.
#include "sharding/redistribution/redistribute.h"

#include "sharding/array/array_impl.h"
#include "sharding/base/fail.h"
#include "sharding/redistribution/convert.h"
#include "sharding/redistribution/varying.h"

namespace tessera {

Array redistribute(const Array& x, const NamedSharding& to, std::source_location where) {
  detail::ArrayImpl& a = detail::materialized(x, "redistribute");
  const detail::Type* type = detail::placed_inside(
      detail::placed_type(a.type->dtype, a.type->shape, to, "redistribute"), a.type, "redistribute");
  if (a.type->mesh && a.type->mesh != type->mesh)
    fail(ErrorKind::device_mismatch, "redistribute",
         "{} is on the mesh ({}), the target is the mesh ({}). Move it with device_put.", x.type_string(),
         Mesh(a.type->mesh).to_string(), to.mesh().to_string());
  return Array(detail::convert(a, x.impl(), type,
                               {.operation = "redistribute", .where = where, .reason = detail::explicit_reason()}));
}

}  // namespace tessera
