// Lookups whose ids and array are sharded over the same mesh axes.
#include "sharding/operations/index/sharded_lookup.h"

#include <algorithm>

#include "sharding/redistribution/convert.h"

namespace tessera::detail {
namespace {

AxisSet contested(const Type& x, int64_t dim, const Type& ids) {
  return ids.sharded && x.mesh == ids.mesh && !x.padded && !ids.padded ? x.dims[dim].axis_set() & ids.sharded : 0;
}

int64_t block_size(const Type& x) { return x.bytes / item_size(x.dtype); }

// Returns the number of elements of a block of the result.
int64_t found_size(const Read& read, const Type& x) {
  const int64_t ids = block_size(*read.ids.impl()->type);
  if (read.finds == Read::Finds::element) return ids;
  return block_size(x) / std::max<int64_t>(x.local[read.dim], 1) * ids;
}

// Compares the bytes of results, as the ledger counts them.
bool moves_less(const Read& read, AxisSet axes) {
  const Type& x = *read.x.array().impl()->type;
  const int64_t n = x.mesh->count(axes), result = found_size(read, x) * item_size(x.dtype);
  return read.ids.impl()->type->bytes * n + result < x.bytes * n;
}

// Returns the result with ids' own axes on the dimensions of ids; null if the result is sharded otherwise.
const Type* scattered(const Type& found, const Type& ids, const Type& gathered, int64_t first) {
  const AxisSet axes = ids.sharded & ~gathered.sharded;
  TypeKey key = found;
  if ((key.unreduced & axes) != axes) return nullptr;
  key.unreduced &= ~axes;
  for (size_t d = 0; d < ids.dims.size(); ++d) {
    if (!(key.dims[first + d] == gathered.dims[d])) return nullptr;
    key.dims[first + d] = ids.dims[d];
  }
  return intern(key);
}

Provenance cause_of(const Read& read) {
  static const Text reason = lasting_text(
      "the ids are sharded over mesh axes of the dim that they index: gathering the ids and scattering the results "
      "communicates less than gathering that dim");
  return {.operation = read.operation.name, .where = read.x.where(), .reason = reason, .path = {}};
}

}  // namespace

Array gathered_ids(const Read& read) {
  const ArrayImpl& x = *read.x.array().impl();
  const ArrayPtr& ids = read.ids.impl();
  const AxisSet axes = contested(*x.type, read.dim, *ids->type);
  if (!axes || x.weight || !moves_less(read, axes)) return {};
  return Array(convert(*ids, ids, without_axes(ids->type, axes), cause_of(read)));
}

Array scattered_result(const Read& read, const Array& found, const Array& gathered) {
  const Type* to = scattered(*found.impl()->type, *read.ids.impl()->type, *gathered.impl()->type, read.first);
  return to ? Array(convert(*found.impl(), found.impl(), to, cause_of(read))) : found;
}

}  // namespace tessera::detail
