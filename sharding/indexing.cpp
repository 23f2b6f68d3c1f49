// Lookups by integer arrays.
#include "sharding/indexing.h"

#include <ATen/ATen.h>

#include "sharding/operations_common.h"

namespace tessera {

using namespace detail;

namespace {

const Operation embedding_op{"embedding", "v d, ... -> ... d", Linearity::linear_in_first};

}  // namespace

namespace {

// The rows of `ids` that lie in this block of the table; zeros for the others.
at::Tensor lookup(const at::Tensor& table, const at::Tensor& ids, int64_t offset) {
  const at::Tensor local = ids - offset;
  const at::Tensor here = (local >= 0).logical_and_(local < table.size(0));
  return at::embedding(table, local.clamp(0, table.size(0) - 1)) * here.unsqueeze(-1).to(table.scalar_type());
}

}  // namespace

Array embedding(Operand table, const Array& ids) {
  check_integers("embedding", ids, "ids");
  return run({.operation = embedding_op, .where = table.where()}, {&table.array(), &ids},
             [](Locals t, const Where& where) {
               const at::Tensor rows = indices("embedding", t[1], where.size("v"));
               return where.is_whole("v") ? at::embedding(t[0], rows) : lookup(t[0], rows, where.offset("v"));
             });
}

}  // namespace tessera
